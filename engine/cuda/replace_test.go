package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

// An epilogue in cuBLASLt's terms computes what the epilogue does, wherever its operands and results are in
// memory: random bodies on small integers, for which every order of sums is exact.
func TestEpiloguesForTheLibrary(t *testing.T) {
	const rows, cols = 3, 4
	rng := rand.New(rand.NewPCG(1, 2))
	forms := map[string]int{}
	for range 20000 {
		ep, memory := randomEpilogue(rng, rows, cols)
		product := integers(rng, rows*cols)
		before := map[address][]float64{}
		for at, v := range memory {
			before[at] = slices.Clone(v)
		}
		want := ep.run(product, before)
		f := ep.sums()
		if !f.complete(ep) {
			forms["none"]++
			continue
		}
		forms[fmt.Sprintf("bias %v, C %v, rest %v", f.bias != nil, f.c != nil, f.rest != nil)]++
		d := slices.Clone(product)
		for i := range d {
			if f.bias != nil {
				d[i] += memory[f.bias.at][i%cols]
			}
			if f.c != nil {
				d[i] += memory[f.c.at][i]
			}
		}
		memory[f.d] = d
		if f.rest != nil {
			f.rest.run(d, memory)
		}
		for i, o := range ep.out {
			if got := memory[o.at]; !slices.Equal(got, want[i]) {
				t.Fatalf("result %d of %v, operands at %v: %v, want %v; in the library's terms %+v, then %v", i, ep, ep.in, got, want[i], f, f.rest)
			}
		}
	}
	if len(forms) != 9 {
		t.Errorf("not every form occurs: %v", forms)
	}
}

func integers(rng *rand.Rand, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = float64(rng.IntN(5) - 2)
	}
	return list
}

// randomEpilogue is an epilogue of sums and products, and a memory with its operands. A result may have the
// place of an operand, as when that is not needed afterwards.
func randomEpilogue(rng *rand.Rand, rows, cols int) (*epilogue, map[address][]float64) {
	ep := &epilogue{body: &graph.Body{Inputs: 1 + rng.IntN(4)}, first: graph.F32, cols: cols}
	memory := map[address][]float64{}
	var next address
	place := func() address {
		next = next.plus(256)
		return next
	}
	var free []address // of operands
	for range ep.body.Inputs - 1 {
		o := placed{dtype: graph.F32, at: place(), extent: []extent{full, full, perColumn, perRow, scalar}[rng.IntN(5)]}
		memory[o.at] = integers(rng, int(o.elems(rows, cols)))
		ep.in = append(ep.in, o)
		if o.extent == full {
			free = append(free, o.at)
		}
	}
	registers := func() int { return ep.body.Inputs + len(ep.body.Instrs) }
	for range rng.IntN(4) {
		fn := []graph.Fn{graph.FnAdd, graph.FnAdd, graph.FnAdd, graph.FnMul}[rng.IntN(4)]
		arg := []int{rng.IntN(registers()), rng.IntN(registers())}
		if rng.IntN(2) == 0 { // goes on with the last
			arg[rng.IntN(2)] = registers() - 1
		}
		if len(ep.body.Instrs) == 0 {
			arg[0] = 0
		}
		ep.body.Instrs = append(ep.body.Instrs, graph.Instr{Op: graph.Elementwise{Fn: fn}, Arg: arg, DType: graph.F32})
	}
	for range 1 + rng.IntN(2) {
		o := placed{dtype: graph.F32}
		if n := len(free); n > 0 && rng.IntN(2) == 0 {
			o.at, free = free[n-1], free[:n-1]
		} else {
			o.at = place()
		}
		ep.out = append(ep.out, o)
		ep.body.Results = append(ep.body.Results, max(0, registers()-1-rng.IntN(2)))
	}
	return ep, memory
}

// run runs an epilogue in memory, element by element, all operands of which are read before a result is
// written.
func (ep *epilogue) run(product []float64, memory map[address][]float64) (results [][]float64) {
	for _, o := range ep.out {
		if memory[o.at] == nil {
			memory[o.at] = make([]float64, len(product))
		}
		results = append(results, memory[o.at])
	}
	for i := range product {
		regs := []float64{product[i]}
		for _, o := range ep.in {
			regs = append(regs, memory[o.at][map[extent]int{full: i, perColumn: i % ep.cols, perRow: i / ep.cols}[o.extent]])
		}
		for _, s := range ep.body.Instrs {
			regs = append(regs, s.Op.(graph.Elementwise).Fn.Eval(0, regs[s.Arg[0]], regs[s.Arg[1]], 0))
		}
		for j := range ep.out {
			results[j][i] = regs[ep.body.Results[j]]
		}
	}
	return results
}
