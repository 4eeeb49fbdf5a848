package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/size"
)

// OpRow is the predicted time of an operation of a program in an update.
type OpRow struct {
	Op       string  `json:"op"`
	Runs     float64 `json:"runs"`
	Roofline float64 `json:"roofline_seconds"` // by its cost alone
	Limit    string  `json:"limit"`
	Pipes
}

// Ops prices the operations of an update, longest first. shapes lists different shapes separately.
func Ops(p *engine.Program, s Speed, accumulation int, shapes bool) []OpRow {
	by := map[string]*OpRow{}
	names := &Profile{Shapes: shapes}
	bus := crossing{speed: s}
	for r := range s.operations(p, accumulation) {
		if bus.transfers(r) {
			continue
		}
		bus.compute(r, r.pipes.Total)
		name := names.name(r.node)
		row := by[name]
		if row == nil {
			row = &OpRow{Op: name}
			by[name] = row
		}
		row.Runs += r.times
		row.Roofline += r.times * (s.roofline(r.node) - r.shared)
		row.add(r.pipes, r.times)
	}
	var rows []OpRow
	if bus.end(); bus.exposed > 0 {
		const waiting = "waiting for main memory"
		by[waiting] = &OpRow{Op: waiting, Runs: 1, Roofline: bus.exposed, Pipes: Pipes{Memory: bus.exposed, Total: bus.exposed}}
	}
	for _, r := range by {
		r.Limit = r.Pipes.Limit()
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b OpRow) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), strings.Compare(a.Op, b.Op))
	})
	return rows
}

// FormatOps formats operations as a table.
func FormatOps(list []OpRow) string {
	rows := [][]string{{"operation", "runs", "roofline", "kernels", "tensor", "power", "arithmetic", "shared", "memory", "launch", "limit"}}
	var all OpRow
	line := func(r OpRow) {
		limit := r.Limit
		if r.Counted == 0 {
			limit += " (not counted)"
		}
		rows = append(rows, []string{r.Op, size.Thousands(int64(r.Runs)), seconds(r.Roofline), seconds(r.Total), share(r.Tensor, r.Total), share(r.Power, r.Total),
			share(max(r.FP32, r.Integer, r.XU, r.Issue), r.Total), share(max(r.Shared, r.L2), r.Total), share(r.Memory, r.Total), share(r.Launch, r.Total), limit})
	}
	for _, r := range list {
		line(r)
		all.Runs += r.Runs
		all.Roofline += r.Roofline
		all.add(r.Pipes, 1)
	}
	all.Op, all.Limit = "all", all.Pipes.Limit()
	line(all)
	var out strings.Builder
	indented(&out, rows, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	fmt.Fprintf(&out, "  An update, predicted, not measured. Shares are how long a unit is busy of the time of the kernels, from instructions\n"+
		"  counted in their PTX; %s of the time was counted, the rest is the roofline's.\n", percent(over(all.Counted, all.Total)))
	return out.String()
}

func share(part, whole float64) string {
	if whole == 0 || part == 0 {
		return ""
	}
	return percent(part / whole)
}
