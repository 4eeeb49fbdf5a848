package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/train"
)

// carrier is what the processes of a run exchange gradients over: the group in which they met, or an engine
// that hardware.exchange names. MPI is opened for the first run and kept for later ones; NCCL is connected
// for each run, because it uses the memory of the run's program.
type carrier struct {
	met     dist.Group   // nil if this process trains alone
	engine  dist.Group   // the MPI group; nil if not open
	mpi     *mpi.Library // library behind engine
	library fmt.Stringer // in use; nil if none
	seated  bool         // the ranks have exchanged their seats
}

// via is what one run exchanges gradients over.
type via struct {
	group dist.Group
	cards *nccl.Library // from card to card; nil means through main memory
	why   string        // what hardware.exchange auto chose, and why; empty if nothing was chosen
}

// over splits the setting hardware.exchange into the engine and the path of its library, which is empty for
// any.
func over(setting string) (engine, path string) {
	engine, path, _ = strings.Cut(setting, ":")
	return engine, path
}

// overMPI reports whether world processes exchange over MPI. A single process has nothing to exchange.
func overMPI(setting string, world int) bool {
	engine, _ := over(setting)
	return engine == "mpi" && world > 1
}

// overCards reports whether the run is to exchange gradients from card to card, as far as this process knows.
// own says that the decision is about this machine's card, not one that may be absent.
func (s *Setup) overCards(own bool) bool {
	switch engine, _ := over(s.Config.Hardware.Exchange); {
	case s.World == 0:
		return false
	case s.onHost():
		return false
	case engine == "auto" && s.World > 1:
		if !own {
			return true
		}
		_, err := s.nccl()
		return err == nil
	default:
		return engine == "nccl"
	}
}

var onProcessor = usage("hardware.exchange: nccl connects cards, and the processor computes: want tcp, mpi or auto, or hardware.device cuda")

// find rejects a setting that cannot work before anything is created.
func (s *Setup) find() error {
	setting := s.Config.Hardware.Exchange
	engine, path := over(setting)
	var err error
	switch {
	case overMPI(setting, s.World):
		if err = mpi.Launched(os.Getenv); err == nil {
			_, err = mpi.Find(path)
		}
	case engine != "nccl" || s.World == 0:
	case s.Card == nil:
		return onProcessor
	default:
		_, err = s.nccl()
	}
	if err != nil {
		return fmt.Errorf("hardware.exchange %s: %w", setting, err)
	}
	return nil
}

// via returns what a run with this setup exchanges its gradients over. All ranks must call it.
func (c *carrier) via(ctx context.Context, s *Setup) (v via, err error) {
	setting := s.Config.Hardware.Exchange
	engine, path := over(setting)
	c.library = nil
	switch {
	case overMPI(setting, s.World):
		v.group, err = c.overMPI(ctx, path)
	case engine == "auto" && s.sums() == train.Tree:
		v.group, v.why = c.met, "TCP, through main memory, where training.gradient_sums: tree adds up"
	case engine == "auto" && s.onHost():
		v.group, v.why = c.met, "TCP, through main memory, where training.diloco.exchange: int8 rounds"
	case c.met != nil && (engine == "nccl" || engine == "auto" && s.World > 1):
		v.group = c.met
		var library *nccl.Library
		switch library, err = s.connectable(c.met); {
		case err == nil:
			v.cards, c.library = library, library
			v.why = "NCCL, for every process has a card of its own"
		case engine == "auto" && errors.As(err, new(unconnectable)):
			v.why, err = "TCP, through main memory: "+err.Error(), nil
		}
		if engine != "auto" {
			v.why = ""
		}
	default:
		v.group = c.met
	}
	if err != nil {
		return via{}, fmt.Errorf("hardware.exchange %s: %w", setting, err)
	}
	return v, nil
}

// overMPI returns the group over MPI.
func (c *carrier) overMPI(ctx context.Context, path string) (dist.Group, error) {
	if c.engine == nil {
		met, ok := c.met.(dist.Watched)
		if !ok {
			return nil, errors.New("the ranks give each other no signs of life")
		}
		group, library, err := mpi.Open(ctx, met, path)
		if err != nil {
			return nil, err
		}
		c.engine, c.mpi = group, library
	}
	c.library = c.mpi
	return c.engine, nil
}

// onCard is what each rank tells the others about its card.
type onCard struct {
	Card    string // identity; empty if the processor computes
	Library string // version of NCCL
	Error   string // why NCCL cannot be used
}

// unconnectable says why ranks cannot exchange over NCCL.
type unconnectable struct{ error }

// connectable returns NCCL if the ranks of a group can exchange over it. All ranks reach the same answer.
func (s *Setup) connectable(met dist.Group) (*nccl.Library, error) {
	own := onCard{Card: backend.CardID(s.Backend)}
	library, err := s.nccl()
	if err != nil {
		own.Error = err.Error()
	} else {
		own.Library = library.Version().String()
	}
	b, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	all, err := dist.AllGatherSized(met, b)
	if err != nil {
		return nil, err
	}
	ranks := make([]onCard, len(all))
	for r, b := range all {
		if err := json.Unmarshal(b, &ranks[r]); err != nil {
			return nil, fmt.Errorf("what rank %d says of its card: %w", r, err)
		}
	}
	return library, disconnected(ranks)
}

// disconnected says why ranks with these cards cannot exchange over NCCL; it returns nil if they can.
func disconnected(ranks []onCard) error {
	of := map[string]int{}
	for r, x := range ranks {
		other, taken := of[x.Card]
		switch {
		case x.Card == "":
			return unconnectable{fmt.Errorf("rank %d computes on the processor", r)}
		case x.Error != "":
			return unconnectable{fmt.Errorf("rank %d: %s", r, x.Error)}
		case taken:
			return unconnectable{fmt.Errorf("ranks %d and %d compute on the same card, %s", other, r, x.Card)}
		case x.Library != ranks[0].Library:
			return unconnectable{fmt.Errorf("rank 0 has NCCL %s, rank %d %s: use the same version everywhere", ranks[0].Library, r, x.Library)}
		}
		of[x.Card] = r
	}
	return nil
}

// String names the library in use; it is empty if there is none.
func (c *carrier) String() string {
	if c.library == nil {
		return ""
	}
	return c.library.String()
}

// leave closes the engine, and with it the group. err is the error that training ended with.
func (c *carrier) leave(err error) error {
	if c.engine == nil {
		return nil
	}
	if errors.Is(err, train.ErrStopped) {
		err = nil
	}
	return c.engine.Leave(err)
}
