package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/table"
	"github.com/snug-ml/snug/session"
)

// sweepText formats a sweep as text of 80 columns.
func sweepText(s *session.Sweep) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s\n", s.Name, s.Title)
	if s.Refused != "" {
		fmt.Fprintf(&out, "  not measured: %s\n", s.Refused)
	}
	if len(s.Rows) > 0 {
		switch s.Name {
		case session.SweepAgainst:
			out.WriteString(table.Format(againstTable(s)))
		case session.SweepWorkers, session.SweepPrefetch:
			out.WriteString(table.Format(loaderTable(s), 1, 2, 3, 4, 5, 6))
		default:
			out.WriteString(table.Format(sweepTable(s), 1, 2, 3, 4, 5, 6, 7))
		}
		if slices.ContainsFunc(s.Rows, func(r session.Measured) bool { return r.Current }) && s.Name != session.SweepAgainst && s.Name != session.SweepVariants {
			out.WriteString("* as configured\n")
		}
		if of := sharesOf(s); of != "" && s.Name != session.SweepWorkers && s.Name != session.SweepPrefetch {
			fmt.Fprintf(&out, "share: of the %s\n", of)
		}
	}
	for _, k := range s.Skipped {
		need := ""
		if k.Total > 0 {
			need = fmt.Sprintf(" (%v planned)", size.Bytes(k.Total))
		}
		fmt.Fprintf(&out, "%s: not measured%s: %s\n", k.Name, need, k.Reason)
	}
	return out.String()
}

// sharesOf names the peaks that the shares refer to.
func sharesOf(s *session.Sweep) string {
	var names []string
	for _, r := range s.Rows {
		if r.ShareOf != "" && !slices.Contains(names, r.ShareOf) {
			names = append(names, r.ShareOf)
		}
	}
	if len(names) > 1 {
		return strings.Join(names, ", ") + ", each row's own"
	}
	return strings.Join(names, "")
}

// baseOf returns the row that the others are compared with: the configured one, or else the first.
func baseOf(s *session.Sweep) *session.Measured {
	if i := slices.IndexFunc(s.Rows, func(r session.Measured) bool { return r.Current }); i >= 0 && s.Name != session.SweepAgainst {
		return &s.Rows[i]
	}
	return &s.Rows[0]
}

// label returns the name of a row. In a sweep, it marks the configured one.
func label(s *session.Sweep, r *session.Measured) string {
	if r.Current && s.Name != session.SweepVariants && s.Name != session.SweepAgainst {
		return r.Name + " *"
	}
	return r.Name
}

// head returns the title of the first column.
func head(s *session.Sweep) string {
	if s.Axis != "" {
		return strings.ToUpper(s.Axis)
	}
	return "CONFIGURATION"
}

// sweepTable has a row for each configuration.
func sweepTable(s *session.Sweep) [][]string {
	base := baseOf(s)
	out := [][]string{{head(s), "UPDATE", "MIN-MAX", "RATE", strings.ToUpper(shortUnit(base.Unit)) + "/S", "SHARE", "PLANNED", "USED"}}
	for i := range s.Rows {
		r := &s.Rows[i]
		out = append(out, []string{
			label(s, r), milliseconds(r.Median), between(r.Median, r.Best, r.Worst), fmt.Sprintf("%.2fx", r.Rate/base.Rate),
			size.Count(r.Rate), fmt.Sprintf("%.0f %%", 100*r.Share), size.Bytes(r.Total).String(), size.Bytes(used(r)).String(),
		})
	}
	return out
}

// used returns the memory that a configuration took, on the card or in the process.
func used(r *session.Measured) int64 {
	if r.CardUsed > 0 {
		return r.CardUsed
	}
	return r.Peak
}

// loaderTable shows the loader alone and in training.
func loaderTable(s *session.Sweep) [][]string {
	unit := strings.ToUpper(shortUnit(s.Rows[0].Unit)) + "/S"
	out := [][]string{{head(s), "ALONE " + unit, "MIN-MAX", "IN TRAINING " + unit, "UPDATE", "MIN-MAX", "WAIT"}}
	for i := range s.Rows {
		r := &s.Rows[i]
		l := r.Loader
		out = append(out, []string{
			label(s, r), size.Count(l.Median), size.Count(l.Min) + "-" + size.Count(l.Max),
			size.Count(r.Rate), milliseconds(r.Median), between(r.Median, r.Best, r.Worst), milliseconds(r.Wait),
		})
	}
	return out
}

// againstTable has a column for each configuration, because their names are long.
func againstTable(s *session.Sweep) [][]string {
	base := &s.Rows[0]
	lines := []struct {
		name string
		cell func(r *session.Measured) string
	}{
		{"CONFIGURATION", func(r *session.Measured) string { return r.Name }},
		{"settings", func(r *session.Measured) string {
			c := r.Settings
			return fmt.Sprintf("%s, %d x %d", c.Precision, c.MicroBatch, max(1, c.Accumulation))
		}},
		{"recompute", func(r *session.Measured) string { return r.Settings.Recompute.String() }},
		{"update", func(r *session.Measured) string { return milliseconds(r.Median) }},
		{"  min-max", func(r *session.Measured) string { return between(r.Median, r.Best, r.Worst) }},
		{"  predicted", func(r *session.Measured) string { return milliseconds(r.Planned) }},
		{"  against first", func(r *session.Measured) string { return fmt.Sprintf("%.2fx", r.Median/base.Median) }},
		{"per second", func(r *session.Measured) string { return size.Count(r.Rate) + " " + r.Unit }},
		{"share", func(r *session.Measured) string { return fmt.Sprintf("%.0f %% of %s", 100*r.Share, r.ShareOf) }},
		{"memory planned", func(r *session.Measured) string { return size.Bytes(r.Total).String() }},
		{"  used", func(r *session.Measured) string { return size.Bytes(used(r)).String() }},
		{"loading", func(r *session.Measured) string { return fmt.Sprintf("%.2f s", r.Load) }},
		{"first update", func(r *session.Measured) string { return fmt.Sprintf("%.2f s", r.First) }},
		{"data wait", func(r *session.Measured) string { return milliseconds(r.Wait) }},
	}
	var out [][]string
	for _, l := range lines {
		row := []string{l.name}
		for i := range s.Rows {
			row = append(row, l.cell(&s.Rows[i]))
		}
		out = append(out, row)
	}
	return out
}

// milliseconds formats a time in milliseconds, or in seconds from ten seconds up.
func milliseconds(seconds float64) string {
	if seconds >= 10 {
		return fmt.Sprintf("%.1f s", seconds)
	}
	return fmt.Sprintf("%.1f ms", 1e3*seconds)
}

// between formats a range in the unit of its median.
func between(median, low, high float64) string {
	if median >= 10 {
		return fmt.Sprintf("%.1f-%.1f", low, high)
	}
	if median >= .1 {
		return fmt.Sprintf("%.0f-%.0f", 1e3*low, 1e3*high)
	}
	return fmt.Sprintf("%.1f-%.1f", 1e3*low, 1e3*high)
}
