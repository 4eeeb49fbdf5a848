package train

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Update is the data of one optimizer update.
type Update struct {
	// Micro is the number of micro-batches, Weight the total weight of their losses,
	// Tokens their size in the unit of the data (tokens, examples).
	Micro  int
	Weight float64
	Tokens int64
	// Variants are the compiled shapes of the micro-batches, if a program has several;
	// nil if it has one.
	Variants []string
	// Fill writes micro-batch m into the program's input buffers, until the loader's next update.
	Fill func(m int, in Inputs) error
}

// Variant returns the compiled shape of micro-batch m.
func (u *Update) Variant(m int) string {
	if u.Variants == nil {
		return ""
	}
	return u.Variants[m]
}

// DataLoader is a stream of updates that can continue where it stopped.
type DataLoader interface {
	// Next returns the next update, or io.EOF.
	Next() (Update, error)
	// Position returns the position after the update that Next returned last.
	Position() any
	// Seek continues from a position (as JSON).
	Seek(position json.RawMessage) error
	Close()
}

// Inputs are the input buffers of one slot of a loaded program.
type Inputs struct {
	Runner *engine.Executable
	Slot   int
	Eval   bool // those of "eval", if it has its own
}

// F32 returns the buffer of the F32 input name.
func (in Inputs) F32(name string) ([]float32, error) {
	t, err := in.tensor(name, graph.F32)
	if err != nil {
		return nil, err
	}
	return t.F32(), nil
}

// I32 returns the buffer of the I32 input name.
func (in Inputs) I32(name string) ([]int32, error) {
	t, err := in.tensor(name, graph.I32)
	if err != nil {
		return nil, err
	}
	return t.I32(), nil
}

func (in Inputs) find(name string) (engine.Tensor, bool) {
	if in.Eval {
		if t, ok := in.Runner.Input(in.Slot, engine.EvalInput(name)); ok {
			return t, true
		}
	}
	return in.Runner.Input(in.Slot, name)
}

func (in Inputs) tensor(name string, d graph.DType) (engine.Tensor, error) {
	t, ok := in.find(name)
	if !ok {
		return t, fmt.Errorf("the program has no input %q", name)
	}
	if t.Type.DType != d {
		return t, fmt.Errorf("input %q holds %v, not %v", name, t.Type.DType, d)
	}
	return t, nil
}

// Has reports whether the program has the input name.
func (in Inputs) Has(name string) bool {
	_, ok := in.Runner.Input(in.Slot, name)
	return ok
}

// filled is a micro-batch in a slot, ready to run.
type filled struct {
	slot   int // -1: another process computes it
	update *Update
	micro  int
	after  any // position of the loader after the update
	err    error
}

// variant returns the compiled shape of the micro-batch.
func (b *filled) variant() string { return b.update.Variant(b.micro) }

// filler writes the micro-batches of this process into the program's input slots ahead of
// the computation, with one goroutine per run.
type filler struct {
	free  chan int
	ready chan filled
	done  chan struct{}
	stop  chan struct{}
	once  sync.Once // of closing stop
}

func startFiller(r *engine.Executable, loader DataLoader, updates int64, t turns) *filler {
	f := &filler{free: make(chan int, engine.Slots), ready: make(chan filled, engine.Slots), done: make(chan struct{}), stop: make(chan struct{})}
	for s := 1; s < engine.Slots; s++ { // the host holds slot 0
		f.free <- s
	}
	go func() {
		defer close(f.done)
		defer close(f.ready)
		// At most three updates are in flight: the one being computed, the one being
		// filled, and the one that waits for a slot.
		var ring [3]Update
		for n := range updates {
			u := &ring[n%3]
			var err error
			if *u, err = loader.Next(); err != nil {
				f.send(filled{err: err})
				return
			}
			after := loader.Position()
			for m := 0; m >= 0; m = t.next(m, u.Micro) {
				// A rank without a micro-batch still needs inputs for the update.
				if !t.has(m) && !(m == 0 && t.idle(u.Micro)) {
					if !f.send(filled{slot: -1, update: u, micro: m, after: after}) {
						return
					}
					continue
				}
				var slot int
				select {
				case slot = <-f.free:
				case <-f.stop:
					return
				}
				err := u.Fill(m, Inputs{Runner: r, Slot: slot})
				if !f.send(filled{slot, u, m, after, err}) || err != nil {
					return
				}
			}
		}
	}()
	return f
}

func (f *filler) send(b filled) bool {
	select {
	case f.ready <- b:
		return true
	case <-f.stop:
		return false
	}
}

// close ends the goroutine and waits for it; a second call does nothing.
func (f *filler) close() {
	f.once.Do(func() { close(f.stop) })
	<-f.done
}
