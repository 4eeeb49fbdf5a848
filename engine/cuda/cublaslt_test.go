package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// withLibrary opens an interpreted card with a fake library.
func withLibrary(t testing.TB, card driver.Card, lib *fakegpu.CublasLt, folder string) *cuda.Backend {
	t.Helper()
	d := &fakegpu.Driver{Installed: []driver.Card{card}, CublasLt: lib}
	ctx, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(ctx.Close(), d.Left()); err != nil {
			t.Error(err)
		}
	})
	b, err := cuda.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if lib != nil {
		b.UseLibrary(cuda.Matmuls{Open: d.Library, Folder: folder, Driver: d.Version(), Once: true})
	}
	return b
}

// cuBLASLt computes every product of the conformance suite that it supports, with the result of the
// reference: shapes, transposes, batches, formats, biases and in-place sums are described to the library
// correctly.
func TestProductsByCublasLt(t *testing.T) {
	for _, card := range cards(t) {
		lib := &fakegpu.CublasLt{}
		var b *cuda.Backend
		if *number < 0 {
			b = withLibrary(t, card, lib, "")
		} else {
			b = open(t, card, ptxsim.Options{})
			b.UseLibrary(cuda.Matmuls{Open: library(t, installed(t)), Driver: installed(t).Version()})
			t.Log(b.LibraryText())
		}
		dev := conformance.On(b)
		ran := 0
		for i, c := range conformance.Cases() {
			if !slices.ContainsFunc(c.Func.Nodes, func(n *graph.Node) bool {
				switch n.Op.(type) {
				case graph.MatMul, graph.LinearCrossEntropy, graph.LinearCrossEntropyGrad:
					return true
				}
				return false
			}) || !ofPart(t, i) || testing.Short() && i%4 != 0 {
				continue
			}
			ran++
			c.Twin = nil // a fused product may use another kernel than the plain one
			ok := true
			t.Run(fmt.Sprintf("sm_%d/%s", card.Capability(), c.Name), func(t *testing.T) { ok = check(t, dev, c) })
			if !ok {
				t.Fatalf("the card is lost: the cases after %s are not checked", c.Name)
			}
		}
		t.Logf("sm_%d: %d cases, %v", card.Capability(), ran, lib.Calls)
		if *number < 0 && lib.Calls["cublasLtMatmul"] < 3*ran/2 {
			t.Errorf("sm_%d: %d products in %d cases", card.Capability(), lib.Calls["cublasLtMatmul"], ran)
		}
	}
}

// products is a program of a few products: plain, with a bias, with a residual sum, with epilogues of which the
// library lacks a part, and one that is split.
func products(t *testing.T, d graph.DType) *engine.Program {
	t.Helper()
	b := graph.NewBuilder("f")
	x, w := b.Input("x", graph.T(d, 24, 40)), b.Input("w", graph.T(d, 40, 16))
	b.Output("plain", b.MatMul(x, w, false, false))
	b.Output("bias", b.Add(b.MatMul(x, b.Input("v", graph.T(d, 16, 40)), false, true), b.Input("bias", graph.T(d, 16))))
	b.Output("gelu", b.GELU(b.MatMul(x, b.Input("u", graph.T(d, 16, 40)), false, true)))
	inner := b.Add(b.MatMul(x, b.Input("t", graph.T(d, 16, 40)), false, true), b.Input("c", graph.T(graph.F32, 16)))
	b.Output("inner", inner)
	b.Output("outer", b.GELU(inner))
	b.Output("residual", b.Add(b.Add(b.MatMul(x, b.Input("s", graph.T(d, 16, 40)), false, true), b.Input("e", graph.T(d, 16))), b.Input("y", graph.T(d, 24, 16))))
	b.Output("long", b.MatMul(b.Input("dy", graph.T(d, 2048, 24)), b.Input("h", graph.T(d, 2048, 16)), true, false))
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outputs runs products on the same inputs each time.
func outputs(t *testing.T, b *cuda.Backend, p *engine.Program) (map[string][]byte, *cuda.Choices) {
	t.Helper()
	out, choices, err := tryOutputs(b, p, numbered)
	if err != nil {
		t.Fatal(err)
	}
	return out, choices
}

// numbered are elements of few bits.
func numbered(_ string, i int) float64 { return float64(i%17)/8 - 1 }

// tryOutputs runs the function f of a program, whose inputs have the elements given by name and number.
func tryOutputs(b *cuda.Backend, p *engine.Program, element func(input string, i int) float64) (out map[string][]byte, choices *cuda.Choices, err error) {
	x, err := b.Load(p)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	in := x.Input(0)
	for _, v := range p.Inputs {
		elems := make([]float64, v.Type.Shape.Elems())
		for i := range elems {
			elems[i] = element(v.Name, i)
		}
		at := p.Layout.Input[v.Name].Offset
		engine.Tensor{Type: v.Type, Data: in[at : at+v.Type.Bytes()]}.SetFloat64s(elems)
	}
	if err := errors.Join(x.Run("f", 0), x.Sync()); err != nil {
		return nil, nil, err
	}
	if x.Used() > p.Layout.Bytes {
		return nil, nil, fmt.Errorf("%d bytes of %d planned", x.Used(), p.Layout.Bytes)
	}
	out = map[string][]byte{}
	for name, s := range p.Layout.Output {
		out[name] = bytes.Clone(x.Outputs()[s.Offset : s.Offset+s.Bytes])
	}
	return out, x.(interface{ Choices() *cuda.Choices }).Choices(), nil
}

func equal(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// halves are the float16 numbers of an output.
func halves(b []byte) []float64 {
	return engine.Tensor{Type: graph.T(graph.F16, len(b)/2), Data: b}.Float64s()
}

// chosen counts how often each of the library's algorithms was chosen, by number.
func chosen(c *cuda.Choices) map[byte]int {
	n := map[byte]int{}
	for _, p := range c.Products {
		if len(p.Algorithm) > 0 {
			n[p.Algorithm[4]]++
		}
	}
	return n
}

// The fastest algorithm is chosen of those that add in a fixed order, fit the planned workspace, compute what
// snug's kernels do and give the same bits twice.
func TestChoiceOfAlgorithms(t *testing.T) {
	const µs = time.Microsecond
	p := products(t, graph.F16)
	own, _ := outputs(t, withLibrary(t, fakegpu.T4, nil, ""), p)
	for name, c := range map[string]struct {
		algorithms []fakegpu.FakeAlgorithm
		want       map[byte]int
	}{
		"fastest":            {[]fakegpu.FakeAlgorithm{{Time: 3 * µs}, {Time: 2 * µs}, {Time: 4 * µs}}, map[byte]int{1: 6}},
		"slower than snug":   {[]fakegpu.FakeAlgorithm{{Time: 200 * µs}}, map[byte]int{}},
		"hardly faster":      {[]fakegpu.FakeAlgorithm{{Time: 9800 * time.Nanosecond}}, map[byte]int{0: 1}}, // than the kernels of a long K
		"none":               {[]fakegpu.FakeAlgorithm{}, map[byte]int{}},
		"sums in any order":  {[]fakegpu.FakeAlgorithm{{Time: µs, Reduction: 1}, {Time: 2 * µs, Reduction: 4}, {Time: 3 * µs, Reduction: 2}}, map[byte]int{2: 6}},
		"too much workspace": {[]fakegpu.FakeAlgorithm{{Time: µs, Workspace: 1 << 40}, {Time: 2 * µs}}, map[byte]int{1: 6}},
		"some workspace":     {[]fakegpu.FakeAlgorithm{{Time: µs, Workspace: 4096}}, map[byte]int{0: 6}},
		"wrong":              {[]fakegpu.FakeAlgorithm{{Time: µs, Wrong: true}, {Time: 2 * µs}}, map[byte]int{1: 6}},
		"unsteady":           {[]fakegpu.FakeAlgorithm{{Time: µs, Unsteady: true}}, map[byte]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			out, choices := outputs(t, withLibrary(t, fakegpu.T4, &fakegpu.CublasLt{Algorithms: c.algorithms}, ""), p)
			if got := chosen(choices); !maps.Equal(got, c.want) {
				t.Errorf("chose %v, want %v:\n%s", got, c.want, choices.Table())
			}
			if len(c.want) == 0 && !equal(out, own) {
				t.Error("snug's kernels compute other bits with the library than without it")
			}
			for name, b := range out {
				got, want := halves(b), halves(own[name])
				for i := range got {
					if math.Abs(got[i]-want[i]) > 4./1024*max(1, math.Abs(want[i])) {
						t.Errorf("%s: element %d is %v, by snug's kernels alone %v", name, i, got[i], want[i])
						break
					}
				}
			}
		})
	}
}

// A card that has been idle is slow at first: snug's kernels, which are timed first, are not judged by that.
func TestMatmulsAreTimedOnceClocksHaveRisen(t *testing.T) {
	p := products(t, graph.F16)
	for name, idle := range map[string]time.Duration{"never idle": 0, "until it has computed": 80 * time.Microsecond, "until the first candidate": 500 * time.Microsecond} {
		t.Run(name, func(t *testing.T) {
			// More than a kernel takes, or two and a loop where K is split, and less than three times that.
			lib := &fakegpu.CublasLt{Algorithms: []fakegpu.FakeAlgorithm{{Time: 25 * time.Microsecond}}}
			d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CublasLt: lib, Slow: 1000, Idle: idle}
			b := openOn(t, d, 0)
			b.UseLibrary(cuda.Matmuls{Open: d.Library, Driver: d.Version()})
			_, choices := outputs(t, b, p)
			for _, c := range choices.Products {
				if len(c.Algorithm) > 0 || c.Ours > 21e3 {
					t.Errorf("%s: %v us by snug's kernels, %v by cuBLASLt, which was chosen: %v", c.Product, c.Ours, c.Library, len(c.Algorithm) > 0)
				}
			}
		})
	}
}

// Measured choices are kept, and a run goes on with those it began with.
func TestChoicesAreKept(t *testing.T) {
	p := products(t, graph.F16)
	folder := t.TempDir()
	two := []fakegpu.FakeAlgorithm{{Time: 2 * time.Microsecond}, {Time: time.Microsecond}}
	first := &fakegpu.CublasLt{Algorithms: two}
	out, began := outputs(t, withLibrary(t, fakegpu.T4, first, folder), p)
	if got := chosen(began); got[1] != 6 {
		t.Fatalf("chose %v", got)
	}
	// The other algorithm is now faster.
	two = []fakegpu.FakeAlgorithm{{Time: time.Microsecond}, {Time: 2 * time.Microsecond}}
	kept := &fakegpu.CublasLt{Algorithms: two}
	again, c := outputs(t, withLibrary(t, fakegpu.T4, kept, folder), p)
	if kept.Calls["cublasLtMatmulAlgoGetHeuristic"] != 0 || c.String() != began.String() || !equal(out, again) {
		t.Errorf("what is kept is not used: %v\n%s", kept.Calls, c.Table())
	}
	record, err := cuda.ParseChoices(began.JSON())
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]struct {
		number int
		began  *cuda.Choices
		want   map[byte]int
	}{
		"the run's":         {0, record, map[byte]int{1: 6}},
		"without a library": {0, &cuda.Choices{}, map[byte]int{}},
		"another library":   {130000, record, map[byte]int{0: 6}},
	} {
		b := withLibrary(t, fakegpu.T4, &fakegpu.CublasLt{Number: k.number, Algorithms: two}, "")
		b.Begun(k.began)
		if _, c := outputs(t, b, p); !maps.Equal(chosen(c), k.want) {
			t.Errorf("%s: chose %v, want %v", name, chosen(c), k.want)
		}
	}
	// A damaged file is replaced by new measurements.
	files, err := filepath.Glob(filepath.Join(folder, "matmuls-*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]string{
		"no JSON": "{", "no algorithm": strings.Replace(string(text), `"algorithm": "`, `"algorithm": "AAAA`, 1),
		"another card": strings.Replace(string(text), "Tesla T4", "Tesla T5", 1),
	} {
		if err := os.WriteFile(files[0], []byte(damage), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, c := outputs(t, withLibrary(t, fakegpu.T4, &fakegpu.CublasLt{Algorithms: two}, folder), p); chosen(c)[0] != 6 {
			t.Errorf("%s: chose %v", name, chosen(c))
		}
	}
}

// Each call of the library fails in turn: the run still completes, at worst with snug's kernels, and
// everything is freed.
func TestEveryCallOfCublasLtMayFail(t *testing.T) {
	p := products(t, graph.F16)
	own, _ := outputs(t, withLibrary(t, fakegpu.T4, nil, ""), p)
	whole := &fakegpu.CublasLt{}
	byLibrary, _ := outputs(t, withLibrary(t, fakegpu.T4, whole, ""), p)
	for name, times := range whole.Calls {
		for _, n := range []int{1, (times + 1) / 2, times} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				left := n
				lib := &fakegpu.CublasLt{Fail: func(call string) cublaslt.Status {
					if call == name {
						if left--; left == 0 {
							return cublaslt.InternalError
						}
					}
					return cublaslt.Success
				}}
				out, c, err := tryOutputs(withLibrary(t, fakegpu.T4, lib, ""), p, numbered)
				switch {
				case err != nil: // once everything is chosen, a failure is an error
					if !strings.Contains(err.Error(), name+": the library failed (cuBLAS status 14)") {
						t.Error(err)
					}
				case c.String() == "" && !equal(out, own):
					t.Error("snug's kernels alone compute other bits")
				}
			})
		}
	}
	if equal(own, byLibrary) {
		t.Log("the library's products have the bits of snug's kernels")
	}
	// A card that is lost meanwhile does not count as a failure of the library.
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CublasLt: &fakegpu.CublasLt{}}
	d.Fail = func(call string) driver.Code {
		if call == "cuEventElapsedTime" {
			return driver.ECCUncorrectable
		}
		return 0
	}
	ctx, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cuda.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.UseLibrary(cuda.Matmuls{Open: d.Library, Driver: 12040, Once: true})
	if _, err := b.Load(p); !cuda.Lost(err) || !strings.Contains(err.Error(), "timing the matmul f16") || !strings.Contains(err.Error(), "hardware.cublas: off") {
		t.Error(err)
	}
}
