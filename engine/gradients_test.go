package engine_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// narrowSums is a training whose gradients are kept in 16 bits.
func narrowSums(rule engine.Rule, mode graph.RoundingMode, accumulation int) engine.Training {
	tr := formatted(rule, mode, accumulation)
	tr.Optimizer.Gradients = graph.BF16
	return tr
}

// Gradients of matrices are kept in float32 nowhere: neither their sums over micro-batches nor
// those that wait for the norm. Updates do not depend on the workers, allocate nothing, and use
// the planned memory; the random bits of sums depend on the seed.
func TestGradientsIn16Bits(t *testing.T) {
	for _, rule := range narrowRules {
		for _, mode := range modes {
			for _, accumulation := range []int{1, 2} {
				name := fmt.Sprintf("%s, rounding %d, %d micro-batches", rule, mode, accumulation)
				tr := narrowSums(rule, mode, accumulation)
				one, many := trained(t, tr, graph.BF16, 1, 3), trained(t, tr, graph.BF16, 3, 3)
				for _, f := range one.Program().Funcs {
					for _, n := range f.F.Nodes {
						if _, norm := n.Op.(graph.GlobalNorm); !norm || len(n.In) < 2 {
							continue
						}
						for _, v := range n.In {
							if len(v.Shape()) > 1 && v.DType() != graph.BF16 {
								t.Errorf("%s: the norm of %v reads %s in %v", name, f.Name, v.Label(), v.DType())
							}
						}
					}
				}
				tr.Optimizer.Round.Seed++
				other, differ := trained(t, tr, graph.BF16, 3, 3), false
				for _, s := range one.Program().States {
					a, _ := one.State(s.Name)
					b, _ := many.State(s.Name)
					c, _ := other.State(s.Name)
					if !bytes.Equal(a.Data, b.Data) {
						t.Errorf("%s: state %s differs with 3 workers", name, s.Name)
					}
					differ = differ || !bytes.Equal(a.Data, c.Data)
				}
				if random := mode == graph.Stochastic || accumulation > 1; differ != random {
					t.Errorf("%s: another seed gives other states: %v", name, differ)
				}
				if got, want := many.ArenaUsed(), many.Program().Layout.Bytes; got != want {
					t.Errorf("%s: %d bytes of the arena are used, the plan has %d", name, got, want)
				}
			}
		}
	}
}

// What is kept until the norm is known takes half the bytes.
func TestGradientsForTheNorm(t *testing.T) {
	temporaries := func(tr engine.Training) int64 {
		p, err := engine.CompileTraining(tr, engine.CompileOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		return p.Layout.Temps.Bytes
	}
	wide := func(gradients graph.DType) engine.Training {
		return engine.Training{
			Optimizer: engine.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, MaxGradNorm: 1, Gradients: gradients},
			Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
				h := b.Input("x", graph.T(graph.F32, 2, 512))
				for i := range 6 {
					h = b.Tanh(b.Linear(h, b.Param(fmt.Sprint("w", i), graph.Normal(.05), 512, 512), nil))
				}
				return engine.Objective{Sum: b.Sum(b.Mul(h, h), 0, 1)}
			},
		}
	}
	full, half := temporaries(wide(graph.F32)), temporaries(wide(graph.BF16))
	if want := full/2 + 512*512*4; half > want { // one gradient at a time is float32
		t.Errorf("temporaries take %d bytes, %d with gradients in float32: want %d at most", half, full, want)
	}
}

// summed adds up one gradient micro times in 16 bits, with noise of the given size, and
// returns the error relative to the exact sum, and by how much the sum is too large.
func summed(t *testing.T, micro int, noise float64, rounding graph.RoundingMode) (rms, bias float64) {
	const n = 1 << 13
	b := graph.NewBuilder("sum")
	s := b.State(&graph.State{Name: "s", Type: graph.T(graph.BF16, n), Role: graph.Gradient})
	x := b.Input("x", graph.T(graph.F32, n))
	if rounding == graph.Stochastic {
		b.AccumulateBF16(s, x, 3, graph.WeightStream("s"))
	} else {
		b.Accumulate(s, x)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if err := r.Initialize(1); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	mean, exact := make([]float64, n), make([]float64, n)
	for i := range mean {
		mean[i] = rng.NormFloat64()
	}
	in, _ := r.Input(0, "x")
	for m := range micro {
		if c, ok := r.Input(0, graph.RunCounter); ok {
			c.I32()[0] = int32(m)
		}
		for i := range mean {
			v := float32(mean[i] + noise*rng.NormFloat64())
			in.F32()[i] = v
			exact[i] += float64(v)
		}
		run(t, r, "sum")
	}
	got, _ := r.State("s")
	var square, size, along, of float64
	for i, v := range got.Float64s() {
		e := v - exact[i]
		square, size = square+e*e, size+exact[i]*exact[i]
		along, of = along+e*mean[i], of+mean[i]*mean[i]*float64(micro)
	}
	return math.Sqrt(square / size), along / of
}

// A sum of micro-batches in 16 bits with stochastic rounding is right on average, however many
// there are; rounded to nearest it is closer for a few, and stops growing after some hundred.
// For the figures in docs/memory.md: go test ./engine -run TestSumsIn16Bits -v.
func TestSumsIn16Bits(t *testing.T) {
	for _, noise := range []float64{0, 1, 10} {
		for _, micro := range []int{4, 16, 64, 256, 1024} {
			random, bias := summed(t, micro, noise, graph.Stochastic)
			nearest, off := summed(t, micro, noise, graph.Exact)
			t.Logf("%4d micro-batches, noise %2g: at random %.2f %% (bias %+.2f %%), to the nearest %.2f %% (bias %+.2f %%)", micro, noise, 100*random, 100*bias, 100*nearest, 100*off)
			// Each rounding is off by less than one unit, at most 2^-7 of the sum; they are
			// independent.
			if most := 0x1p-7 * math.Sqrt(float64(micro)); random > most/3 {
				t.Errorf("%d micro-batches, noise %g: sums are off by %.3g, want %.3g", micro, noise, random, most/3)
			}
			if most := 0x1p-7*(1+noise)*math.Sqrt(float64(micro)/(1<<13)) + 1e-4; math.Abs(bias) > most {
				t.Errorf("%d micro-batches, noise %g: sums are %.3g too large on average, want %.3g at most", micro, noise, bias, most)
			}
			if micro == 1024 && noise < 10 && off > -0.2 {
				t.Errorf("noise %g: rounded to the nearest, sums are %.3g of what they should be: the docs say that they stand still", noise, 1+off)
			}
		}
	}
}
