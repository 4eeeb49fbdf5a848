package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/float16"
)

// vectors is a program with a trained vector of each length.
func vectors(t rapid.TB, lengths []int) *engine.Program {
	t.Helper()
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: 2, Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			var sum *graph.Value
			for i, n := range lengths {
				w := b.Param(fmt.Sprint("w", i), graph.Zeros(), n)
				s := b.Sum(b.Mul(w, w), 0)
				if sum != nil {
					s = b.Add(sum, s)
				}
				sum = s
			}
			return engine.Objective{Sum: sum}
		},
	}, engine.CompileOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// exchanged are the sums of gradients, by micro-batch and vector, as every rank has them,
// and the bytes that all have sent.
func exchanged(t rapid.TB, p *engine.Program, world int, w wire, grads [][][]float32) (sums [][]float32, sent int64) {
	t.Helper()
	all := make([][][]float32, world)
	var total atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, world)
	for r, g := range dist.InProcess(world) {
		wait.Go(func() {
			all[r], errs[r] = exchangeOne(disttest.Counted{Group: g, Scattered: &total, Gathered: &total}, p, w, grads)
		})
	}
	wait.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
		if !slices.EqualFunc(all[r], all[0], sameBits) {
			t.Fatalf("rank %d has other sums than rank 0", r)
		}
	}
	return all[0], total.Load()
}

func exchangeOne(g dist.Group, p *engine.Program, w wire, grads [][][]float32) (sums [][]float32, err error) {
	defer func() { _ = g.Leave(err) }()
	x, err := p.Load(backend.CPU(1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = x.Close() }()
	e, err := newExchange(context.Background(), g, x, w, false, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.close(err) }()
	for m := 0; m < len(grads); m += g.World() {
		r := &round{context.Background(), m == 0, m+g.World() >= len(grads), min(g.World(), len(grads)-m)}
		if err := e.begin(r); err != nil {
			return nil, err
		}
		own := m + g.Rank()
		if own >= len(grads) {
			continue
		}
		for i, x := range grads[own] { // as a run would
			name := []string{fmt.Sprint("gradient.w", i)}
			if i == 0 {
				copy(e.open, e.sizes)
			}
			if err := e.begins(name); err != nil {
				return nil, err
			}
			if err := e.x.SetFloats(name[0], x); err != nil {
				return nil, err
			}
			if err := e.ends(name); err != nil {
				return nil, err
			}
		}
	}
	if err := e.wait(); err != nil {
		return nil, err
	}
	for i := range grads[0] {
		t, err := x.State(fmt.Sprint("gradient.w", i))
		if err != nil {
			return nil, err
		}
		sums = append(sums, slices.Clone(t.F32()))
	}
	return sums, nil
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// Sums have the bits of adding micro-batches one after the other, rounded as the format
// says, for any number of ranks; in bfloat16 they are within its rounding of float32's, and
// half the bytes are sent.
func TestExchangeDoesNotDependOnRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 4).Draw(t, "lengths")
		micro := rapid.IntRange(2, 7).Draw(t, "micro-batches")
		elem := rapid.Custom(func(t *rapid.T) float32 {
			return rapid.SampledFrom([]float32{1, 1e-30, 1e-42, 0, 3e30}).Draw(t, "scale") * rapid.Float32Range(-2, 2).Draw(t, "x")
		})
		some := rapid.SliceOfN(elem, 64, 64).Draw(t, "elements")
		shift := rapid.IntRange(1, 63).Draw(t, "shift")
		grads := make([][][]float32, micro)
		for m := range grads {
			for _, n := range lengths {
				x := make([]float32, n)
				for i := range x {
					x[i] = some[(i*shift+m*17)%len(some)]
				}
				grads[m] = append(grads[m], x)
			}
		}
		worlds := rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 2, 3, rapid.ID[int]).Draw(t, "ranks")
		p := vectors(t, lengths)
		for _, w := range []wire{wireOf(graph.F32), wireOf(graph.BF16)} {
			for _, world := range worlds {
				sums, _ := exchanged(t, p, world, w, grads)
				for v, sum := range sums {
					for i, got := range sum {
						want, exact, size := defined(w, grads, v, i)
						if math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("%d ranks: element %d of vector %d is %v, want %v", world, i, v, got, want)
						}
						// Each gradient and the sum are rounded with an error of at most 2^-8.
						if most := size*(0x1p-8*(2+0x1p-8)+float64(micro)*0x1p-24) + 0x1p-133*float64(micro+1); math.Abs(float64(got)-exact) > most {
							t.Fatalf("%d ranks: element %d of vector %d is %v, exactly %v: farther than %v", world, i, v, got, exact, most)
						}
					}
				}
			}
		}
	})
}

// defined is the definition of element i of a sum, what it is without rounding, and the sum
// of magnitudes.
func defined(w wire, grads [][][]float32, v, i int) (sum float32, exact, size float64) {
	round := func(x float32) float32 { return x }
	if w == wire(graph.BF16) {
		round = func(x float32) float32 { return float16.FromBF16(float16.ToBF16(x)) }
	}
	for m := range grads {
		x := grads[m][v][i]
		exact += float64(x)
		size += math.Abs(float64(x))
		if m == 0 {
			sum = round(x)
		} else {
			sum += round(x)
		}
	}
	return round(sum), exact, size
}

// In bfloat16 half the bytes are sent, from less memory.
func TestExchangeInHalfTheBytes(t *testing.T) {
	p := vectors(t, []int{5000, 77, 3})
	grads := make([][][]float32, 4)
	for m := range grads {
		grads[m] = [][]float32{make([]float32, 5000), make([]float32, 77), make([]float32, 3)}
	}
	for _, world := range []int{2, 3} {
		_, full := exchanged(t, p, world, wireOf(graph.F32), grads)
		_, half := exchanged(t, p, world, wireOf(graph.BF16), grads)
		// Each micro-batch goes to the owners of shards, the sums of these to everybody.
		if want := 4 * 5080 * int64(world-1) * int64(4+world) / int64(world); full < want-64*int64(world) || full > want+64*int64(world) {
			t.Errorf("%d ranks send %d bytes, want about %d", world, full, want)
		}
		asked := int64(world * (world - 1) * ((4 - 1) / world)) // after all rounds but the last: whether to stop
		if 2*(half-asked) != full-asked {
			t.Errorf("%d ranks send %d bytes in bf16, %d in fp32", world, half, full)
		}
		if a, b := ExchangeBytes(p, world, graph.BF16, false), ExchangeBytes(p, world, graph.F32, false); a >= b {
			t.Errorf("%d ranks need %d bytes in bf16, %d in fp32", world, a, b)
		}
	}
}
