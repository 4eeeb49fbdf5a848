package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/table"
)

// String formats the plan as tables.
func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %v\n", r.Target.Name, r.Run.Settings)
	fmt.Fprintf(&s, "%s parameters", size.Thousands(r.Parameters))
	if r.Trained != r.Parameters {
		fmt.Fprintf(&s, ", %s of them trained", size.Thousands(r.Trained))
	}
	if r.Run.Tokens > 0 {
		fmt.Fprintf(&s, "; %s tokens an update", size.Thousands(r.Run.Tokens*int64(max(1, r.Run.Settings.Accumulation))))
	}
	s.WriteString("\n")
	if n := len(r.Untrained); n > 0 {
		fmt.Fprintf(&s, "no gradient reaches %s: %s\n", size.Of(n, "weight"), join(r.Untrained))
	}
	s.WriteString("\n")
	r.memory(&s)
	if r.Host != nil {
		r.Host.write(&s)
	}
	r.peak(&s)
	r.blocks(&s)
	r.time(&s)
	return s.String()
}

// indented writes aligned rows, each after two spaces.
func indented(s *strings.Builder, rows [][]string, right ...int) {
	for line := range strings.Lines(table.Format(rows, right...)) {
		s.WriteString("  " + line)
	}
}

func (r *Report) memory(s *strings.Builder) {
	s.WriteString("memory\n")
	var rows [][]string
	outside := false
	for _, c := range r.Components {
		if !c.Arena && !outside {
			outside = true
			rows = append(rows, []string{"arena", size.Bytes(r.Arena).String(), fmt.Sprintf("exact: %s bytes", size.Thousands(r.Arena))})
		}
		note := c.Note
		if c.Estimate {
			note = strings.TrimSuffix("estimate, "+note, ", ")
		}
		rows = append(rows, []string{"  " + c.Name, size.Bytes(c.Bytes).String(), note})
	}
	needs := "needs"
	if r.Target.Card == nil && r.Run.Heap == 0 {
		needs = "needs before data"
	}
	rows = append(rows, []string{needs, size.Bytes(r.Total).String(), r.verdict()})
	indented(s, rows, 1)
}

// verdict says whether the plan fits, and by how much.
func (r *Report) verdict() string {
	switch d := r.Capacity - r.Total; {
	case r.Capacity == 0:
		return "memory of the target unknown"
	case d < 0:
		return fmt.Sprintf("does not fit: %s, %s short", r.Target.capacityText(), size.Bytes(-d))
	default:
		return fmt.Sprintf("fits: %s, %s left", r.Target.capacityText(), size.Bytes(d))
	}
}

func (r *Report) peak(s *strings.Builder) {
	if len(r.Largest) == 0 {
		return
	}
	fmt.Fprintf(s, "\nlargest temporaries at the peak (function %s, at %s)\n", r.Function, r.PeakAt)
	var rows [][]string
	for _, v := range r.Largest {
		each, layer := "", v.Layer
		if v.Count > 1 {
			each = fmt.Sprintf("%d x", v.Count)
			layer = span(v.Layer, v.Last)
		}
		rows = append(rows, []string{each, size.Bytes(v.Bytes).String(), v.Type, v.Value, v.Kind.String(), layer})
	}
	indented(s, rows, 0, 1)
}

// blocks prints consecutive equal blocks as one line.
func (r *Report) blocks(s *strings.Builder) {
	if len(r.Blocks) == 0 {
		return
	}
	s.WriteString("\nsaved for the backward half of a micro-batch\n")
	var rows [][]string
	for i := 0; i < len(r.Blocks); {
		b, j := r.Blocks[i], i+1
		for j < len(r.Blocks) && r.Blocks[j].Recompute == b.Recompute && r.Blocks[j].Bytes == b.Bytes && r.Blocks[j].Values == b.Values {
			j++
		}
		name, each := b.Layer, ""
		if j > i+1 {
			name = span(b.Layer, r.Blocks[j-1].Layer)
			each = fmt.Sprintf("%d x %s", j-i, size.Bytes(b.Bytes))
		}
		rows = append(rows, []string{name, size.Bytes(int64(j-i) * b.Bytes).String(), each, size.Of(b.Values, "value"), "recompute " + b.Recompute.String()})
		i = j
	}
	indented(s, rows, 1, 2, 3)
}

func (r *Report) time(s *strings.Builder) {
	t := r.Time
	if t.Update == 0 {
		return
	}
	slow := t.slow()
	fmt.Fprintf(s, "\ntime, %s\n", cmp.Or(t.Note, "predicted"))
	rows := [][]string{{"update", between(seconds, t.Update, slow.Update), fmt.Sprintf("%.0f %% in matmuls, %.0f %% computing again, %.0f %% in the optimizer's own function",
		100*t.Bound/t.Update, 100*t.Recompute/t.Update, 100*t.Optimizer/t.Update)}}
	if t.Tokens > 0 {
		rows = append(rows, []string{"tokens/s", between(rounded, slow.Tokens, t.Tokens), ""})
	} else {
		rows = append(rows, []string{"examples/s", between(digits, slow.Examples, t.Examples), ""})
	}
	if t.MFU > 0 {
		rows = append(rows, []string{"share of peak", between(percent, slow.MFU, t.MFU), fmt.Sprintf("of the %s, %s", r.Speed.PeakName, FLOPRate(r.Speed.Peak))})
	}
	if t.Transfer > 0 {
		rows = append(rows, []string{"transfers", seconds(t.Transfer), fmt.Sprintf("to the card at %s and back at %s; %.0f %% hidden behind the computation, the rest is part of the update",
			ByteRate(r.Speed.HostIn), ByteRate(r.Speed.HostOut), 100*max(0, 1-t.Exposed/t.Transfer))})
	}
	indented(s, rows, 1)
	if r.Run.Ranks > 1 {
		fmt.Fprintf(s, "  of %s, without what they exchange\n", size.Of(r.Run.Ranks, "process"))
	}
	if t.Slow != nil {
		fmt.Fprintf(s, "  from the kernels as modeled, down to %.0f %% of their speed: the least that public PyTorch runs on a T4 reach of it\n", 100*CardReached(r.Run.Settings.Precision))
	}
	if r.Speed.Source != "" {
		s.WriteString("  " + r.Speed.Source + "\n")
	}
}

// slow returns the slow end of the range, or t itself if there is none.
func (t Timing) slow() Slow {
	if t.Slow != nil {
		return *t.Slow
	}
	return Slow{Update: t.Update, Run: t.Run, Epoch: t.Epoch, Tokens: t.Tokens, Examples: t.Examples, MFU: t.MFU}
}
