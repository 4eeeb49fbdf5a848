package cuda_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// withTF32 are the cards that support TF32.
func withTF32(t testing.TB) []driver.Card {
	all := slices.DeleteFunc(slices.Clone(cards(t)), func(c driver.Card) bool { return c.Capability() < 80 })
	if len(all) == 0 {
		t.Skip("no card multiplies tf32")
	}
	return all
}

// Factors of matmuls are rounded to TF32, with snug's kernels and with cuBLASLt's stand-in.
func TestTF32(t *testing.T) {
	for _, card := range withTF32(t) {
		checkAll(t, conformance.On(open(t, card, ptxsim.Options{Checks: ptxsim.CheckAll}), "fuse"), conformance.TF32Cases())
	}
}

// The library is asked for TF32, and its results are accepted although it truncates the factors where snug
// rounds them.
func TestTF32ByCublasLt(t *testing.T) {
	if *number >= 0 {
		t.Skip("of the library's stand-in")
	}
	b := graph.NewBuilder("f")
	x, w := b.Input("x", graph.T(graph.F32, 24, 40)), b.Input("w", graph.T(graph.F32, 40, 16))
	b.Output("y", b.Emit(graph.MatMul{TF32: true}, x, w)[0])
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	_, choices := outputs(t, withLibrary(t, fakegpu.A10, &fakegpu.CublasLt{}, ""), p)
	if len(choices.Products) != 1 || !strings.HasPrefix(choices.Products[0].Product, "tf32 nn 1x24x16x40 to f32") {
		t.Fatalf("chose %+v", choices.Products)
	}
	if len(choices.Products[0].Algorithm) == 0 {
		t.Error("the library, which is faster, was not taken")
	}
}

// A card without TF32 refuses a program that needs it.
func TestTF32BeforeAmpere(t *testing.T) {
	if *number >= 0 {
		t.Skip("of an interpreted card")
	}
	c := conformance.TF32Cases()[0]
	err := conformance.Check(conformance.On(open(t, fakegpu.T4, ptxsim.Options{})), c)
	if err == nil || !strings.Contains(err.Error(), "tf32 needs compute capability 8.0 or newer") {
		t.Errorf("a T4 gives %v", err)
	}
}
