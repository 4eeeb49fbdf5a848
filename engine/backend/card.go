package backend

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
)

// openDriver loads the driver of NVIDIA cards.
var openDriver = driver.Open

// ErrNoDriver says that no driver of NVIDIA cards is installed, or that this build
// cannot use one.
var ErrNoDriver = driver.ErrNone

// UseDriver puts a driver in the place of the installed one until restore is
// called: for tests on machines without a card.
func UseDriver(d driver.Driver) (restore func()) {
	was := openDriver
	openDriver = func() (driver.Driver, error) { return d, nil }
	return func() { openDriver = was }
}

// CardOf is the card of a backend with what is known of its model, and the memory
// that is free on it now; nil for any other backend.
func CardOf(b engine.Backend) (card *device.Card, free int64, err error) {
	c, ok := b.(*cuda.Backend)
	if !ok {
		return nil, 0, nil
	}
	free, _, err = c.Memory()
	return known(c.Card()), free, err
}

// Workspace is what a program's kernels need next to the arena on a card that may
// not be there; 0 where snug has no kernels for it.
func Workspace(card *device.Card, p *engine.Program) (int64, error) {
	if !card.Capability.AtLeast(7, 5) {
		return 0, nil
	}
	return cuda.Workspace(p, card.Capability.Major*10+card.Capability.Minor, card.SMs)
}

// known is what the table says of a card, or what can be told from its figures.
func known(c driver.Card) *device.Card {
	if card, err := device.Lookup(c.Name); err == nil {
		return card
	}
	return device.Unlisted(c.Name, device.Capability{Major: c.Major, Minor: c.Minor}, c.SMs, c.Memory, 1e3*float64(c.ClockKHz),
		2*1e3*float64(c.MemoryClockKHz)*float64(c.BusBits)/8)
}

// Cards are the cards that the installed driver shows.
func Cards() ([]driver.Card, error) {
	d, err := openDriver()
	if err != nil {
		return nil, err
	}
	return d.Cards()
}

// Refused says why a card that is there is not used. Exit code 1.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }
func (e *Refused) Unwrap() error { return e.Err }

// openCard opens the card that name asks for: "cuda" or "auto" the one with the
// most free memory, "cuda:N" number N.
func openCard(name string) (engine.Backend, error) {
	d, err := openDriver()
	if err != nil {
		return nil, err
	}
	cards, err := d.Cards()
	if err != nil {
		return nil, explain(err)
	}
	if number, ok := strings.CutPrefix(name, "cuda:"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= len(cards) {
			return nil, fmt.Errorf("there is no card %s: the driver shows %s", name, list(cards))
		}
		return open(d, n)
	}
	var best engine.Backend
	var most int64
	var refused error
	for i := range cards {
		b, err := open(d, i)
		if err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		free, _, err := b.Memory()
		if err == nil && best != nil && free <= most {
			err = b.Close()
		} else if err == nil {
			if old, ok := best.(*cuda.Backend); ok {
				err = old.Close()
			}
			best, most = b, free
		}
		if err != nil {
			return nil, explain(err)
		}
	}
	if best == nil {
		return nil, &Refused{errors.Join(errors.New("no card can be used"), refused)}
	}
	return best, nil
}

func open(d driver.Driver, n int) (*cuda.Backend, error) {
	ctx, err := d.Open(n)
	if err != nil {
		return nil, explain(err)
	}
	b, err := cuda.New(ctx)
	if err != nil {
		return nil, errors.Join(err, ctx.Close())
	}
	return b, nil
}

// list names cards.
func list(cards []driver.Card) string {
	names := make([]string, len(cards))
	for i, c := range cards {
		names[i] = fmt.Sprintf("cuda:%d (%s)", i, c.Name)
	}
	return strings.Join(names, ", ")
}

// explain says what to do about an error of the driver.
func explain(err error) error {
	var e *driver.Error
	if !errors.As(err, &e) {
		return err
	}
	help := map[driver.Code]string{
		driver.NoDevice:       "check `nvidia-smi`; in a container, give it the card (--gpus all)",
		driver.OutOfMemory:    "another process holds the card: `nvidia-smi` names it",
		driver.InvalidDevice:  "`snug doctor` lists the cards",
		driver.SystemMismatch: "restart the machine, or load the kernel module of the library's version",
		driver.SystemNotReady: "start NVIDIA's services (nvidia-fabricmanager, on machines with NVSwitch)",
		driver.UnsupportedPTX: "a driver of CUDA 11.0 or later is needed (450 and up)",
		driver.JITNotFound:    "install libnvidia-ptxjitcompiler of the driver's version (in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
	}[e.Code]
	if help == "" {
		return &Refused{err}
	}
	return &Refused{fmt.Errorf("%w: %s", err, help)}
}
