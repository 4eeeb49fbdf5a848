package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Options control a comparison.
type Options struct {
	// Factor is how many times the explained difference a row's difference may be; 0: 8.
	Factor float64
	// Most is how many suspects are examined, the first ones, not counting those for
	// which the rule makes an exception; 0: 64.
	Most int
}

// Cause is why a value differs by more than its format explains.
type Cause string

// The causes.
const (
	Own       Cause = "wrong"     // the result disagrees with the operation's definition
	Amplified Cause = "amplified" // the operation amplifies small differences
)

// Finding is a value that differs by more than its format explains.
type Finding struct {
	Func     string `json:"function"`
	Op       string `json:"op"`
	Layer    string `json:"layer"`
	Result   int    `json:"result"` // which of the operation's
	Backward bool   `json:"backward"`
	Value    string `json:"value"` // its type in the program that is tried
	Cause    Cause  `json:"cause"`
	Rows     int    `json:"rows"`    // of the value
	Suspect  int    `json:"suspect"` // how many of them
	Worst    []Row  `json:"worst"`   // the worst of these
}

// String returns the finding as readable lines.
func (f Finding) String() string {
	var s strings.Builder
	half := "forward"
	if f.Backward {
		half = "backward"
	}
	result := ""
	if f.Result > 0 {
		result = fmt.Sprintf(" (result %d)", f.Result)
	}
	fmt.Fprintf(&s, "  %s: %s%s of layer %s, %s, %s: %d of %d rows\n", f.Cause, f.Op, result, f.Layer, half, f.Value, f.Suspect, f.Rows)
	for _, r := range f.Worst {
		fmt.Fprintf(&s, "    row %v differs by %.2g of its length, %.2g is explained\n", r.At, float64(r.Difference), float64(r.Explained))
		fmt.Fprintf(&s, "      got   %v\n      want  %v\n", r.Got, r.Want)
		for _, x := range r.From {
			fmt.Fprintf(&s, "      from  %v\n", x)
		}
	}
	return s.String()
}

// Row is one row that differs.
type Row struct {
	At         []int   `json:"at"` // its index in all dimensions but the last
	Difference Number  `json:"difference"`
	Explained  Number  `json:"explained"`
	Got        Summary `json:"got"`  // the row in the program that is tried
	Want       Summary `json:"want"` // and in the other
	// From are the rows of the operands that the row was made from, where the
	// operation works row by row.
	From []Summary `json:"from,omitempty"`

	row int
}

// Wide is a value with the differences of its rows.
type Wide struct {
	Op       string `json:"op"`
	Layer    string `json:"layer"`
	Result   int    `json:"result"`
	Backward bool   `json:"backward"`
	Middle   Number `json:"middle"` // the median of the rows
	Worst    Number `json:"worst"`
}

// Report is what a comparison found, in the order of computation.
type Report struct {
	Func     string    `json:"function"`
	Micro    int       `json:"micro_batch"` // of the update, from 0; for the caller
	Compared int       `json:"compared"`    // values that both programs store
	Only     int       `json:"only"`        // values of the one tried that the other does not store
	Cleared  int       `json:"cleared"`     // suspects that are sums whose terms cancel
	Unjudged int       `json:"unjudged"`    // suspects after the first [Options.Most]
	Widest   []Wide    `json:"widest"`      // the values that differ most, explained or not
	Findings []Finding `json:"findings"`
}

// Run runs fn of a, which is trusted, and of b, which is tested, on the inputs of a slot,
// which must be the same for both. Differences between their states are taken as given;
// what fn writes to states remains in both.
func Run(a, b *engine.Executable, fn string, slot int, o Options) (*Report, error) {
	o.Factor, o.Most = cmp.Or(o.Factor, 8), cmp.Or(o.Most, 64)
	fa, fb := a.Program().Func(fn), b.Program().Func(fn)
	if fa == nil || fb == nil {
		return nil, fmt.Errorf("one of the programs has no function %q", fn)
	}
	before, err := written(b, fb.F)
	if err != nil {
		return nil, err
	}
	states, err := apart(a, b, fb.F)
	if err != nil {
		return nil, err
	}
	c := &comparison{Options: o, report: &Report{Func: fn, Widest: []Wide{}, Findings: []Finding{}}, known: map[string]spread{}, names: namesOf(fb.F), states: states}
	if err := c.walk(source{a, fn, slot, namesOf(fa.F)}, source{b, fn, slot, c.names}); err != nil {
		return nil, err
	}
	c.widest()
	c.suspects = slices.DeleteFunc(c.suspects, func(s *suspect) bool {
		if innocent(s.node.Op) {
			return false
		}
		o.Most--
		if o.Most < 0 {
			c.report.Unjudged++
		}
		return o.Most < 0
	})
	if len(c.suspects) == 0 {
		return c.report, nil
	}
	for _, t := range before {
		if err := b.SetState(t); err != nil {
			return nil, err
		}
	}
	return c.report, c.judge(b, fn, slot)
}

// apart returns the differences of the states that f uses, such as gradients that earlier
// micro-batches left.
func apart(a, b *engine.Executable, f *graph.Func) (map[string]spread, error) {
	states := map[string]spread{}
	for _, v := range f.States {
		if a.Program().State(v.Name) == nil {
			continue
		}
		x, err := a.State(v.Name)
		if err != nil {
			return nil, err
		}
		y, err := b.State(v.Name)
		if err != nil {
			return nil, err
		}
		if x.Type.Equal(y.Type) && !bytes.Equal(x.Data, y.Data) {
			states[v.Name] = difference(x.Float64s(), y.Float64s(), y.Type)
		}
	}
	return states, nil
}

// written returns copies of the states that f writes.
func written(x *engine.Executable, f *graph.Func) (states []engine.Tensor, err error) {
	seen := map[string]bool{}
	for _, n := range f.Nodes {
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			name := n.In[a.In].State.Name
			if seen[name] {
				continue
			}
			seen[name] = true
			t, err := x.State(name)
			if err != nil {
				return nil, err
			}
			states = append(states, t)
		}
	}
	return states, nil
}

// namesOf returns the names of the stored values of f, by ID: a name may be a view's.
func namesOf(f *graph.Func) map[int]string {
	names := map[int]string{}
	for _, n := range f.Nodes {
		for _, v := range n.Out {
			if s := graph.Storage(v); v.Name != "" && s.Node != nil && names[s.ID] == "" {
				names[s.ID] = v.Name
			}
		}
	}
	return names
}

// source is a function that is run node by node.
type source struct {
	x    *engine.Executable
	fn   string
	slot int
	name map[int]string
}

// made is a stored value right after it was computed.
type made struct {
	node *graph.Node
	v    *graph.Value
	name string
	data []float64
	err  error
}

// values runs the function and yields its named values one after the other.
func (s source) values(yield func(made) bool) {
	on := true
	f := s.x.Program().Func(s.fn)
	err := s.x.Watch(s.fn, s.slot, &engine.Observer{After: func(n *graph.Node, _ time.Duration) bool {
		for _, v := range n.Out {
			name := s.name[v.ID]
			if name == "" {
				continue
			}
			t, err := s.x.ReadValue(f, v)
			if err != nil {
				on = yield(made{err: err})
			} else {
				on = yield(made{n, v, name, t.Float64s(), nil})
			}
			if !on {
				return false
			}
		}
		return true
	}})
	if err != nil && on {
		yield(made{err: err})
	}
}

type comparison struct {
	Options
	report   *Report
	names    map[int]string    // of the values of the tested program
	known    map[string]spread // the differences of values so far
	states   map[string]spread // of states before the run, where they differ
	suspects []*suspect
	wide     []Wide
}

// widest finds the values of the backward and the forward half that differ most.
func (c *comparison) widest() {
	slices.SortStableFunc(c.wide, func(p, q Wide) int { return cmp.Compare(q.Middle, p.Middle) })
	c.report.Widest = c.wide[:min(len(c.wide), 8)]
}

// walk runs both functions and compares the values that both store. Where the orders of
// the programs differ, values of the trusted one wait for their turn.
func (c *comparison) walk(a, b source) error {
	wanted := map[string]bool{}
	for _, name := range b.name {
		wanted[name] = true
	}
	next, stop := iter.Pull(iter.Seq[made](a.values))
	defer stop()
	waiting := map[string]made{}
	for y := range iter.Seq[made](b.values) {
		if y.err != nil {
			return y.err
		}
		x, ok := waiting[y.name]
		for !ok {
			x, ok = next()
			if !ok {
				break
			}
			if x.err != nil {
				return x.err
			}
			if ok = x.name == y.name; !ok && wanted[x.name] {
				waiting[x.name] = x
			}
		}
		delete(waiting, y.name)
		if !ok || !x.v.Shape().Equal(y.v.Shape()) && x.v.Shape().Elems() != y.v.Shape().Elems() {
			c.report.Only++
			continue
		}
		c.report.Compared++
		c.compare(x, y)
	}
	for { // the trusted program's states end where the tested one's do
		x, ok := next()
		if !ok {
			return nil
		}
		if x.err != nil {
			return x.err
		}
	}
}

// compare compares y with x and records how they differ.
func (c *comparison) compare(x, y made) {
	d := difference(x.data, y.data, y.v.Type)
	e := c.explained(y.node, y.v)
	if statistic(y.node.Op, y.v) {
		c.known[y.name] = e
		return
	}
	c.known[y.name] = d
	c.wide = append(c.wide, Wide{y.node.Op.Name(), layer(y.node, y.v), y.v.Index, y.node.Backward, Number(d.median()), Number(d.worst)})
	var bad []Row
	for i, off := range d.rows {
		if off > c.Factor*e.row(i) {
			bad = append(bad, Row{row: i, Difference: Number(off), Explained: Number(e.row(i))})
		}
	}
	if len(bad) == 0 {
		return
	}
	s := &suspect{node: y.node, result: y.v.Index, bad: len(bad)}
	slices.SortStableFunc(bad, func(p, q Row) int { return cmp.Compare(q.Difference/q.Explained, p.Difference/p.Explained) })
	s.worst = bad[:min(len(bad), 4)]
	width := y.v.Shape().Last()
	for k := range s.worst {
		r := &s.worst[k]
		r.At = index(y.v.Shape(), r.row)
		r.Want, r.Got = summarize(x.data[r.row*width:][:width]), summarize(y.data[r.row*width:][:width])
	}
	c.suspects = append(c.suspects, s)
}

// index returns row i of s as an index in all dimensions except the last.
func index(s graph.Shape, i int) []int {
	at := []int{}
	for d := len(s) - 2; d >= 0; d-- {
		at = append(at, i%s[d])
		i /= s[d]
	}
	slices.Reverse(at)
	return at
}

// spread is how much the rows of a value differ.
type spread struct {
	rows  []float64 // nil: all by worst
	worst float64
}

func (s spread) row(i int) float64 {
	if i < len(s.rows) {
		return s.rows[i]
	}
	return s.worst
}

// median returns the median of the rows.
func (s spread) median() float64 {
	rows := slices.Sorted(slices.Values(s.rows))
	return rows[len(rows)/2]
}

// difference returns the difference of each row of b from a.
func difference(a, b []float64, t graph.Type) spread {
	width := t.Shape.Last()
	n := t.Shape.Rows()
	s := spread{rows: make([]float64, n)}
	norms := make([]float64, n)
	total := 0.0
	for i := range n {
		var d, m float64
		for k, x := range a[i*width : (i+1)*width] {
			m += x * x
			if y := b[i*width+k]; x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				d += (x - y) * (x - y)
			}
		}
		s.rows[i], norms[i] = math.Sqrt(d), math.Sqrt(m)
		if !math.IsInf(m, 0) && !math.IsNaN(m) {
			total += m
		}
	}
	least := math.Sqrt(total/float64(max(n, 1))) / 16
	for i, d := range s.rows {
		switch {
		case d == 0:
		case math.IsNaN(d) || math.IsInf(d, 0):
			s.rows[i] = math.Inf(1)
		default:
			d -= tiny(t.DType) * math.Sqrt(float64(width))
			s.rows[i] = max(0, d) / max(norms[i], least)
		}
		s.worst = max(s.worst, s.rows[i])
	}
	return s
}

// explained returns how much the rows of the result v of n may differ.
func (c *comparison) explained(n *graph.Node, v *graph.Value) spread {
	own := float64(roundings(n.Op))*unit(v.DType()) + 2*math.Sqrt(float64(terms(n, v)))*0x1p-24
	return c.inherited(n, v).plus(own)
}

// inherited returns the difference that the operands contribute to the result v of n.
func (c *comparison) inherited(n *graph.Node, v *graph.Value) spread {
	sum := spread{rows: make([]float64, v.Shape().Rows())}
	for k, in := range n.In {
		e := c.of(in)
		for i := range sum.rows {
			if along(n, v, k) && len(e.rows) == len(sum.rows) {
				sum.rows[i] += e.rows[i]
			} else {
				sum.rows[i] += e.worst
			}
		}
	}
	return sum
}

// of returns how much the rows of an operand differ: as compared if the value was
// compared, nothing for inputs, and for values that only the tested program has (casts,
// say) what their operands explain.
func (c *comparison) of(v *graph.Value) spread {
	s := graph.Storage(v)
	if s.Node == nil && s.State != nil {
		return c.states[s.State.Name]
	}
	if s.Node == nil || !s.DType().Float() {
		return spread{}
	}
	if d, ok := c.known[c.names[s.ID]]; ok {
		return d
	}
	return c.explained(s.Node, s)
}

func (s spread) plus(x float64) spread {
	for i := range s.rows {
		s.rows[i] += x
	}
	s.worst = 0
	for _, r := range s.rows {
		s.worst = max(s.worst, r)
	}
	return s
}
