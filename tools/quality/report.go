package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report sums results up.
type report struct {
	results []result
	missing []cell // requested and not run
	// commits are those whose bits were compared last.
	commits string
}

func newReport(all *results, asked []cell) *report {
	r := &report{}
	commits := map[string]bool{}
	for _, c := range asked {
		if known := all.program(c.program); known != nil {
			commits[known.Commit] = true
		}
		i := slices.IndexFunc(all.kept.Runs, func(x result) bool { return x.cell == c })
		if i < 0 {
			r.missing = append(r.missing, c)
		} else {
			r.results = append(r.results, all.kept.Runs[i])
		}
	}
	r.commits = and(slices.Sorted(maps.Keys(commits)))
	return r
}

// and lists words: "a, b and c".
func and(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// spread is the minimum, median and maximum of some figures.
type spread struct {
	values []float64
}

func (s *spread) add(x float64) { s.values = append(s.values, x) }

func (s *spread) of() (least, median, greatest float64) {
	v := slices.Sorted(slices.Values(s.values))
	n := len(v)
	return v[0], (v[(n-1)/2] + v[n/2]) / 2, v[n-1]
}

func (s *spread) String() string {
	if len(s.values) == 0 {
		return ""
	}
	least, median, greatest := s.of()
	if len(s.values) == 1 {
		return fmt.Sprintf("%.4g", median)
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", median, least, greatest)
}

// figures are those of a promise in the results that pass.
func (r *report) figures(p promise, pass func(result) bool) (values, baselines spread) {
	for _, x := range r.results {
		if x.System != p.system || !pass(x) {
			continue
		}
		if v, ok := x.Figures[p.name]; ok {
			values.add(v)
		}
		if v, ok := x.Baselines[p.name]; ok {
			baselines.add(v)
		}
	}
	return values, baselines
}

func always(result) bool { return true }

// text is the report for a terminal.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nbits of %s: %d runs, %d of those asked for are missing\n", r.commits, len(r.results), len(r.missing))
	fmt.Fprintf(&b, "%-12s %-34s %10s %10s %10s %10s %10s\n", "system", "figure", "promised", "baseline", "least", "median", "greatest")
	for _, p := range promises {
		values, baselines := r.figures(p, always)
		if len(values.values) == 0 {
			continue
		}
		base := ""
		if len(baselines.values) > 0 {
			_, m, _ := baselines.of()
			base = fmt.Sprintf("%.4g", m)
		}
		least, median, greatest := values.of()
		fmt.Fprintf(&b, "%-12s %-34s %10.4g %10s %10.4g %10.4g %10.4g\n", p.system, p.name, p.bound, base, least, median, greatest)
	}
	for _, line := range r.broken() {
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

// broken are the promises that were not kept and the runs that failed.
func (r *report) broken() (lines []string) {
	for _, x := range r.results {
		if x.Failed != "" {
			lines = append(lines, fmt.Sprintf("%v failed: %s", x.cell, x.Failed))
		}
		for _, m := range x.misses() {
			lines = append(lines, fmt.Sprintf("%v: %s", x.cell, m))
		}
	}
	return lines
}

// verdict is an error where a promise was not kept.
func (r *report) verdict() error {
	if n := len(r.broken()); n > 0 {
		return fmt.Errorf("%d promises are not kept", n)
	}
	if len(r.results) == 0 {
		return errors.New("nothing was run")
	}
	return nil
}

// markdown is the report for docs: each figure by precision, over seeds and
// sets of instructions, and which cells were run.
func (r *report) markdown() string {
	var b strings.Builder
	precisions := r.values(func(x result) string { return x.Precision })
	fmt.Fprintf(&b, "Bits of %s; runs of %s on %s. Median (least to greatest) over the runs listed below.\n\n",
		r.commits, and(r.values(func(x result) string { return x.Date })), strings.Join(r.values(func(x result) string { return x.Device }), "; "))
	fmt.Fprintf(&b, "| system | figure | promised | baseline | %s |\n|---|---|---|---|%s\n", strings.Join(precisions, " | "), strings.Repeat("---|", len(precisions)))
	for _, p := range promises {
		if v, _ := r.figures(p, always); len(v.values) == 0 {
			continue
		}
		sign := "at least"
		if p.lower {
			sign = "at most"
		}
		_, baselines := r.figures(p, always)
		fmt.Fprintf(&b, "| %s | %s | %s %.4g | %v |", p.system, p.name, sign, p.bound, &baselines)
		for _, precision := range precisions {
			v, _ := r.figures(p, func(x result) bool { return x.Precision == precision })
			fmt.Fprintf(&b, " %v |", &v)
		}
		b.WriteString("\n")
	}
	b.WriteString("\nRun, by system, precision and instructions (seeds):\n\n")
	for _, system := range systems() {
		cells := map[string][]string{}
		for _, x := range r.results {
			if x.System == system {
				key := x.Precision + " " + x.ISA
				cells[key] = append(cells[key], fmt.Sprint(x.Seed))
			}
		}
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(cells)) {
			slices.Sort(cells[key])
			parts = append(parts, fmt.Sprintf("%s (%s)", key, strings.Join(cells[key], ", ")))
		}
		if len(parts) == 0 {
			parts = []string{"nothing"}
		}
		fmt.Fprintf(&b, "- %s: %s\n", system, strings.Join(parts, "; "))
	}
	b.WriteString("\n")
	broken := r.broken()
	if len(broken) == 0 {
		b.WriteString("Every promise was kept in every run.\n")
		return b.String()
	}
	b.WriteString("Not kept:\n\n")
	for _, line := range broken {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	return b.String()
}

// byFormat is each figure of each system by format, over seeds.
func (r *report) byFormat() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Bits of %s; %s, %s, %s. Median (least to greatest) of each seed's run.\n", r.commits,
		and(r.values(func(x result) string { return x.Precision })),
		and(r.values(func(x result) string { return x.Date })), strings.Join(r.values(func(x result) string { return x.Device }), "; "))
	for _, system := range systems() {
		var of []promise
		for _, p := range promises {
			if v, _ := r.figures(p, always); p.system == system && len(v.values) > 0 {
				of = append(of, p)
			}
		}
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n| %s |", system)
		for _, p := range of {
			fmt.Fprintf(&b, " %s |", p.name)
		}
		fmt.Fprintf(&b, " seeds |\n|---|%s---|\n", strings.Repeat("---|", len(of)))
		for i, f := range formats {
			is := func(x result) bool { return x.Format == f.name || x.Format == "" && i == 0 }
			if v, _ := r.figures(of[0], is); len(v.values) == 0 {
				continue
			}
			fmt.Fprintf(&b, "| %s |", f.name)
			seeds := 0
			for _, p := range of {
				v, _ := r.figures(p, is)
				fmt.Fprintf(&b, " %v |", &v)
				seeds = len(v.values)
			}
			fmt.Fprintf(&b, " %d |\n", seeds)
		}
	}
	for _, line := range r.broken() {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	return b.String()
}

// values are the different values of a field, sorted.
func (r *report) values(of func(result) string) []string {
	set := map[string]bool{}
	for _, x := range r.results {
		if v := of(x); v != "" {
			set[v] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// cut gives what is before and after the generated part of a document;
// without one it goes to the end.
func cut(doc string) (before, after string) {
	before, rest, ok := strings.Cut(doc, beginDoc)
	if !ok {
		return strings.TrimRight(doc, "\n") + "\n\n", "\n"
	}
	_, after, _ = strings.Cut(rest, endDoc)
	return before, after
}
