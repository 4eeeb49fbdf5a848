package cuda_test

import (
	"errors"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// The time of a node that is observed is the card's, without what the host needs for a launch and for waiting.
func TestNodesAreTimedByTheCard(t *testing.T) {
	on := openOn(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}, 0)
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, loopAndProduct())
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.Load(on)
	if err != nil {
		t.Fatal(err)
	}
	const runs = 3
	var took []time.Duration
	for range runs {
		x.Observe(&engine.Observer{After: func(_ *graph.Node, t time.Duration) bool {
			took = append(took, t)
			return true
		}})
		if err := errors.Join(x.Run("f", 0), x.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	// A simulated card takes 1 us for a loop and 10 us for any other kernel.
	n := len(took) / runs
	if n == 0 || len(took) != n*runs {
		t.Fatalf("%d runs: %v", runs, took)
	}
	for i, d := range took {
		if d != took[i%n] || d < time.Microsecond || d%time.Microsecond != 0 {
			t.Errorf("node %d of %d took %v, at first %v", i%n, n, d, took[i%n])
		}
	}
	if err := x.Close(); err != nil { // the card says at its end whether an event is left
		t.Error(err)
	}
}
