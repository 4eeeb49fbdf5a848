package ref_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/ref"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("60"); err != nil { // many properties, small shapes
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// probe builds one operation over random operands and compares its gradient
// rule with finite differences.
type probe struct {
	*graph.Builder
	t     *rapid.T
	rng   *rand.Rand
	dtype graph.DType // of the differentiable operands
	env   ref.Env
	wrt   []*graph.Value
	n     int
}

// source is where the elements of one example come from.
func source(t *rapid.T) *rand.Rand { return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "data"), 1)) }

// gradient runs check on random programs: build returns the results that the
// loss is a random combination of.
func gradient(t *testing.T, build func(p *probe) []*graph.Value) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		p := &probe{
			Builder: graph.NewBuilder("probe"), t: t, env: ref.Env{},
			rng:   source(t),
			dtype: rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.BF16, graph.F16}).Draw(t, "dtype"),
		}
		if err := graph.Catch(func() { p.check(build(p)) }); err != nil {
			t.Fatal(err)
		}
	})
}

func (p *probe) int(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(p.t, label) }
func (p *probe) bool(label string) bool           { return rapid.Bool().Draw(p.t, label) }

// shape draws rank lo..hi with few elements.
func (p *probe) shape(lo, hi int) graph.Shape {
	s := make(graph.Shape, p.int("rank", lo, hi))
	for i := range s {
		s[i] = p.int("extent", 1, 4)
	}
	return s
}

// within is an operand shape that broadcasts to s.
func (p *probe) within(s graph.Shape) graph.Shape {
	r := s[p.int("dropped", 0, len(s)):].Clone()
	for i := range r {
		if p.bool("stretched") {
			r[i] = 1
		}
	}
	return r
}

func (p *probe) declare(t graph.Type, gen func() float64) *graph.Value {
	p.n++
	v := p.Input(fmt.Sprintf("x%d", p.n), t)
	data := make([]float64, t.Shape.Elems())
	for i := range data {
		data[i] = gen()
	}
	p.env[v.Name] = data
	return v
}

// operand is a differentiable operand with elements from gen.
func (p *probe) operand(s graph.Shape, gen func() float64) *graph.Value {
	v := p.declare(graph.Type{DType: p.dtype, Shape: s}, gen)
	p.wrt = append(p.wrt, v)
	return v
}

// x is an operand of standard normal numbers.
func (p *probe) x(dims ...int) *graph.Value { return p.operand(dims, p.rng.NormFloat64) }

// full is x in F32.
func (p *probe) full(dims ...int) *graph.Value {
	v := p.declare(graph.T(graph.F32, dims...), p.rng.NormFloat64)
	p.wrt = append(p.wrt, v)
	return v
}

// ints is an integer operand with elements in [lo, hi].
func (p *probe) ints(lo, hi int, dims ...int) *graph.Value {
	return p.declare(graph.T(graph.I32, dims...), func() float64 { return float64(lo + p.rng.IntN(hi-lo+1)) })
}

// loss is the sum of all results, each weighted by random constants, so that
// every result element has its own gradient.
func (p *probe) loss(results []*graph.Value) *graph.Value {
	total := p.Scalar(0)
	for _, r := range results {
		w := p.declare(r.Type.With(graph.F32), p.rng.NormFloat64)
		total = p.Add(total, p.Sum(p.Mul(r, w)))
	}
	p.Output("loss", total)
	return total
}

func (p *probe) run() *ref.Result {
	res, err := ref.Run(p.F, p.env, ref.Exact)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

func (p *probe) check(results []*graph.Value) {
	loss := p.loss(results)
	forward := *p.F // the function whose differences are taken
	forward.Nodes = forward.Nodes[:len(forward.Nodes):len(forward.Nodes)]
	grads, err := pass.Differentiate(p.F, loss, p.wrt, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for i, g := range grads {
		if g != nil {
			if !g.Shape().Equal(p.wrt[i].Shape()) {
				p.t.Fatalf("gradient %d is %v, the operand %v", i, g.Type, p.wrt[i].Type)
			}
			p.Output(fmt.Sprint("d", p.wrt[i].Name), g)
		}
	}
	if err := graph.Verify(p.F); err != nil {
		p.t.Fatal(err)
	}
	res := p.run()
	f := *p.F
	p.F = &forward
	p.F.Outputs = f.Outputs[:1]
	for _, v := range p.wrt {
		got := res.Outputs["d"+v.Name]
		if got == nil {
			got = make([]float64, len(p.env[v.Name])) // no gradient flows
		}
		for i := range got {
			want := p.difference(p.env[v.Name], i)
			if d := math.Abs(got[i] - want); !(d <= 1e-7*math.Max(math.Abs(want), math.Abs(got[i]))+1e-9*(1+math.Abs(res.Outputs["loss"][0]))) {
				p.t.Fatalf("d loss/d %s[%d] is %.12g, by differences %.12g\n%v", v.Name, i, got[i], want, &f)
			}
		}
	}
}

// difference is the derivative of the loss by x[i] from the fourth-order
// central difference.
func (p *probe) difference(x []float64, i int) float64 {
	const h = 1e-3
	at := func(d float64) float64 {
		was := x[i]
		x[i] = was + d
		y := p.run().Outputs["loss"][0]
		x[i] = was
		return y
	}
	return (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
}
