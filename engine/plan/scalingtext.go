package plan

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/size"
)

func (c Cluster) String() string {
	s := fmt.Sprintf("%s on one machine", size.Of(c.PerNode, "process"))
	if c.Nodes > 1 {
		s = fmt.Sprintf("%s, %d on each of %s with %v between them", size.Of(c.World(), "process"), c.PerNode, size.Of(c.Nodes, "machine"), *c.Net)
	}
	if c.Local != nil && c.PerNode > 1 {
		s += fmt.Sprintf(", %v between the cards of one", *c.Local)
	}
	return s
}

// String returns the prediction as text.
func (s *Scaling) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n", s.Cluster)
	when := fmt.Sprintf("an update, in %s of micro-batches", size.Of(s.Rounds, "round"))
	what := "gradients"
	switch {
	case s.Inner > 0:
		what, when = "changes of weights", fmt.Sprintf("an update: all of it after every %s", size.Of(s.Inner, "update"))
	case s.Fast || s.Tree:
		when = "an update, after its last micro-batch"
	}
	rows := [][]string{
		{what, size.Bytes(s.GradientBytes).String(), ""},
		{"a process sends", size.Bytes(s.Sends).String(), when},
	}
	if s.Net != nil {
		rows = append(rows, []string{"a machine's link", size.Bytes(s.Carries).String(), "each way"})
	}
	where := "of them in main memory"
	if s.Room > 0 {
		where = "of them on its card"
	}
	rows = append(rows, []string{"a process keeps", size.Bytes(s.Exchange).String(), where})
	indented(&b, rows, 1)
	fmt.Fprintf(&b, "\nupdate, %s\n", s.Note)
	rows = [][]string{{""}}
	for _, e := range s.Engines {
		rows[0] = append(rows[0], e.Name)
	}
	row := func(name string, of func(Engine) string) {
		cells, all := []string{name}, ""
		for _, e := range s.Engines {
			cells, all = append(cells, of(e)), all+of(e)
		}
		if all != "" {
			rows = append(rows, cells)
		}
	}
	for _, p := range []struct {
		name string
		of   func(UpdateTime) float64
	}{
		{"computing", func(t UpdateTime) float64 { return t.Compute }},
		{"idle in the last round", func(t UpdateTime) float64 { return t.Uneven }},
		{"optimizer", func(t UpdateTime) float64 { return t.Optimizer }},
		{"exchange, bytes between", func(t UpdateTime) float64 { return t.Wire }},
		{"exchange, copies and sums", func(t UpdateTime) float64 { return t.Copies }},
		{"update", func(t UpdateTime) float64 { return t.Update }},
	} {
		row(p.name, func(e Engine) string {
			if p.of(e.Least) == 0 {
				return ""
			}
			return between(seconds, p.of(e.Best), p.of(e.Least))
		})
	}
	row(s.Unit+"/s of all", func(e Engine) string {
		units := float64(s.Units)
		return between(rounded, over(units, e.Least.Update), over(units, e.Best.Update))
	})
	row("efficiency", func(e Engine) string { return between(percent, e.EfficiencyLeast, e.EfficiencyBest) })
	indented(&b, rows)
	fmt.Fprintf(&b, "  efficiency: of the speed of %d that compute alone\n  processes wait %s\n", s.World(), s.Waits)
	if len(s.Helps) > 0 {
		b.WriteString("\nwhat would help snug's exchange\n")
		rows = nil
		for _, h := range s.Helps {
			rows = append(rows, []string{h.Change, between(percent, h.EfficiencyLeast, h.EfficiencyBest)})
		}
		indented(&b, rows)
	}
	return b.String()
}
