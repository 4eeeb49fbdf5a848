package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/ref"
)

// suspect is a result that differs by more than its format explains.
type suspect struct {
	node   *graph.Node
	result int
	bad    int
	worst  []Row
}

// judge runs the function again and compares every suspect with the definition of
// its operation.
func (c *comparison) judge(x *engine.Executable, fn string, slot int) error {
	of := map[*graph.Node][]*suspect{}
	for _, s := range c.suspects {
		of[s.node] = append(of[s.node], s)
	}
	var in [][]float64
	var failed error
	f := x.Program().Func(fn)
	look := func(v *graph.Value) []float64 {
		t, err := x.ReadValue(f, v)
		if err != nil {
			failed = err
			return nil
		}
		return t.Float64s()
	}
	err := x.Watch(fn, slot, &engine.Observer{
		Before: func(n *graph.Node) {
			if of[n] == nil {
				return
			}
			in = in[:0]
			for _, v := range n.In {
				in = append(in, look(v))
			}
		},
		After: func(n *graph.Node, _ time.Duration) bool {
			for _, s := range of[n] {
				got := look(n.Out[s.result])
				if failed == nil {
					failed = c.verdict(s, in, got)
				}
			}
			return failed == nil
		},
	})
	return cmp.Or(failed, err)
}

// verdict decides on one suspect, given the operands and results of its operation.
func (c *comparison) verdict(s *suspect, in [][]float64, got []float64) error {
	n, v := s.node, s.node.Out[s.result]
	want, err := ref.Eval(n, in, ref.Exact)
	if err != nil {
		return err
	}
	exact := want[s.result]
	own := difference(exact, got, v.Type)
	allowed := c.Factor * (float64(roundings(n.Op))*unit(v.DType()) + 2*math.Sqrt(float64(terms(n, v)))*0x1p-24)
	var scale []float64
	if linear(n.Op) {
		sizes := make([][]float64, len(in))
		for k := range in {
			sizes[k] = absolute(in[k])
		}
		sums, err := ref.Eval(n, sizes, ref.Exact)
		if err != nil {
			return err
		}
		scale = sums[s.result]
	}
	width := v.Shape().Last()
	cause := Amplified
	cleared := scale != nil || innocent(n.Op)
	for _, w := range s.worst {
		at := w.row * width
		grow := 1.0
		if scale != nil {
			grow = max(1, norm(scale[at:at+width])/max(norm(exact[at:at+width]), math.SmallestNonzeroFloat64))
		}
		if own.rows[w.row] > allowed*grow {
			cause = Own
		}
		if scale != nil && float64(w.Difference) > c.Factor*float64(w.Explained)*grow {
			cleared = false
		}
	}
	if cleared && cause != Own {
		c.report.Cleared++
		return nil
	}
	f := Finding{
		Func: c.report.Func, Op: n.Op.Name(), Layer: layer(n, v), Result: s.result, Backward: n.Backward,
		Value: v.Type.String(), Cause: cause, Rows: v.Shape().Rows(), Suspect: s.bad, Worst: s.worst,
	}
	for k := range f.Worst {
		w := &f.Worst[k]
		for j, op := range n.In {
			d := op.Shape().Last()
			if along(n, v, j) && op.DType().Float() && op.Shape().Rows() == f.Rows {
				w.From = append(w.From, summarize(in[j][w.row*d:][:d]))
			}
		}
	}
	c.report.Findings = append(c.report.Findings, f)
	return nil
}

// layer returns the layer of n or, for a node that writes a state, the state.
func layer(n *graph.Node, v *graph.Value) string {
	if v.State != nil {
		return v.State.Name
	}
	return n.Layer
}

func absolute(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Abs(v)
	}
	return y
}

func norm(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v * v
	}
	return math.Sqrt(s)
}

// Summary summarizes a row.
type Summary struct {
	Mean      Number `json:"mean"`
	Deviation Number `json:"deviation"`
	Largest   Number `json:"largest"` // absolute value
}

func summarize(x []float64) Summary {
	var sum, dev, most float64
	for _, v := range x {
		sum += v
		if a := math.Abs(v); a > most || math.IsNaN(a) {
			most = a
		}
	}
	mean := sum / float64(len(x))
	for _, v := range x {
		dev += (v - mean) * (v - mean)
	}
	return Summary{Number(mean), Number(math.Sqrt(dev / float64(len(x)))), Number(most)}
}

func (s Summary) String() string {
	return fmt.Sprintf("mean %.3g, deviation %.3g, largest %.3g", float64(s.Mean), float64(s.Deviation), float64(s.Largest))
}

// Number is a float64 for JSON: NaN and infinities are strings.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	f := float64(n)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return json.Marshal(fmt.Sprint(f))
	}
	return json.Marshal(f)
}
