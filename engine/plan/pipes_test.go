package plan_test

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
)

// What a T4's kernels take follows from their counts, computed here by hand.
func TestPipesOfT4(t *testing.T) {
	card, err := device.Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	s := plan.CardSpeed(card, device.FP16)
	node := func(op graph.Op, types ...graph.Type) *graph.Node {
		b := graph.NewBuilder("f")
		var in []*graph.Value
		for _, typ := range types {
			in = append(in, b.Input(string(rune('a'+len(in))), typ))
		}
		return b.Emit(op, in...)[0].Node
	}
	near := func(what string, have, want float64) {
		if math.Abs(have-want) > .01*want {
			t.Errorf("%s: %g, want %g", what, have, want)
		}
	}
	f16 := func(dims ...int) graph.Type { return graph.T(graph.F16, dims...) }

	// 4096^3 at the specified 65 TFLOP/s on the tensor cores, and at 24 under 70 W.
	p := s.Pipes(node(graph.MatMul{}, f16(4096, 4096), f16(4096, 4096)))
	flops := 2.0 * 4096 * 4096 * 4096
	tiles := 32. * 32
	near("tensor cores", p.Tensor, flops/65e12*(26*40)/tiles) // 26 tiles are the most of a multiprocessor
	near("power", p.Power, flops/24e12)
	if p.Limit() != "power" || p.Total < p.Power || p.Counted != p.Total {
		t.Errorf("a large product is limited by %s: %+v", p.Limit(), p)
	}

	// Rows that 16-byte loads cannot read cost more than the roofline says.
	ragged := node(graph.MatMul{}, f16(4096, 50257), f16(50257, 1536))
	if q := s.Pipes(ragged); q.Total < 1.5*s.Seconds(ragged) || q.Limit() != "L2" {
		t.Errorf("ragged rows take %g s, limited by %s; the roofline says %g", q.Total, q.Limit(), s.Seconds(ragged))
	}

	// A loop over large operands is limited by memory.
	x := f16(1<<24, 1)
	if q := s.Pipes(node(graph.Elementwise{Fn: graph.FnAdd}, x, x)); q.Limit() != "memory" {
		t.Errorf("an addition is limited by %s: %+v", q.Limit(), q)
	} else {
		near("an addition", q.Total, 3*2*(1<<24)/s.Bandwidth+s.Launch)
	}

	// What was not counted is priced by the roofline, and marked so.
	sum := node(graph.ArgMax{}, graph.T(graph.F32, 64, 4096))
	if q := s.Pipes(sum); q.Counted != 0 || q.Total != s.Seconds(sum) {
		t.Errorf("an operation without counts: %+v, the roofline says %g", q, s.Seconds(sum))
	}
	other, err := device.Lookup("a100-80")
	if err != nil {
		t.Fatal(err)
	}
	if q := plan.CardSpeed(other, device.FP16).Pipes(ragged); q.Counted != 0 {
		t.Errorf("nothing was counted for an A100: %+v", q)
	}
}
