package cuda_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// States are copied to the host while the next update computes, and are those of the update after which the
// guard was set: launches that change them ask it first, however late the copy is.
func TestStatesAreReadBehindUpdates(t *testing.T) {
	const n = 1<<20 + 5 // more than four pieces
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
	peeked := make(chan error, 1)
	asked := make(chan []string, 9)
	x.Guard(func(states []string) error {
		asked <- states
		err := <-peeked
		peeked <- err
		return err
	})
	d.Hold = func() { once.Do(func() { close(began) }); <-hold }
	data := make([]byte, 4*n)
	go func() { peeked <- x.Peek("w", 0, data) }()
	<-began // the copy hangs, and the next update comes
	ran := make(chan error, 1)
	go func() {
		err := x.Run("step", 0)
		if err == nil {
			err = x.Sync()
		}
		ran <- err
	}()
	if states := <-asked; !slices.Equal(states, []string{"w"}) {
		t.Errorf("the guard was asked for %v", states)
	}
	select {
	case err := <-ran:
		t.Errorf("an update changed the state under a copy (%v)", err)
		ran <- nil
	default:
	}
	close(hold)
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
	x.Guard(nil)
	now, err := x.State("w")
	if err != nil {
		t.Fatal(err)
	}
	all("the state after the next update", now.Data, 3)

	// A lost card is reported to whoever peeks, and to the next update.
	d.Fail = func(call string) driver.Code {
		if call == "cuMemcpyDtoHAsync" {
			return driver.IllegalAddress
		}
		return 0
	}
	if err := x.Peek("w", 4, data[:8]); !cuda.Lost(err) {
		t.Errorf("the copy from a lost card: %v", err)
	}
	if err := x.Run("step", 0); !cuda.Lost(err) {
		t.Errorf("an update after it: %v", err)
	}
	d.Fail = nil
	_ = x.Close() // everything went with the card
}

// A large state is copied in pieces: the next is under way while the host handles the one before. Goroutines
// that copy at the same time each get their own data.
func TestPiecesCrossTwoAtATime(t *testing.T) {
	const n = 1<<20 + 5 // a little more than four pieces
	var mu sync.Mutex
	var calls []string
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call)
		return 0
	}}
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
	want := make([]float32, n)
	for i := range want {
		want[i] = float32(i % 1013)
	}
	s := engine.Tensor{Name: "w", Type: graph.T(graph.F32, n), Data: make([]byte, 4*n)}
	copy(s.F32(), want)
	if err := x.SetState(s); err != nil {
		t.Fatal(err)
	}
	x.Guard(func([]string) error { return nil })
	calls = nil
	data := engine.Tensor{Name: "w", Type: s.Type, Data: make([]byte, 4*n)}
	if err := x.Peek("w", 0, data.Data); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(data.F32(), want) {
		t.Error("the copy differs")
	}
	under, most, pieces := 0, 0, 0
	for _, call := range calls {
		switch call {
		case "cuMemcpyDtoHAsync":
			pieces++
			under++
		case "cuEventSynchronize":
			under--
		}
		most = max(most, under)
	}
	if pieces != 5 || most != 2 || under != 0 {
		t.Errorf("%d pieces, at most %d on their way: %v", pieces, most, calls)
	}
	var all sync.WaitGroup
	for k := range 6 {
		all.Go(func() {
			from := k * 1000
			part := make([]byte, 4*(n-from))
			if err := x.Peek("w", int64(4*from), part); err != nil {
				t.Error(err)
			}
			p := engine.Tensor{Type: graph.T(graph.F32, n-from), Data: part}
			if !slices.Equal(p.F32(), want[from:]) {
				t.Errorf("the copy from %d on differs", from)
			}
		})
	}
	all.Wait()
	x.Guard(nil)
	if err := errors.Join(x.Close(), ctx.Close(), d.Left()); err != nil {
		t.Error(err)
	}
}
