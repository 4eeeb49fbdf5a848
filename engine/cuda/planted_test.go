package cuda_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// planter is a card that plants a bug in the code that it loads.
type planter struct {
	*fakegpu.Context
	plant func(ptx string) string
}

func (p planter) LoadDescribed(ptx string, says func(line int) string) (driver.Module, error) {
	return p.Context.LoadDescribed(p.plant(ptx), says)
}

// openPlanted opens a simulated card that changes code. It stays open, as it may be lost by what that does.
func openPlanted(t *testing.T, checks ptxsim.Check, plant func(ptx string) string) *cuda.Backend {
	t.Helper()
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Options: ptxsim.Options{Checks: checks}}
	opened, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	on, err := cuda.New(planter{opened.(*fakegpu.Context), plant})
	if err != nil {
		t.Fatal(err)
	}
	return on
}

// loopAndProduct are a loop with a sum, and a product with an epilogue.
func loopAndProduct() *graph.Func {
	b := graph.NewBuilder("f")
	x, gain := b.Input("x", graph.T(graph.F32, 40, 256)), b.Input("gain", graph.T(graph.F32, 256))
	b.Block("layers.0", func() {
		y := b.Mul(b.MulC(b.Add(x, gain), 3), x)
		b.Output("y", b.Cast(y, graph.BF16))
		b.Output("sum", b.Sum(y, 0))
	})
	p, w, bias := b.Input("p", graph.T(graph.F16, 128, 64)), b.Input("w", graph.T(graph.F16, 64, 128)), b.Input("bias", graph.T(graph.F16, 128))
	b.Block("layers.1", func() { b.Output("z", b.GELU(b.Add(b.MatMul(p, w, false, false), bias))) })
	return b.F
}

// An error in a generated kernel, or in what was put into the places of another, names the operation and the part
// of its body, as the program's text does.
func TestFaultsNameTheBody(t *testing.T) {
	const (
		inLoop, loop       = "fused of layers.0: ", "{r2=add[0 1]; r3=mulc{Alpha=3}[2]; r4=mul[3 0]; r5=copy{Out=bf16}[4]:bf16; out [5 4]}"
		inProduct, product = "matmul of layers.1: ", "{r2=add[0 1]:f16; r3=gelu[2]:f16; out [3]}"
	)
	for name, c := range map[string]struct {
		bug, instead string // regular expressions, of the PTX
		checks       ptxsim.Check
		message      string
		where, body  string
	}{
		"operand out of bounds": {`(mad\.wide\.u32 %w0, %v6, )1024,`, "${1}16777216,", 0, "out of bounds", "(" + inLoop + "r0 is operand 0, f32)", loop},
		"operand misaligned":    {`(mad\.wide\.u32 %w1, %v5, )16,`, "${1}12,", 0, "misaligned", "(" + inLoop + "r1 is operand 1, f32)", loop},
		"uninitialized":         {`mov\.f32 %v19, %f3; `, "", ptxsim.CheckUninitialized, "reads %v19, which the thread has not written", "(" + inLoop + "r4=mul[3 0])", loop},
		"race":                  {`mov\.u32 %v0, %ctaid\.x;`, "mov.u32 %v0, 0;", ptxsim.CheckGlobal, "race: global memory", "(" + inLoop + "result 0 is r5, bf16)", loop},
		"result out of bounds":  {`(mad\.wide\.u32 %w3, %v6, )1024,`, "${1}16777216,", 0, "out of bounds", "(" + inLoop + "result 1 is r4, f32)", loop},
		"bias out of bounds":    {`(mad\.wide\.u32 %w\d+, %v1, )2,`, "${1}16777216,", 0, "out of bounds", ", " + inProduct + "r1 is operand 1, f16)", product},
		"result of a product":   {`(mul\.lo\.u64 %w\d+, %w\d+, )2;`, "${1}16777216;", 0, "out of bounds", ", " + inProduct + "result 0 is r3, f16)", product},
	} {
		t.Run(name, func(t *testing.T) {
			planted := false
			plant := func(ptx string) string {
				text := regexp.MustCompile(c.bug).ReplaceAllString(ptx, c.instead)
				planted = planted || text != ptx
				return text
			}
			on := openPlanted(t, c.checks, plant)
			p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, loopAndProduct())
			if err != nil {
				t.Fatal(err)
			}
			x, err := p.Load(on)
			if err != nil {
				t.Fatal(err)
			}
			if !planted {
				t.Fatalf("the kernels have no %s", c.bug)
			}
			x.Observe(&engine.Observer{Narrow: true})
			err = errors.Join(x.Run("f", 0), x.Sync())
			if err == nil || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), c.where) {
				t.Errorf("%v, want: %s at %s", err, c.message, c.where)
			}
			var f *cuda.Fault // a card names no line, but the operation has all of its body
			if !errors.As(err, &f) || !strings.HasSuffix(f.Place(), c.body) {
				t.Errorf("%v, want a fault of an operation with %s", err, c.body)
			}
		})
	}
}
