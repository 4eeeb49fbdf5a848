package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/train"
)

// carrier is what the processes of runs exchange gradients over: the group in which they have
// met, or an engine that hardware.exchange names, which is opened for the first run
// and kept for those that follow.
type carrier struct {
	met     dist.Group   // nil: this process trains alone
	engine  dist.Group   // nil: none is open
	library *mpi.Library // the engine's
}

// overMPI reports whether a setting is that so many processes exchange over MPI, and the path of
// the library that it names, "" for any.
func overMPI(setting string, world int) (path string, ok bool) {
	engine, path, _ := strings.Cut(setting, ":")
	return path, engine == "mpi" && world > 1 // one has nothing to exchange
}

// path is [overMPI] for the processes that are there.
func (c *carrier) path(setting string) (path string, ok bool) {
	if c.met == nil {
		return "", false
	}
	return overMPI(setting, c.met.World())
}

// find refuses a setting that cannot work, before anything is made.
func (c *carrier) find(setting string) error {
	path, ok := c.path(setting)
	if !ok {
		return nil
	}
	err := mpi.Launched(os.Getenv)
	if err == nil {
		_, err = mpi.Find(path)
	}
	if err != nil {
		return fmt.Errorf("hardware.exchange %s: %w", setting, err)
	}
	return nil
}

// group is what a run with the setting exchanges its gradients over; all ranks call it.
func (c *carrier) group(ctx context.Context, setting string) (dist.Group, error) {
	path, ok := c.path(setting)
	if !ok {
		return c.met, nil
	}
	if c.engine != nil {
		return c.engine, nil
	}
	met, ok := c.met.(dist.Watched)
	if !ok {
		return nil, fmt.Errorf("hardware.exchange %s: the ranks give each other no signs of life", setting)
	}
	var err error
	if c.engine, c.library, err = mpi.Open(ctx, met, path); err != nil {
		return nil, fmt.Errorf("hardware.exchange %s: %w", setting, err)
	}
	return c.engine, nil
}

// String is the engine's library, empty where there is none.
func (c *carrier) String() string {
	if c.library == nil {
		return ""
	}
	return c.library.String()
}

// leave ends the engine's part, and with it the group's. Training ended with err.
func (c *carrier) leave(err error) error {
	if c.engine == nil {
		return nil
	}
	if errors.Is(err, train.ErrStopped) {
		err = nil
	}
	return c.engine.Leave(err)
}
