package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/isa"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// worker returns a scratch, 64-byte aligned, filled with NaN and followed by canaries.
func worker(n int) (data, after []byte) {
	all := make([]byte, n+64+128)
	at := int(-uintptr(unsafe.Pointer(&all[0])) & 63)
	for i := range all {
		all[i] = 0xff
	}
	return all[at : at+n : at+n], all[at+n:]
}

// run does both passes, tasks in random order.
func (p *problem) run(t tester, plan *Plan, rng *rand.Rand) {
	t.Helper()
	for _, pass := range []struct {
		tasks, bytes int
		run          func(int, *Args, []byte)
	}{{plan.ForwardTasks(), plan.ForwardBytes(), plan.Forward}, {plan.BackwardTasks(), plan.BackwardBytes(), plan.Backward}} {
		scratch, after := worker(pass.bytes)
		for _, task := range rng.Perm(pass.tasks) {
			pass.run(task, &p.args, scratch)
		}
		for _, v := range after {
			if v != 0xff {
				t.Fatalf("the scratch of %d bytes was overrun", pass.bytes)
			}
		}
	}
	for i, f := range p.mem {
		if !f.intact() {
			t.Fatalf("operand %d: bytes between its rows were written", i)
		}
	}
}

// check compares with the reference. The tolerance is relative to the largest
// element, or 1; unit is the rounding of operands and results, of which up to
// max(Tq, Tk) random ones add up.
func (p *problem) check(t tester, unit float64) {
	t.Helper()
	p.solve(true)
	unit *= 8 + 2*math.Sqrt(float64(max(p.Tq, p.Tk)))
	for i, want := range p.wantLSE {
		got := float64(p.args.LSE[i])
		if got != want && !(math.Abs(got-want) <= unit*(1+math.Abs(want))) {
			t.Fatalf("LSE[%d] = %v, want %v", i, got, want)
		}
	}
	for _, r := range []struct {
		name string
		got  []float64
		want []float64
	}{{"O", p.o.values(), p.wantO}, {"dQ", p.dq.values(), p.wantDQ}, {"dK", p.dk.values(), p.wantDK}, {"dV", p.dv.values(), p.wantDV}} {
		top := 1.0
		for _, v := range r.want {
			top = max(top, math.Abs(v))
		}
		for i, want := range r.want {
			if !(math.Abs(r.got[i]-want) <= unit*top) {
				t.Fatalf("%s[%d] = %v, want %v (largest %v)", r.name, i, r.got[i], want, top)
			}
		}
	}
}

// unitOf is the rounding of the least precise type, with room for delta: its
// error is that of O times elements of dO and K, which dropout makes larger.
func unitOf(c Config, out gemm.DType) float64 {
	switch {
	case c.Compute == gemm.BF16 || c.Type == gemm.BF16 || out == gemm.BF16:
		return 0x1p-6
	case out == gemm.F16:
		return 0x1p-9
	}
	return 0x1p-20
}

func TestProperty(t *testing.T) {
	for _, level := range isa.Levels() {
		t.Run(level.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				types := rapid.SampledFrom([]gemm.DType{gemm.F32, gemm.F32, gemm.BF16, gemm.F16})
				length := rapid.OneOf(rapid.IntRange(1, 4), rapid.IntRange(1, 20), rapid.IntRange(1, 130), rapid.Map(rapid.IntRange(2, 32), func(quads int) int { return 4 * quads }))
				c := Config{
					Batch: rapid.IntRange(1, 2).Draw(t, "batch"), Heads: rapid.IntRange(1, 3).Draw(t, "heads"),
					Tq: length.Draw(t, "Tq"), Tk: length.Draw(t, "Tk"),
					Size:   rapid.SampledFrom([]int{1, 3, 16, 17, 32, 37, 64}).Draw(t, "size"),
					Causal: rapid.Bool().Draw(t, "causal"), Type: types.Draw(t, "type"),
					Compute: rapid.SampledFrom([]gemm.DType{gemm.F32, gemm.F32, gemm.BF16}).Draw(t, "compute"),
					ISA:     level, Workers: rapid.IntRange(1, 16).Draw(t, "workers"),
				}
				c.KVHeads = c.Heads
				c.Heads *= rapid.IntRange(1, 4).Draw(t, "group")
				c.Scale = float32(1 / math.Sqrt(float64(c.Size)))
				out := types.Draw(t, "out")
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				p := newProblem(c, out, rapid.IntRange(0, 3).Draw(t, "gap"), maskKind{
					lengths:  rapid.Bool().Draw(t, "lengths"),
					segments: rapid.Bool().Draw(t, "segments"),
					dropout:  rapid.Bool().Draw(t, "dropout"),
				}, rng)
				p.run(t, NewPlan(c), rng)
				p.check(t, unitOf(c, out))
			})
		})
	}
}

// TestBlocks covers several chunks of queries and blocks of keys.
func TestBlocks(t *testing.T) {
	for _, level := range isa.Levels() {
		for _, c := range []Config{
			{Tq: 500, Tk: 500, Size: 64, Causal: true},
			{Tq: 130, Tk: 700, Size: 128, Causal: true},
			{Tq: 410, Tk: 300, Size: 40},
			{Tq: 20, Tk: 270, Size: 256},
			{Tq: 300, Tk: 120, Size: 16, Causal: true},
			{Tq: 3, Tk: 600, Size: 64, Causal: true},
		} {
			for _, m := range []maskKind{{}, {lengths: true, segments: true, dropout: true}} {
				t.Run(fmt.Sprintf("%v/%dx%dx%d/%v", level, c.Tq, c.Tk, c.Size, m.lengths), func(t *testing.T) {
					c.Batch, c.Heads, c.ISA, c.Scale = 1, 1, level, float32(1/math.Sqrt(float64(c.Size)))
					rng := rand.New(rand.NewPCG(1, 2))
					p := newProblem(c, gemm.F32, 0, m, rng)
					p.run(t, NewPlan(c), rng)
					p.check(t, unitOf(c, gemm.F32))
				})
			}
		}
	}
}

// TestFiniteDifferences compares the reference's gradients, and so the engine's,
// with central differences of the loss.
func TestFiniteDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	c := Config{Batch: 1, Heads: 2, Tq: 7, Tk: 9, Size: 5, Causal: true, Scale: 0.6}
	p := newProblem(c, gemm.F32, 1, maskKind{lengths: true, segments: true, dropout: true}, rng)
	p.args.KeyLengths[0] = 8
	p.run(t, NewPlan(c), rng)
	for _, g := range []struct {
		name string
		x    []float64
		got  []float64
	}{{"dQ", p.q, p.dq.values()}, {"dK", p.k, p.dk.values()}, {"dV", p.v, p.dv.values()}} {
		for i := range g.x {
			const h = 1e-5
			at := g.x[i]
			g.x[i] = at + h
			up := p.loss()
			g.x[i] = at - h
			down := p.loss()
			g.x[i] = at
			want := (up - down) / (2 * h)
			if math.Abs(g.got[i]-want) > 2e-5*(1+math.Abs(want)) {
				t.Fatalf("%s[%d] = %v, differences give %v", g.name, i, g.got[i], want)
			}
		}
	}
}

// TestMaskedRows gives zeros and -Inf where no key is seen.
func TestMaskedRows(t *testing.T) {
	for _, level := range isa.Levels() {
		rng := rand.New(rand.NewPCG(13, 14))
		c := Config{Batch: 2, Heads: 2, Tq: 50, Tk: 40, Size: 24, Scale: 1, ISA: level}
		p := newProblem(c, gemm.F32, 0, maskKind{lengths: true}, rng)
		p.args.KeyLengths = []int32{0, 40}
		p.run(t, NewPlan(c), rng)
		p.check(t, unitOf(c, gemm.F32))
		half := len(p.wantO) / 2
		for i, v := range slices.Concat(p.o.values()[:half], p.dq.values()[:half]) {
			if v != 0 {
				t.Fatalf("%v: element %d of a masked row is %v, not 0", level, i, v)
			}
		}
		for i, v := range p.args.LSE[:c.Heads*c.Tq] {
			if !math.IsInf(float64(v), -1) {
				t.Fatalf("%v: LSE[%d] of a masked row is %v, not -Inf", level, i, v)
			}
		}
	}
}

// TestDeterministic shows that results do not depend on the number of workers
// the plan was made for.
func TestDeterministic(t *testing.T) {
	for _, level := range isa.Levels() {
		var want [][]byte
		for _, workers := range []int{1, 2, 7, 64} {
			rng := rand.New(rand.NewPCG(15, 16))
			c := Config{Batch: 1, Heads: 2, Tq: 400, Tk: 400, Size: 32, Scale: 0.2, Causal: true, ISA: level, Workers: workers}
			p := newProblem(c, gemm.F32, 0, maskKind{}, rng)
			p.run(t, NewPlan(c), rng)
			got := [][]byte{p.o.all, p.dq.all, p.dk.all, p.dv.all}
			if want == nil {
				want = got
			}
			for i := range got {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%v: result %d differs with %d workers", level, i, workers)
				}
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for _, level := range isa.Levels() {
		for _, typ := range []gemm.DType{gemm.F32, gemm.BF16, gemm.F16} {
			rng := rand.New(rand.NewPCG(17, 18))
			c := Config{Batch: 1, Heads: 1, Tq: 40, Tk: 40, Size: 20, Scale: 0.2, Causal: true, ISA: level, Type: typ}
			p := newProblem(c, typ, 0, maskKind{lengths: true, segments: true, dropout: true}, rng)
			plan := NewPlan(c)
			fwd, _ := worker(plan.ForwardBytes())
			bwd, _ := worker(plan.BackwardBytes())
			if n := testing.AllocsPerRun(3, func() {
				plan.Forward(0, &p.args, fwd)
				plan.Backward(0, &p.args, bwd)
			}); n != 0 {
				t.Errorf("%v %v: %v allocations", level, typ, n)
			}
		}
	}
}
