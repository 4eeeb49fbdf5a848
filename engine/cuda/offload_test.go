package cuda_test

import (
	"fmt"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// States and activations in the host's memory, copied while the card computes, give the same bits as if they
// were on the card, however early or late the graph lets copies happen. Everything is freed.
func TestOffload(t *testing.T) {
	check := func(d driver.Driver, few bool) error {
		ctx, err := d.Open(max(*number, 0))
		if err != nil {
			return err
		}
		on, err := cuda.New(ctx)
		if err != nil {
			return err
		}
		for i, o := range conformance.Offloadable() {
			if few && o.Round.Mode != graph.RoundingMode(i/3) {
				continue
			}
			for _, accumulation := range []int{1, 2} {
				if err := conformance.Offload(on, o, accumulation); err != nil {
					return fmt.Errorf("%s, rounding %d, accumulation %d: %w", o.Rule, o.Round.Mode, accumulation, err)
				}
			}
		}
		for accumulation, low := range map[int]graph.DType{1: graph.F16, 2: graph.F32} {
			if err := conformance.OffloadActivations(on, accumulation, low, accumulation == 1); err != nil {
				return fmt.Errorf("activations, %v, accumulation %d: %w", low, accumulation, err)
			}
		}
		return ctx.Close()
	}
	if *number >= 0 {
		if err := check(installed(t), false); err != nil {
			t.Error(err)
		}
		return
	}
	for _, early := range []bool{false, true} {
		d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Early: early, Options: ptxsim.Options{Checks: ptxsim.CheckAll}}
		if err := check(d, early || testing.Short()); err != nil {
			t.Errorf("early %v: %v", early, err)
		}
		if err := d.Left(); err != nil {
			t.Errorf("early %v: %v", early, err)
		}
	}
}
