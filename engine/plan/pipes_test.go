package plan_test

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// node returns an operation on inputs.
func node(op graph.Op, types ...graph.Type) *graph.Node {
	b := graph.NewBuilder("f")
	var in []*graph.Value
	for _, typ := range types {
		in = append(in, b.Input(string(rune('a'+len(in))), typ))
	}
	return b.Emit(op, in...)[0].Node
}

func near(t *testing.T, what string, have, want float64) {
	t.Helper()
	if math.Abs(have-want) > .01*want {
		t.Errorf("%s: %g, want %g", what, have, want)
	}
}

// TestPipesOfT4: the time of a T4's kernels follows from their counts, computed here by hand.
func TestPipesOfT4(t *testing.T) {
	s := onCard(t, "T4").Speed(device.FP16)
	f16 := func(dims ...int) graph.Type { return graph.T(graph.F16, dims...) }

	// 4096^3 at the specified 65 TFLOP/s on the tensor cores, and at 24 under 70 W.
	p := s.Pipes(node(graph.MatMul{}, f16(4096, 4096), f16(4096, 4096)))
	flops := 2.0 * 4096 * 4096 * 4096
	tiles := 32. * 32
	near(t, "tensor cores", p.Tensor, flops/65e12*(26*40)/tiles) // a multiprocessor has at most 26 tiles
	near(t, "power", p.Power, flops/24e12)
	if p.Limit() != "power" || p.Total < p.Power || p.Counted != p.Total || p.Launches != 1 {
		t.Errorf("a large product is limited by %s: %+v", p.Limit(), p)
	}

	// Rows that 16-byte loads cannot read cost more than rows that they can.
	ragged := s.Pipes(node(graph.MatMul{}, f16(4096, 50257), f16(50257, 1536)))
	if whole := s.Pipes(node(graph.MatMul{}, f16(4096, 50264), f16(50264, 1536))); ragged.Total < 1.5*whole.Total || ragged.Limit() == "power" {
		t.Errorf("ragged rows take %g s, limited by %s; whole ones %g", ragged.Total, ragged.Limit(), whole.Total)
	}

	// A loop over large operands is limited by memory.
	x := f16(1<<24, 1)
	if q := s.Pipes(node(graph.Elementwise{Fn: graph.FnAdd}, x, x)); q.Limit() != "memory" {
		t.Errorf("an addition is limited by %s: %+v", q.Limit(), q)
	} else {
		near(t, "an addition", q.Total, 3*2*(1<<24)/s.Bandwidth+s.Launch)
	}

	// The gradient of parameters takes several kernels.
	norm := s.Pipes(node(graph.LayerNormGrad{Eps: 1e-5}, f16(8192, 768), f16(8192, 768), graph.T(graph.F32, 768), graph.T(graph.F32, 8192), graph.T(graph.F32, 8192)))
	if norm.Launches != 2 { // rows with the sums of columns in parts, and the sums of these parts
		t.Errorf("the gradient of a norm is %g kernels, want 2", norm.Launches)
	}
}

// TestLatency: a few blocks do not hide their latencies. The time of one block is the time that it takes
// alone.
func TestLatency(t *testing.T) {
	s := onCard(t, "T4").Speed(device.FP16)
	step, _ := counts.Of("gemm_128_nn_f16 step")
	tile, _ := counts.Of("gemm_128_nn_f16 tile")
	of := func(blocks int) float64 {
		l := &engine.Kernel{Name: "gemm_128_nn_f16", Blocks: blocks, Threads: 128, Bytes: 1, Work: counts.Launched("gemm_128_nn_f16", []counts.Units{
			{Of: "gemm_128_nn_f16 step", N: float64(100 * blocks)}, {Of: "gemm_128_nn_f16 tile", N: float64(blocks)},
		})}
		return s.Launched(l).Total - s.Launch
	}
	first, _ := counts.Of(counts.Blocks("gemm_128_nn_f16"))
	near(t, "one block", of(1), (100*step.Alone+tile.Alone+first.Alone)/s.Kernels.Clock)
	r, ok := counts.Needs("gemm_128_nn_f16")
	if !ok {
		t.Fatal("what the kernel takes is not known")
	}
	resident, _ := r.Blocks()
	if resident != 2 {
		t.Errorf("a multiprocessor holds %d blocks of the kernel, want 2", resident)
	}
	// One block on each multiprocessor takes as long as a single block. Several take the time of the pipe,
	// and twice as many take twice as long.
	sms := s.Kernels.SMs
	near(t, "a block for each multiprocessor", of(sms), of(1))
	near(t, "more rounds", of(8*sms*resident), 2*of(4*sms*resident))
	if one, two := of(sms), of(sms*resident); two > 1.9*one {
		t.Errorf("two blocks on a multiprocessor take %g s, one %g: they hide nothing", two, one)
	}
}

// TestUncounted: cards without counts use the roofline.
func TestUncounted(t *testing.T) {
	n := node(graph.MatMul{}, graph.T(graph.F16, 4096, 4096), graph.T(graph.F16, 4096, 4096))
	s := onCard(t, "a100-80").Speed(device.FP16)
	if q := s.Pipes(n); q.Counted != 0 || q.Total != s.Seconds(n) || q.Total <= 0 {
		t.Errorf("nothing was counted for an A100: %+v, the roofline says %g", q, s.Seconds(n))
	}
}
