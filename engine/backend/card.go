package backend

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/internal/size"
)

// openDriver loads the driver of NVIDIA cards.
var openDriver = driver.Open

// ErrNoDriver means that no driver of NVIDIA cards is installed, or that this build
// cannot use one.
var ErrNoDriver = driver.ErrNone

// TooOld is a driver that lacks what snug calls.
type TooOld = driver.TooOld

// UseDriver replaces the installed driver until restore is called: for tests on
// machines without a card.
func UseDriver(d driver.Driver) (restore func()) {
	was := openDriver
	openDriver = func(variables func() map[string]string) (driver.Driver, error) {
		if f, ok := d.(interface{ Setenv(map[string]string) }); ok && variables != nil {
			f.Setenv(variables())
		}
		return d, nil
	}
	return func() { openDriver = was }
}

// openMonitor loads the library that reports how busy and how hot cards are.
var openMonitor = nvml.Open

// UseMonitor replaces the installed library until restore is called.
func UseMonitor(l nvml.Library) (restore func()) {
	was := openMonitor
	openMonitor = func() (nvml.Library, error) { return l, nil }
	return func() { openMonitor = was }
}

// Monitor samples the card of a backend; nil where there is none, or, with an error that says
// why, it cannot be read.
func Monitor(b engine.Backend) (func() nvml.Sample, error) {
	c, ok := b.(*cuda.Backend)
	if !ok {
		return nil, nil
	}
	l, err := openMonitor()
	if err != nil {
		return nil, err
	}
	uuid := c.Card().UUID
	if _, ok := l.Sample(uuid); !ok {
		return nil, fmt.Errorf("NVIDIA's management library does not know %s", uuid)
	}
	return func() nvml.Sample {
		s, _ := l.Sample(uuid)
		return s
	}, nil
}

// Meter measures the energy that the card of a backend draws.
type Meter struct {
	look func() nvml.Sample // nil: nothing counts it
	from float64
}

// NewMeter is the meter of a backend, which measures nothing where it has no card that
// counts its energy.
func NewMeter(b engine.Backend) *Meter {
	look, _ := Monitor(b) // a run says why there is none
	return &Meter{look: look}
}

// Begin begins a measurement.
func (m *Meter) Begin() {
	if m.look != nil {
		m.from = m.look().Joules
	}
}

// Joules is the energy drawn since Begin; 0 where it is not known.
func (m *Meter) Joules() float64 {
	if m.look == nil {
		return 0
	}
	if to := m.look().Joules; m.from > 0 && to > m.from {
		return to - m.from
	}
	return 0
}

// Holders names the other processes that compute on the card of a backend, with the
// memory that each uses; empty where none can be seen, as in a container.
func Holders(b engine.Backend) string {
	if c, ok := b.(*cuda.Backend); ok {
		return holders(c.Card())
	}
	return ""
}

func holders(c driver.Card) string {
	l, err := openMonitor()
	if err != nil {
		return ""
	}
	var names []string
	for _, p := range l.Processes(c.UUID) {
		switch {
		case p.PID == os.Getpid():
		case p.Used < 0:
			names = append(names, fmt.Sprintf("process %d", p.PID))
		default:
			names = append(names, fmt.Sprintf("process %d: %s", p.PID, size.Bytes(p.Used)))
		}
	}
	return strings.Join(names, ", ")
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

// CardID is the identity of the card of a backend, the same for every process that uses it; empty
// for any other backend.
func CardID(b engine.Backend) string {
	if c, ok := b.(*cuda.Backend); ok {
		return c.Card().UUID
	}
	return ""
}

// known is the table's entry for a card, or what its figures imply.
func known(c driver.Card) *device.Card {
	if card, err := device.Lookup(c.Name); err == nil {
		return card
	}
	return device.Unlisted(c.Name, device.Capability{Major: c.Major, Minor: c.Minor}, c.SMs, c.Memory, 1e3*float64(c.ClockKHz),
		2*1e3*float64(c.MemoryClockKHz)*float64(c.BusBits)/8)
}

// Cards are the cards that the installed driver shows.
func Cards() ([]driver.Card, error) {
	d, err := Options{}.driver()
	if err != nil {
		return nil, err
	}
	return d.Cards()
}

// Refused is why a card that is there is not used. Exit code 1.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }
func (e *Refused) Unwrap() error { return e.Err }

// NoCard is a number that no card has.
type NoCard struct{ Err error }

func (e NoCard) Error() string { return e.Err.Error() }

// Unwrap is what is wrong.
func (e NoCard) Unwrap() error { return e.Err }

// ExitCode is 2: wrong usage.
func (NoCard) ExitCode() int { return 2 }

// Lost reports whether err means that the device is lost: this process can run no
// further program on it.
func Lost(err error) bool { return cuda.Lost(err) }

// Fault says of an error which operation of a program it happened in, with the shapes and the kernel,
// and what the driver said; empty where that is not known.
func Fault(err error) string {
	var f *cuda.Fault
	var e *driver.Error
	if !errors.As(err, &f) || !errors.As(err, &e) {
		return ""
	}
	text := f.Place() + ": " + e.Text()
	if e.Log != "" {
		text += "\n" + e.Log
	}
	return text
}

// Release gives the card of a backend up, so that another process can use it; with it goes all that
// was loaded. Of a card that was lost there is nothing to report.
func Release(b engine.Backend) error {
	c, ok := b.(*cuda.Backend)
	if !ok {
		return nil
	}
	if err := c.Close(); !Lost(err) {
		return err
	}
	return nil
}

// Device is what hardware.device calls a backend.
func Device(b engine.Backend) string {
	if c, ok := b.(*cuda.Backend); ok {
		return fmt.Sprintf("cuda:%d", c.Card().Index)
	}
	return b.Traits().Name
}

// openCard opens the card that is asked for: "cuda" or "auto" the best, "cuda:N" number N.
func openCard(o Options) (engine.Backend, error) {
	d, cards, err := o.cards()
	if err != nil {
		return nil, err
	}
	name := o.Device
	if o.Ranks > 1 {
		if strings.HasPrefix(name, "cuda:") {
			return nil, NoCard{fmt.Errorf("%s is one card, and %d processes of the run are on this machine: want cuda, which gives each its own", name, o.Ranks)}
		}
		name = fmt.Sprintf("cuda:%d", o.Rank)
	}
	var b *cuda.Backend
	if number, ok := strings.CutPrefix(name, "cuda:"); ok {
		n, e := strconv.Atoi(number)
		if e != nil || n < 0 || n >= len(cards) {
			return nil, NoCard{fmt.Errorf("there is no card %s: the driver shows %s", name, list(cards))}
		}
		b, err = open(d, cards[n])
	} else {
		b, err = o.best(d, cards)
	}
	if err != nil {
		return nil, err
	}
	o.matmuls(d, b)
	return b, nil
}

// cards are the installed driver, if it is new enough, and the cards that it shows.
func (o Options) cards() (driver.Driver, []driver.Card, error) {
	d, err := o.driver()
	if err != nil {
		return nil, nil, err
	}
	if v := d.Version(); v < driver.Needed {
		return nil, nil, &Refused{&driver.TooOld{CUDA: v}}
	}
	cards, err := d.Cards()
	if err != nil {
		return nil, nil, &Refused{err}
	}
	return d, cards, nil
}

func open(d driver.Driver, c driver.Card) (*cuda.Backend, error) {
	ctx, err := d.Open(c.Index)
	if err != nil {
		return nil, &Refused{fmt.Errorf("cuda:%d: %w", c.Index, occupied(c, err))}
	}
	b, err := cuda.New(ctx)
	if err != nil {
		return nil, &Refused{errors.Join(fmt.Errorf("cuda:%d: %w", c.Index, err), ctx.Close())}
	}
	return b, nil
}

// occupied adds to the error of a card that has no room, or is another process's alone, who has it.
func occupied(c driver.Card, err error) error {
	var e *driver.Error
	if errors.As(err, &e) && (e.Code == driver.OutOfMemory || e.Code == driver.DeviceUnavailable) {
		if who := holders(c); who != "" {
			return fmt.Errorf("%w (%s)", err, who)
		}
	}
	return err
}

// list names cards.
func list(cards []driver.Card) string {
	names := make([]string, len(cards))
	for i, c := range cards {
		names[i] = fmt.Sprintf("cuda:%d (%s)", i, c.Name)
	}
	return strings.Join(names, ", ")
}
