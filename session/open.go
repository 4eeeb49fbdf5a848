package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/system"
)

// Cache returns the folder for the prepared data of the run in dir. The phases of a run share it.
func (s *Setup) Cache(dir string) string {
	if d := s.Config.Data.CacheDir; d != "" {
		return d
	}
	if s.ofPhase {
		dir = filepath.Dir(filepath.Clean(dir))
	}
	return filepath.Join(dir, dataFolder)
}

// dataFolder has the prepared data of a run directory, unless data.cache_dir is set.
const dataFolder = "data"

// Data prepares the data, or reuses what was prepared before. Close it with [CloseData].
func (s *Setup) Data(ctx context.Context, env system.Env) (*system.Run, error) {
	if err := folder(env.Cache); err != nil {
		return nil, fmt.Errorf("data.cache_dir: %w", err)
	}
	return s.open(ctx, s.Config, s.Model, env)
}

// open opens the data of a configuration and model, which may be other than those of s.
func (s *Setup) open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	defer boundHeap(s.Host.Memory.Free())()
	run, err := s.System.Open(ctx, c, m, env)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		err = fmt.Errorf("%w\nprepared data goes to %s: make room there, or choose another folder with --data.cache_dir", err, env.Cache)
	case errors.Is(err, fs.ErrNotExist) && env.Position != nil:
		err = fmt.Errorf("%w\nif the data has moved, name the new place with --data.source; it must be the same data", err)
	}
	return run, err
}

// boundHeap makes garbage collections more frequent before the heap exceeds the given memory, less the rest of
// the process. The returned function ends that.
func boundHeap(memory int64) (undo func()) {
	if memory == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	was := debug.SetMemoryLimit(max(memory-plan.GoRuntime, 0))
	return func() { debug.SetMemoryLimit(was) }
}

// folder rejects a path at which there can be no folder, before time is spent on what it would hold.
func folder(path string) error {
	path = filepath.Clean(path)
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s exists and is not a folder", at)
		case err == nil && at != path:
			probe, err := durable.Stage(filepath.Join(at, "probe"))
			var failed *fs.PathError
			if errors.As(err, &failed) {
				err = failed.Err // the name is the probe's
			}
			if err != nil {
				return fmt.Errorf("no folder can be made in %s: %w", at, err)
			}
			return os.Remove(probe)
		case err == nil || at == filepath.Dir(at):
			return nil // any other problem shows when it is used
		}
	}
}

// CloseData stops the data loader, whose goroutines read ahead, before it unmaps what they read.
func CloseData(d *system.Run) error {
	d.Loader.Close()
	return d.Close()
}

// Load loads a program to run on data, with the weights that training starts from: random ones, overwritten
// by those that the system loads. A checkpoint's weights replace both.
func (s *Setup) Load(p *engine.Program, d *system.Run) (*engine.Executable, error) {
	x, err := p.Load(s.Backend)
	if err != nil {
		return nil, err
	}
	if err = x.Initialize(s.Config.Training.Seed); err == nil && d.Load != nil {
		err = d.Load(x)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// silent ignores messages.
func silent(string, ...any) {}
