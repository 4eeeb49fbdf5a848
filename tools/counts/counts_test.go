package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// The committed table is what the kernels of this tree do: samples are counted again, of
// every kind of kernel, and so are shapes that none of its figures come from.
func TestTable(t *testing.T) {
	const half, full = graph.F16, graph.F32
	f := graph.T
	var others samples
	others.emit(graph.MatMul{}, f(half, 256, 96), f(half, 96, 128))
	others.emit(graph.MatMul{TransB: true}, f(half, 64, 320), f(half, 192, 320))
	others.emit(graph.MatMul{TransA: true}, f(full, 128, 256), f(full, 128, 64))
	others.emit(graph.Attention{Heads: 2, Scale: 1, Causal: true}, f(half, 1, 192, 128), f(half, 1, 192, 128), f(half, 1, 192, 128))
	others.emit(graph.LayerNorm{Eps: 1e-5}, f(half, 96, 768), f(full, 768), f(full, 768))
	others.emit(graph.Reduce{Kind: graph.ReduceSum, Axes: 1}, f(full, 300, 96))
	others.emit(graph.Transpose{Perm: []int{0, 2, 1}}, f(half, 3, 96, 128))
	others.emit(graph.Conv(1, 1), f(half, 1, 16, 16, 64), f(half, 128, 64, 3, 3))
	others.emit(graph.ChannelNorm{Eps: 1e-5, Groups: 8}, f(half, 2, 20, 20, 96), f(full, 96), f(full, 96))
	others.step(graph.AdamW{Beta1: .9, Beta2: .999, Eps: 1e-8, LRScale: 1}, full, 5, 12288)
	others.step(graph.Adafactor{Decay: .8, Eps: 1e-30, Clip: 1, LRScale: 1, Factored: true}, full, 1, 192, 384)
	others.emit(graph.Rotary{Heads: 6, Dims: 64}, f(half, 2, 48, 6*64), f(full, 48, 64))
	others.add("epilogue", func(s *sample) []*graph.Value {
		y := s.MatMul(s.value(half, 128, 128), s.value(half, 128, 192), false, false)
		return []*graph.Value{s.GELU(s.Add(y, s.value(half, 192)))}
	})
	list := others.list
	for _, group := range groups() {
		for i, s := range group {
			if i%9 == 0 { // the samples are in the order of families
				list = append(list, s)
			}
		}
	}
	seen, err := observeAll(t.Context(), list, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range seen {
		if len(o.units) == 0 {
			t.Errorf("%s of %s does not say what it does", o.kernel, o.sample)
		}
		for _, u := range o.units {
			if _, ok := counts.Of(u.Of); !ok {
				t.Errorf("%s is not in the table: go run ./tools/counts", u.Of)
			}
		}
		for what, off := range deviations(o, counts.Table()) {
			if o.did.Issued() < 1e4 { // whatever it is, it takes no time
				continue
			}
			if off.by() > most(o.kernel, what) {
				t.Errorf("%s of %s: %.0f %s counted, the units say %.0f; after a change of kernels: go run ./tools/counts", o.kernel, o.sample, off.done, what, off.said)
			}
		}
	}
}

// most is how far off units may be.
func most(kernel, what string) float64 {
	switch {
	case what == alone: // latencies are not sums
		return 1
	case strings.HasPrefix(kernel, "attention_few"), strings.HasPrefix(kernel, "attention_join"): // whose sectors depend on the format
		return 1
	case strings.Contains(kernel, "gemm") && what == "sectors": // operands that are one for a row
		return 1.5
	case what == "sectors", what == "bytes": // edges of windows and of tables
		return .35
	}
	return .2
}

// Every kernel that a program can launch is in the table.
func TestEveryKernel(t *testing.T) {
	names, err := kernels.Names(75)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"loop": true}
	for unit := range counts.Table() {
		kernel, _, _ := strings.Cut(unit, " ")
		known[kernel] = true
	}
	for _, n := range names {
		if !known[n] && !strings.HasPrefix(n, "exchange_") { // which run beside a program
			t.Errorf("nothing was counted of %s: give tools/counts a sample that launches it", n)
		}
		if _, ok := counts.Needs(n); !ok {
			t.Errorf("nothing is known of what %s takes: go run ./tools/ptxas --write", n)
		}
	}
}

// Units are found from what kernels did with so many of each, where the samples tell them apart.
func TestSolve(t *testing.T) {
	seen := func(a, b, fp32, alone float64) observation {
		return observation{units: []counts.Units{{Of: "k a", N: a}, {Of: "k b", N: b}}, blocks: counts.Units{Of: "k blocks", N: 1}, did: counts.Work{FP32: fp32, Sectors: 2 * fp32, Alone: alone}}
	}
	found, err := solve([]observation{seen(1, 2, 16, 100+16), seen(1, 6, 28, 100+28), seen(3, 1, 33, 100+33)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for unit, want := range map[string]counts.Work{"k a": {FP32: 10, Sectors: 20, Alone: 10}, "k b": {FP32: 3, Sectors: 6, Alone: 3}, "k blocks": {Alone: 100}} {
		for i, v := range found[unit].Values() {
			if math.Abs(v-want.Values()[i]) > 1e-6 {
				t.Errorf("%s has %g %s, want %g", unit, v, counts.Columns[i], want.Values()[i])
			}
		}
	}
	if _, err := solve([]observation{seen(1, 2, 16, 1), seen(2, 4, 32, 1)}, nil); err == nil || !strings.Contains(err.Error(), "k b") {
		t.Errorf("two units that always come together were told apart: %v", err)
	}
}

// Of units that always come together, the first by name has all of the time, whatever the samples are.
func TestSolveTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var list []observation
		for range 6 {
			n, line, look := float64(1+rng.IntN(99)), float64(1+rng.IntN(99)), float64(1+rng.IntN(99))
			list = append(list, observation{
				units:  []counts.Units{{Of: "k block", N: 3 * n}, {Of: "k line", N: line}, {Of: "k look", N: look}},
				blocks: counts.Units{Of: "k blocks", N: n}, did: counts.Work{FP32: 3*n + 2*line + look, Alone: 150*n + 7*line + 5*look},
			})
		}
		found, err := solve(list, nil)
		if err != nil {
			t.Fatal(err)
		}
		for unit, want := range map[string]float64{"k block": 50, "k blocks": 0, "k line": 7, "k look": 5} {
			if got := found[unit].Alone; math.Abs(got-want) > 1e-6 {
				t.Errorf("%s takes %g clocks, want %g", unit, got, want)
			}
		}
	}
}

func TestWritten(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 3: "3", 21.625: "21.62", 21.625 + 1e-13: "21.62", 21.625 - 1e-13: "21.62", 21.6251: "21.63", 12345: "1.234e+04", -0.5: "-0.5",
	} {
		if got := written(v); got != want {
			t.Errorf("%v is written as %s, want %s", v, got, want)
		}
	}
}

// Whatever a program launches says what it does, in units of the table.
func TestEveryLaunch(t *testing.T) {
	lower := cuda.Lower(75, 40)
	for _, c := range conformance.Cases() {
		p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, c.Func)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Funcs {
			launches, err := lower.Launches(f.F.Nodes)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			for _, l := range launches {
				if len(l.Work.Units) == 0 {
					t.Errorf("%s: %s does not say what it does", c.Name, l.Kernel.Name)
				}
				if l.Work.Err != nil {
					t.Errorf("%s: %v", c.Name, l.Work.Err)
				}
			}
		}
	}
}
