package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
)

// Profile compares the time model with the runs that its observer watches.
type Profile struct {
	// Shapes lists operations on different shapes separately.
	Shapes bool

	took map[*graph.Node]time.Duration
	runs map[*graph.Node]int
}

// Observer returns an observer that records runs in p.
func (p *Profile) Observer() *engine.Observer {
	return &engine.Observer{After: func(n *graph.Node, took time.Duration) bool {
		p.add(n, took)
		return true
	}}
}

// Run runs functions n times with every node timed, and returns how long that took.
func (p *Profile) Run(e *engine.Executable, fns []string, n int) (time.Duration, error) {
	e.Observe(p.Observer())
	defer e.Observe(nil)
	began := time.Now()
	for range n {
		for _, fn := range fns {
			if err := e.Run(fn, 0); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(began), nil
}

// add adds one execution of a node.
func (p *Profile) add(n *graph.Node, d time.Duration) {
	if p.took == nil {
		p.took, p.runs = map[*graph.Node]time.Duration{}, map[*graph.Node]int{}
	}
	p.took[n] += d
	p.runs[n]++
}

// ProfileRow is one operation, predicted and measured.
type ProfileRow struct {
	Op          string  `json:"op"`
	Runs        int     `json:"runs"`
	MatrixFLOPs float64 `json:"matrix_flops"`
	Bytes       float64 `json:"bytes"`
	Predicted   float64 `json:"predicted_seconds"`
	Measured    float64 `json:"measured_seconds"`
}

// Rows sums up by operation, longest first.
func (p *Profile) Rows(s Speed) []ProfileRow {
	by := map[string]*ProfileRow{}
	for n, d := range p.took {
		name := p.name(n)
		r := by[name]
		if r == nil {
			r = &ProfileRow{Op: name}
			by[name] = r
		}
		c, runs := n.Cost(), float64(p.runs[n])
		r.Runs += p.runs[n]
		r.MatrixFLOPs += runs * c.MatrixFLOPs
		r.Bytes += runs * c.Bytes
		r.Predicted += runs * s.Seconds(n)
		r.Measured += d.Seconds()
	}
	var rows []ProfileRow
	for _, r := range by {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b ProfileRow) int {
		return cmp.Or(cmp.Compare(b.Measured, a.Measured), strings.Compare(a.Op, b.Op))
	})
	return rows
}

// name returns the row that n belongs to.
func (p *Profile) name(n *graph.Node) string {
	s := n.Op.Name()
	if !p.Shapes {
		return s
	}
	if m, ok := n.Op.(graph.MatMul); ok {
		types := []graph.Type{n.In[0].Type, n.In[1].Type}
		batch, rows, cols, inner := m.Dims(types)
		s += fmt.Sprintf(" %dx%dx%d", rows, inner, cols)
		if batch > 1 {
			s += fmt.Sprintf(" x%d", batch)
		}
		for _, t := range []struct {
			on   bool
			text string
		}{
			{m.TransA, " At"}, {m.TransB, " Bt"}, {m.Accumulate, " +="}, {m.SumA, " sums"},
			{m.MapA != graph.Elementwise{}, " A=" + m.MapA.Name()}, {m.MapB != graph.Elementwise{}, " B=" + m.MapB.Name()},
		} {
			if t.on {
				s += t.text
			}
		}
		if m.Body != nil {
			for _, st := range m.Body.Instrs {
				s += " " + st.Op.Name()
			}
		}
		return s + " " + n.Out[0].DType().String()
	}
	if len(n.In) > 0 {
		s += " " + n.In[0].Type.String()
	}
	return s
}

// Table formats the comparison as a table.
func (p *Profile) Table(s Speed) string {
	rows := [][]string{{"operation", "runs", "predicted", "measured", "ratio", "matmuls at", "memory at"}}
	var total ProfileRow
	line := func(r ProfileRow) {
		at := [2]string{}
		if r.MatrixFLOPs > 0 {
			at[0] = FLOPRate(r.MatrixFLOPs / r.Measured)
		}
		if r.Bytes > 0 {
			at[1] = ByteRate(r.Bytes / r.Measured)
		}
		rows = append(rows, []string{r.Op, size.Thousands(r.Runs), seconds(r.Predicted), seconds(r.Measured),
			fmt.Sprintf("%.2f", r.Measured/r.Predicted), at[0], at[1]})
	}
	for _, r := range p.Rows(s) {
		line(r)
		total.Runs += r.Runs
		total.MatrixFLOPs += r.MatrixFLOPs
		total.Bytes += r.Bytes
		total.Predicted += r.Predicted
		total.Measured += r.Measured
	}
	total.Op = "all"
	line(total)
	var out strings.Builder
	indented(&out, rows, 1, 2, 3, 4, 5, 6)
	return out.String()
}
