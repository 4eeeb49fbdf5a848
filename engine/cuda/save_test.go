package cuda_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// States are copied to the host while the next update computes, and are those of the
// update after which the copy was asked for: what changes them waits, however late the
// copy is.
func TestStatesAreCopiedBehindUpdates(t *testing.T) {
	const n = 1 << 20 // 4 MiB: two pieces
	hold, began := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}
	ctx, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	on, err := cuda.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b := graph.NewBuilder("step")
	w := b.Param("w", graph.Const(1), n)
	b.Emit(graph.Assign{}, w, b.AddC(w, 1))
	x, err := engine.LoadForward(on, engine.CompileOptions{}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Initialize(1); err != nil {
		t.Fatal(err)
	}
	if err := x.Run("step", 0); err != nil {
		t.Fatal(err)
	}
	d.Hold = func() { once.Do(func() { close(began) }); <-hold }
	data := make([]byte, 4*n)
	wait, err := x.CopyStates([]string{"w"}, [][]byte{data})
	if err != nil {
		t.Fatal(err)
	}
	<-began // the copy hangs, and the next update comes
	ran := make(chan error)
	go func() {
		err := x.Run("step", 0)
		if err == nil {
			err = x.Sync()
		}
		ran <- err
	}()
	select {
	case err := <-ran:
		t.Errorf("an update changed the state under a copy (%v)", err)
		go func() { ran <- nil }()
	case <-time.After(300 * time.Millisecond): // it waits, or is slow: both are right
	}
	close(hold)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	all := func(what string, data []byte, want float32) {
		s := engine.Tensor{Name: "w", Type: graph.T(graph.F32, n), Data: data}
		if i := slices.IndexFunc(s.F32(), func(v float32) bool { return v != want }); i >= 0 {
			t.Errorf("%s: element %d is %g, want %g", what, i, s.F32()[i], want)
		}
	}
	all("the copy", data, 2)
	now, err := x.State("w")
	if err != nil {
		t.Fatal(err)
	}
	all("the state after the next update", now.Data, 3)

	// A lost card is reported to whoever waits, and to the next update.
	d.Fail = func(call string) driver.Code {
		if call == "cuMemcpyDtoHAsync" {
			return driver.IllegalAddress
		}
		return 0
	}
	if wait, err = x.CopyStates([]string{"w"}, [][]byte{data}); err != nil {
		t.Fatal(err)
	}
	if err := wait(); !cuda.Lost(err) {
		t.Errorf("the copy from a lost card: %v", err)
	}
	if err := x.Run("step", 0); !cuda.Lost(err) {
		t.Errorf("an update after it: %v", err)
	}
	d.Fail = nil
	_ = x.Close() // everything went with the card
}
