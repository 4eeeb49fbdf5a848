package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
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
func vectors(t rapid.TB, micro int, lengths []int) *engine.Program {
	t.Helper()
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: micro, Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8},
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

// exchanged returns the sums of gradients, by micro-batch and vector, as every rank has
// them, and the bytes that all ranks sent.
func exchanged(t rapid.TB, p *engine.Program, world int, w wire, how Sums, grads [][][]float32) (sums [][]float32, sent int64) {
	t.Helper()
	all := make([][][]float32, world)
	var total atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, world)
	for r, g := range dist.InProcess(world) {
		wait.Go(func() {
			all[r], errs[r] = exchangeOne(disttest.Counted{Group: g, Scattered: &total, Gathered: &total}, p, w, how, grads)
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

func exchangeOne(g dist.Group, p *engine.Program, w wire, how Sums, grads [][][]float32) (sums [][]float32, err error) {
	defer func() { _ = g.Leave(err) }()
	x, err := p.Load(backend.CPU(1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = x.Close() }()
	e, err := newExchange(context.Background(), g, x, w, how, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.close(err) }()
	if took, planned := int64(len(e.route.(*viaHost).memory)), ExchangeBytes(p, g.World(), graph.DType(w), how); took > planned || g.Rank() == 0 && took != planned {
		return nil, fmt.Errorf("it takes %d bytes, %d are planned", took, planned)
	}
	for m := 0; m >= 0; m = e.turns.next(m, len(grads)) {
		if e.turns.begins(m) {
			if err := e.begin(e.round(context.Background(), m, len(grads))); err != nil {
				return nil, err
			}
		}
		if !e.turns.has(m) {
			continue
		}
		for i, x := range grads[m] { // like a run
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

// someGradients returns gradients of micro-batches, by vector.
func someGradients(t *rapid.T, micro int, lengths []int) [][][]float32 {
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
	return grads
}

// Sums have the same bits as adding micro-batches one after the other, rounded as the
// format says, for any number of ranks; in bfloat16 they are within its rounding of
// float32's, and half the bytes are sent.
func TestExchangeDoesNotDependOnRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 4).Draw(t, "lengths")
		micro := rapid.IntRange(2, 7).Draw(t, "micro-batches")
		grads := someGradients(t, micro, lengths)
		worlds := rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 2, 3, rapid.ID[int]).Draw(t, "ranks")
		p := vectors(t, micro, lengths)
		for _, w := range []wire{wireOf(graph.F32), wireOf(graph.BF16)} {
			for _, world := range worlds {
				sums, _ := exchanged(t, p, world, w, Ordered, grads)
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

// defined returns element i of a sum by its definition, its value without rounding, and the
// sum of magnitudes.
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

// As a tree, sums have the same bits as adding up halves of halves for every power of two of
// ranks, even if an update has fewer micro-batches than it may.
func TestTreeDoesNotDependOnRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(1, 3000), 1, 3).Draw(t, "lengths")
		most := rapid.SampledFrom([]int{2, 3, 4, 6, 7, 8, 12, 16}).Draw(t, "most micro-batches")
		micro := rapid.IntRange(1, most).Draw(t, "micro-batches")
		grads := someGradients(t, micro, lengths)
		p := vectors(t, most, lengths)
		var sum func(v, i, from, to int) (x float32, some bool)
		sum = func(v, i, from, to int) (x float32, some bool) {
			if from >= micro {
				return 0, false
			}
			if to-from == 1 {
				return grads[from][v][i], true
			}
			half := (from + to + 1) / 2
			x, _ = sum(v, i, from, half)
			if y, some := sum(v, i, half, to); some {
				x += y
			}
			return x, true
		}
		for world := 1; most%world == 0 && world <= 8; world *= 2 {
			if err := Tree.Shareable(most, world); err != nil {
				t.Fatal(err)
			}
			sums, _ := exchanged(t, p, world, wireOf(graph.F32), Tree, grads)
			for v := range sums {
				for i, got := range sums[v] {
					if want, _ := sum(v, i, 0, most); math.Float32bits(got) != math.Float32bits(want) {
						t.Fatalf("%d ranks, %d of %d micro-batches: element %d of vector %d is %v, want %v", world, micro, most, i, v, got, want)
					}
				}
			}
		}
	})
}

// As many sums wait as a tree has levels.
func TestLevels(t *testing.T) {
	for block, want := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 8: 3, 16: 4, 64: 6, 100: 6} {
		if got := levels(block); got != want {
			t.Errorf("%d sums of %d micro-batches wait, want %d", got, block, want)
		}
	}
}

// Updates that a number of ranks cannot add up are refused.
func TestShareable(t *testing.T) {
	for _, x := range []struct {
		how                 Sums
		accumulation, world int
		want                string
	}{
		{Ordered, 2, 2, ""},
		{Ordered, 5, 3, ""},
		{Fast, 5, 3, ""},
		{Ordered, 2, 60, "set training.gradient_accumulation_steps to 60 or a multiple of it, or start at most 2 processes"},
		{Fast, 1, 1, "set training.gradient_accumulation_steps to 2 or a multiple of it"},
		{Tree, 12, 4, ""},
		{Tree, 7, 1, ""},
		{Tree, 12, 3, "want 1, 2, 4, 8, ... processes"},
		{Tree, 6, 4, "want 1, 2, 4, 8, ... processes"},
		{Tree, 1, 1, "set training.gradient_accumulation_steps to 2"},
	} {
		if err := x.how.Shareable(x.accumulation, x.world); fmt.Sprint(err) == "<nil>" != (x.want == "") || x.want != "" && !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: %v", x, err)
		}
	}
}

// In bfloat16 half the bytes are sent, from less memory.
func TestExchangeInHalfTheBytes(t *testing.T) {
	p := vectors(t, 4, []int{5000, 77, 3})
	grads := make([][][]float32, 4)
	for m := range grads {
		grads[m] = [][]float32{make([]float32, 5000), make([]float32, 77), make([]float32, 3)}
	}
	for _, world := range []int{2, 3} {
		_, full := exchanged(t, p, world, wireOf(graph.F32), Ordered, grads)
		_, half := exchanged(t, p, world, wireOf(graph.BF16), Ordered, grads)
		// Each micro-batch goes to the owners of shards, their sums to every rank.
		if want := 4 * 5080 * int64(world-1) * int64(4+world) / int64(world); full < want-64*int64(world) || full > want+64*int64(world) {
			t.Errorf("%d ranks send %d bytes, want about %d", world, full, want)
		}
		asked := int64(world * (world - 1) * ((4 - 1) / world)) // after all rounds but the last: whether to stop
		if 2*(half-asked) != full-asked {
			t.Errorf("%d ranks send %d bytes in bf16, %d in fp32", world, half, full)
		}
		if a, b := ExchangeBytes(p, world, graph.BF16, Ordered), ExchangeBytes(p, world, graph.F32, Ordered); a >= b {
			t.Errorf("%d ranks need %d bytes in bf16, %d in fp32", world, a, b)
		}
	}
}
