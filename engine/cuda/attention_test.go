package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// Attention has no bank conflicts in shared memory, in float32 or on tensor cores, with every head size that
// has kernels.
func TestAttentionHasNoBankConflicts(t *testing.T) {
	for _, card := range []driver.Card{fakegpu.T4, fakegpu.A10} {
		types := []graph.Type{graph.T(graph.F32, 1, 100, 72)}
		for _, size := range []int{16, 32, 64, 80, 96, 128} {
			types = append(types, graph.T(graph.F16, 1, 100, size))
		}
		for _, typ := range types {
			t.Run(fmt.Sprintf("sm_%d/%v", card.Capability(), typ), func(t *testing.T) {
				b := graph.NewBuilder("attention")
				in := map[string][]float64{}
				var operands []*graph.Value
				for _, name := range []string{"q", "k", "v", "do"} {
					operands = append(operands, b.Input(name, typ))
					in[name] = make([]float64, typ.Shape.Elems())
				}
				op := graph.Attention{Heads: 1, Causal: true, Scale: 1}
				forward := b.Emit(op, operands[:3]...)
				for i, g := range b.Emit(graph.AttentionGrad(op), append([]*graph.Value{operands[3], forward[0], forward[1]}, operands[:3]...)...) {
					b.Output(fmt.Sprint("grad", i), g)
				}
				var count ptxsim.Counters
				if _, err := conformance.On(open(t, card, ptxsim.Options{Counters: &count})).Run(b.F, in); err != nil {
					t.Fatal(err)
				}
				for name, c := range count.Kernels {
					if !strings.HasPrefix(name, "attention") {
						continue
					}
					if c.SharedRequests == 0 || c.SharedWavefronts != c.SharedIdeal {
						t.Errorf("%s: %d wavefronts of shared memory, %d without conflicts", name, c.SharedWavefronts, c.SharedIdeal)
						for _, l := range c.Lines {
							if l.Wavefronts != l.Ideal {
								t.Logf("%d for %d: %s", l.Wavefronts, l.Ideal, l.Where)
							}
						}
					}
				}
				if len(count.Kernels) < 3 {
					t.Errorf("only %d kernels ran", len(count.Kernels))
				}
			})
		}
	}
}

// attended is an attention with its gradients for some rows of text.
type attended struct {
	typ      graph.DType
	batch, t int
	heads    int
	groups   int
	size     int
	causal   bool
	ids      []float64 // segments
	lens     []float64
	operands map[string][]float64 // of q, k, v and the gradient of the result, by name
}

// run returns the results, and how many instructions they took: of tensor cores, and of all pipes.
func (a attended) run(t *testing.T, card driver.Card) (out map[string][]float64, products, all int64) {
	t.Helper()
	b := graph.NewBuilder("attention")
	in := map[string][]float64{}
	op := graph.Attention{Heads: a.heads, KVHeads: a.groups, Causal: a.causal, Scale: 1 / math.Sqrt(float64(a.size)), Segments: a.ids != nil, Lens: a.lens != nil}
	input := func(name string, typ graph.Type, x []float64) *graph.Value {
		in[name] = x
		return b.Input(name, typ)
	}
	var operands []*graph.Value
	for _, name := range []string{"do", "q", "k", "v"} {
		heads := a.heads
		if name == "k" || name == "v" {
			heads = a.groups
		}
		operands = append(operands, input(name, graph.T(a.typ, a.batch, a.t, heads*a.size), a.operands[name]))
	}
	if a.lens != nil {
		operands = append(operands, input("lens", graph.T(graph.I32, a.batch), a.lens))
	}
	if a.ids != nil {
		operands = append(operands, input("segments", graph.T(graph.I32, a.batch, a.t), a.ids))
	}
	forward := b.Emit(op, operands[1:]...)
	b.Output("o", forward[0])
	b.Output("lse", forward[1])
	for i, g := range b.Emit(graph.AttentionGrad(op), slices.Concat([]*graph.Value{operands[0], forward[0], forward[1]}, operands[1:])...) {
		b.Output("d"+[]string{"q", "k", "v"}[i], g)
	}
	var count ptxsim.Counters
	out, err := conformance.On(open(t, card, ptxsim.Options{Counters: &count})).Run(b.F, in)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range count.Kernels {
		if strings.HasPrefix(name, "attention") {
			products += c.Instructions[ptxsim.PipeTensor]
			all += c.Total()
		}
	}
	return out, products, all
}

// counted reports whether the kernels are interpreted, which counts their instructions.
func counted() bool { return *number < 0 }

// texts draws operands for rows of text.
func (a attended) texts(rng *rand.Rand) attended {
	a.operands = map[string][]float64{}
	for _, name := range []string{"do", "q", "k", "v"} {
		heads := a.heads
		if name == "k" || name == "v" {
			heads = a.groups
		}
		x := make([]float64, a.batch*a.t*heads*a.size)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		a.operands[name] = x
	}
	return a
}

// everySize calls f with heads whose kernels differ, on cards whose kernels differ.
func everySize(t *testing.T, f func(t *testing.T, card driver.Card, a attended)) {
	for _, card := range cards(t) {
		for _, a := range []attended{
			{typ: graph.F32, size: 24, heads: 2, groups: 1},
			{typ: graph.F16, size: 16, heads: 1, groups: 1, causal: true},
			{typ: graph.F16, size: 64, heads: 1, groups: 1},
			{typ: graph.F16, size: 64, heads: 2, groups: 1, causal: true},
			{typ: graph.F16, size: 128, heads: 1, groups: 1, causal: true},
		} {
			t.Run(fmt.Sprintf("sm_%d/%v_%d_causal=%v", card.Capability(), a.typ, a.size, a.causal), func(t *testing.T) { f(t, card, a) })
		}
	}
}

// Which tiles are skipped depends on the numbers that segments have, but no bit of a result does: with numbers
// that let every tile be skipped whose segments are others, as with some for which none can be.
func TestSkippingSegmentsChangesNoBit(t *testing.T) {
	everySize(t, func(t *testing.T, card driver.Card, a attended) {
		a.batch, a.t = 1, 330
		a = a.texts(rand.New(rand.NewPCG(1, 2)))
		// Documents begin at 100, 170 and 256. In each tile are two positions in segments of their own. Either
		// their numbers are between those of documents, or one is less and one greater than all others.
		document := func(i int) float64 {
			switch {
			case i < 100:
				return 1000
			case i < 170:
				return 2000
			case i < 256:
				return 3000
			}
			return 4000
		}
		near, far := make([]float64, a.t), make([]float64, a.t)
		for i := range near {
			near[i], far[i] = document(i), document(i)
			switch i % 64 {
			case 5:
				near[i], far[i] = document(i)+1+float64(i), float64(-i)-1
			case 9:
				near[i], far[i] = document(i)+1+float64(i), 9000+float64(i)
			}
		}
		a.ids = near
		skipped, fewProducts, few := a.run(t, card)
		a.ids = far
		whole, manyProducts, many := a.run(t, card)
		for name, want := range whole {
			for i, v := range skipped[name] {
				if math.Float64bits(v) != math.Float64bits(want[i]) {
					t.Fatalf("%s: element %d is %v where tiles are skipped, %v where none are", name, i, v, want[i])
				}
			}
		}
		if counted() && float64(few) > .75*float64(many) {
			t.Errorf("%d instructions where tiles of other segments can be skipped, %d where none can", few, many)
		}
		a.ids = nil
		free, freeProducts, _ := a.run(t, card)
		if slices.Equal(free["o"], whole["o"]) {
			t.Error("segments hide nothing")
		}
		// Within a tile, products of hidden keys are left out whatever the segments' numbers are.
		if counted() && a.typ != graph.F32 && (fewProducts != manyProducts || float64(manyProducts) > .75*float64(freeProducts)) {
			t.Errorf("%d products where tiles can be skipped, %d where none can, %d without segments", fewProducts, manyProducts, freeProducts)
		}
	})
}

// Documents that begin with a tile cost as many products in one row of text as in rows of their own, and have
// the same results to the bit.
func TestPackedDocumentsAreAsGoodAsRows(t *testing.T) {
	everySize(t, func(t *testing.T, card driver.Card, a attended) {
		begins := []int{0, 128, 192, 330}
		numbers := []float64{5, 9, 7} // not in order
		a.batch, a.t = 1, begins[3]
		packed := a.texts(rand.New(rand.NewPCG(3, 4)))
		for i, n := range numbers {
			for range begins[i+1] - begins[i] {
				packed.ids = append(packed.ids, n)
			}
		}
		all, products, _ := packed.run(t, card)
		for i := range numbers {
			from, to := begins[i], begins[i+1]
			one := packed
			one.ids, one.t, one.operands = nil, to-from, map[string][]float64{}
			for name, x := range packed.operands {
				width := len(x) / packed.t
				one.operands[name] = x[from*width : to*width]
			}
			own, n, _ := one.run(t, card)
			products -= n
			for name, want := range own {
				rows, got := 1, all[name]
				if name == "lse" { // of each head
					rows = a.heads
				}
				width := len(got) / rows / packed.t
				for h := range rows {
					part := got[(h*packed.t+from)*width : (h*packed.t+to)*width]
					for k, v := range part {
						if w := want[h*len(part)+k]; math.Float64bits(v) != math.Float64bits(w) {
							t.Fatalf("%s of document %d: element %d is %v in a packed row, %v in one of its own", name, i, k, v, w)
						}
					}
				}
			}
		}
		if counted() && a.typ != graph.F32 && products != 0 {
			t.Errorf("a packed row takes %+d products", products)
		}
	})
}

// Keys beyond a row's length cost nothing but the rest of their tile.
func TestKeysBeyondLengthAreSkipped(t *testing.T) {
	everySize(t, func(t *testing.T, card driver.Card, a attended) {
		a.batch, a.t, a.causal = 2, 256, false
		a = a.texts(rand.New(rand.NewPCG(5, 6)))
		a.lens = []float64{256, 256}
		_, _, all := a.run(t, card)
		a.lens = []float64{70, 0}
		_, _, few := a.run(t, card)
		if counted() && float64(few) > .4*float64(all) { // a quarter, masks, and what does not depend on keys
			t.Errorf("%d instructions for a quarter of the keys, %d for all", few, all)
		}
	})
}
