package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/regular"
)

type reportCmd struct {
	Results []string `arg:"" type:"existingfile" help:"results.jsonl of one call or several, the earlier first: of a part the last result counts."`
}

// part is a line of results.jsonl.
type part struct {
	Name    string            `json:"part"`
	Result  string            `json:"result"` // ok, or what went wrong
	Seconds float64           `json:"seconds"`
	Data    []json.RawMessage `json:"data"`
}

// figures is anything that a part printed, by the names that the programs give it.
type figures struct {
	// of this machine
	Date, Card, Driver, Precision, Torch string
	// conformance
	Cases, Failed int
	Failing       []string
	// losses
	Losses  int
	Largest float64 `json:"largest_difference"`
	Run     string
	// memory, planned and measured
	Planned int64 `json:"card_planned_bytes"`
	Used    int64 `json:"card_used_bytes"`
	Matmuls string
	// making kernels ready
	Kernels int
	Load    float64 `json:"load_seconds"`
	Use     map[string]struct {
		Local int `json:"local_bytes"`
	}
	// bench/workload and the PyTorch programs
	MS       float64
	MFU      float64
	Joules   float64
	Mode     string
	Reserved int64 `json:"card_bytes"`
	// snug bench
	Sweeps []struct {
		Rows []struct {
			Median     float64           `json:"update_seconds_median"`
			Predicted  float64           `json:"update_seconds_predicted"`
			Joules     float64           `json:"joules_per_update"`
			Used       int64             `json:"card_used_bytes"`
			MFU        float64           `json:"flops_utilization"`
			Operations []plan.ProfileRow `json:"operations"`
		}
	}
	Operations []plan.ProfileRow
	// matmuls that cuBLASLt could compute
	Products []product
	// kernels, of both sides
	Kernel    string
	Time      float64 `json:"seconds"`
	ByTorch   float64 `json:"torch_seconds"`
	Predicted float64 `json:"predicted_seconds"`
	FLOPs     float64 `json:"matrix_flops"`
	Bytes     float64
	Peak      float64 `json:"peak_flops"`
	Bandwidth float64 `json:"peak_bytes_per_second"`
}

// product is a matmul by snug's kernels and by cuBLASLt, with its epilogue: engine/cuda.Choice.
type product struct {
	Product   string
	Algorithm []byte  // of cuBLASLt; nil: snug's kernels are faster
	Ours      float64 `json:"snug_us"`
	Library   float64 `json:"cublaslt_us"`
}

// Run implements the command.
func (c *reportCmd) Run() error {
	r := &results{}
	for _, path := range c.Results {
		raw, err := regular.Read(path, math.MaxInt64)
		if err != nil {
			return err
		}
		r.read(raw)
	}
	if len(r.parts) == 0 {
		return errors.New("no results")
	}
	w := bufio.NewWriter(os.Stdout)
	r.write(w)
	return w.Flush()
}

// results are those of the parts, each once, in the order in which they were run first.
type results struct {
	parts      []part
	unreadable int // lines
}

// read adds the lines of a file. What cannot be read, as after a crash, is counted.
func (r *results) read(raw []byte) {
	for line := range bytes.Lines(raw) {
		var p part
		if json.Unmarshal(line, &p) != nil || p.Name == "" {
			r.unreadable++
			continue
		}
		i := slices.IndexFunc(r.parts, func(q part) bool { return q.Name == p.Name })
		if i >= 0 && p.Name == "matmuls" { // each call has measured others
			p.Data = append(r.parts[i].Data, p.Data...)
		}
		switch {
		case i < 0:
			r.parts = append(r.parts, p)
		case p.Result == "ok" || r.parts[i].Result != "ok":
			r.parts[i] = p
		}
	}
}

// figures are what a part printed; what is not an object of figures is left out.
func (p part) figures() (list []figures) {
	for _, raw := range p.Data {
		var f figures
		if json.Unmarshal(raw, &f) == nil {
			list = append(list, f)
		}
	}
	return list
}

// all are the figures of the parts whose names begin so.
func (r *results) all(prefix string) (list []figures) {
	for _, p := range r.parts {
		if strings.HasPrefix(p.Name, prefix) {
			list = append(list, p.figures()...)
		}
	}
	return list
}

func (r *results) write(w io.Writer) {
	head := append(r.all("about"), figures{})[0]
	put(w, "## %s %s\n\n`bench/gpu.sh`, matmuls in %s; driver %s; PyTorch %s.\n\n", head.Date, head.Card, head.Precision, head.Driver, cmp.Or(head.Torch, "not found"))
	put(w, "| part | result | s | |\n|---|---|---:|---|\n")
	for _, p := range r.parts {
		if p.Name != "about" {
			put(w, "| %s | %s | %.0f | %s |\n", p.Name, p.Result, p.Seconds, p.remark())
		}
	}
	if r.unreadable > 0 {
		put(w, "\nLines of the results that cannot be read, and are left out: %d.\n", r.unreadable)
	}
	r.timings(w)
	r.kernels(w)
	r.matmuls(w)
	r.operations(w)
}

func put(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // Flush reports errors

// remark is what a part found, in a few words.
func (p part) remark() string {
	var said []string
	for _, f := range p.figures() {
		switch {
		case f.Cases > 0 && f.Failed > 0:
			said = append(said, fmt.Sprintf("%d of %d cases fail: %s", f.Failed, f.Cases, strings.Join(f.Failing[:min(5, len(f.Failing))], ", ")))
		case f.Cases > 0:
			said = append(said, fmt.Sprintf("%d cases", f.Cases))
		case f.Losses > 0:
			said = append(said, fmt.Sprintf("%s: %d losses, at most %.2g %% off", f.Run, f.Losses, 100*f.Largest))
		case p.Name == "memory":
			text := fmt.Sprintf("planned %s, used %s", gib(f.Planned), gib(f.Used))
			if f.Run != "" {
				text = f.Run + ": " + text
			}
			if f.Matmuls != "" {
				text += " (" + f.Matmuls + ")"
			}
			said = append(said, text)
		case p.Name == "code":
			said = append(said, f.code())
		}
	}
	return strings.Join(said, "; ")
}

// code says what making kernels ready took, and which the driver's assembler made to spill.
func (f *figures) code() string {
	text := fmt.Sprintf("%d kernels, the driver's folder %s: %.3f s", f.Kernels, f.Run, f.Load)
	var spill []string
	for name, u := range f.Use {
		if u.Local > 0 {
			spill = append(spill, name)
		}
	}
	if slices.Sort(spill); len(spill) > 0 {
		text += ", registers are spilled by " + strings.Join(spill, ", ")
	}
	return text
}

// side is one contestant at a work.
type side struct {
	ms, joules []float64
	used       int64
	mfu        float64
}

// timings are the works that both sides did in turns: names are WORK.snug.ROUND and
// WORK.torch.ROUND.
func (r *results) timings(w io.Writer) {
	type work struct {
		name  string
		sides map[string]*side
	}
	var works []*work
	for _, p := range r.parts {
		name, rest, ok := strings.Cut(p.Name, ".")
		who, _, numbered := strings.Cut(rest, ".")
		if !ok || !numbered {
			continue
		}
		i := slices.IndexFunc(works, func(x *work) bool { return x.name == name })
		if i < 0 {
			i = len(works)
			works = append(works, &work{name, map[string]*side{}})
		}
		for _, f := range p.figures() {
			one := side{used: max(f.Used, f.Reserved), mfu: f.MFU}
			mode := cmp.Or(f.Mode, who)
			if mode != who && mode != "eager" {
				mode = "compiled"
			}
			ms, joules := f.MS, f.Joules
			for _, s := range f.Sweeps {
				for _, row := range s.Rows {
					ms, joules, one.used, one.mfu = 1e3*row.Median, row.Joules, row.Used, row.MFU
				}
			}
			s := works[i].sides[mode]
			if s == nil {
				s = &one
				works[i].sides[mode] = s
			}
			s.ms = append(s.ms, ms)
			if joules > 0 {
				s.joules = append(s.joules, joules)
			}
		}
	}
	if len(works) == 0 {
		return
	}
	put(w, "\nAn update in turns, medians of the rounds; memory as the driver counts it:\n\n"+
		"| work | snug ms | eager | compiled | snug / eager | snug / compiled | MFU snug | compiled | J snug | compiled | GiB snug | eager | compiled |\n"+
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	var verdicts []string
	for _, x := range works {
		get := func(mode string) side {
			if s := x.sides[mode]; s != nil {
				return *s
			}
			return side{}
		}
		snug, eager, compiled := get("snug"), get("eager"), get("compiled")
		a, b, c := median(snug.ms), median(eager.ms), median(compiled.ms)
		put(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", x.name, number("%.1f", a), number("%.1f", b), number("%.1f", c),
			number("%.2f", over(a, b)), number("%.2f", over(a, c)), number("%.1f %%", 100*snug.mfu), number("%.1f %%", 100*over(snug.mfu*a, c)),
			number("%.2f", median(snug.joules)), number("%.2f", median(compiled.joules)), gib(snug.used), gib(eager.used), gib(compiled.used))
		time := mostTime
		if x.name == "gpt2" {
			time = mostTimeGPT2
		}
		verdicts = append(verdicts, fmt.Sprintf("| %s | %s | %s |\n", x.name, verdict(over(a, c), time), verdict(over(float64(snug.used), float64(compiled.used)), mostMemory)))
	}
	put(w, "\nThe goals, as shares of compiled PyTorch's time and memory:\n\n| work | time | memory |\n|---|---|---|\n%s", strings.Join(verdicts, ""))
}

// The goals, as shares of what compiled PyTorch takes. Works of the size that suits a T4 are bound by launches
// on a larger card, which snug captures in graphs; GPT-2 124M is bound by its products.
const (
	mostTime, mostTimeGPT2 = 0.5, 0.95
	mostMemory             = 0.6
)

// verdict compares a measured share with a goal.
func verdict(share, most float64) string {
	switch {
	case share == 0:
		return fmt.Sprintf("not measured, at most %.2f", most)
	case share <= most:
		return fmt.Sprintf("%.2f of %.2f: met", share, most)
	}
	return fmt.Sprintf("%.2f of %.2f: MISSED", share, most)
}

// kernels are single operations of both sides, those first that lag most.
func (r *results) kernels(w io.Writer) {
	list := slices.DeleteFunc(r.all("kernels"), func(f figures) bool { return f.Kernel == "" })
	torch := map[string]float64{}
	for _, f := range list {
		if f.ByTorch > 0 {
			torch[f.Kernel] = f.ByTorch
		}
	}
	list = slices.DeleteFunc(list, func(f figures) bool { return f.Time == 0 })
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b figures) int {
		return cmp.Compare(over(b.Time, torch[b.Kernel]), over(a.Time, torch[a.Kernel]))
	})
	put(w, "\nSingle operations, those first that lag PyTorch most (both sides timed by events of the card, which hold a launch):\n\n"+
		"| operation | us | TFLOP/s | of peak | GB/s | of peak | predicted us | measured / predicted | PyTorch us | snug / PyTorch |\n"+
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, f := range list {
		put(w, "| %s | %.1f | %s | %s | %s | %s | %s | %s | %s | %s |\n", f.Kernel, 1e6*f.Time, number("%.1f", f.FLOPs/f.Time/1e12), number("%.0f %%", 100*over(f.FLOPs/f.Time, f.Peak)),
			number("%.0f", f.Bytes/f.Time/1e9), number("%.0f %%", 100*over(f.Bytes/f.Time, f.Bandwidth)), number("%.1f", 1e6*f.Predicted),
			number("%.2f", over(f.Time, f.Predicted)), number("%.1f", 1e6*torch[f.Kernel]), number("%.2f", over(f.Time, torch[f.Kernel])))
	}
}

// mostMatmuls are written.
const mostMatmuls = 40

// matmuls are those that cuBLASLt could compute, those first that take snug's kernels longest.
func (r *results) matmuls(w io.Writer) {
	var list []product
	taken := 0
	for _, f := range r.all("matmuls") {
		for _, p := range f.Products {
			if p.Ours > 0 && !slices.ContainsFunc(list, func(q product) bool { return q.Product == p.Product }) {
				list = append(list, p)
				taken += min(len(p.Algorithm), 1)
			}
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b product) int { return cmp.Or(cmp.Compare(b.Ours, a.Ours), cmp.Compare(a.Product, b.Product)) })
	put(w, "\nMatmuls in the programs' places, with their epilogues; cuBLASLt computes %d of %d:\n\n| matmul | snug us | cuBLASLt us | cuBLASLt / snug |\n|---|---:|---:|---:|\n", taken, len(list))
	for _, p := range list[:min(mostMatmuls, len(list))] {
		put(w, "| %s | %.1f | %s | %s |\n", p.Product, p.Ours, number("%.1f", p.Library), number("%.2f", over(p.Library, p.Ours)))
	}
}

// mostOperations of a work are written.
const mostOperations = 8

// operations are where the time of an update goes.
func (r *results) operations(w io.Writer) {
	for _, p := range r.parts {
		for _, f := range p.figures() {
			rows := f.Operations
			for _, s := range f.Sweeps {
				for _, row := range s.Rows {
					rows = append(rows, row.Operations...)
				}
			}
			// The first round of a work stands for it.
			if len(rows) == 0 || strings.HasSuffix(p.Name, ".2") {
				continue
			}
			put(w, "\nWhere the time of %s goes, operation by operation:\n\n| operation | runs | share | ms | measured / predicted | TFLOP/s | GB/s |\n|---|---:|---:|---:|---:|---:|---:|\n", p.Name)
			var all float64
			for _, o := range rows {
				all += o.Measured
			}
			for _, o := range rows[:min(mostOperations, len(rows))] {
				put(w, "| %s | %d | %.1f %% | %.2f | %s | %s | %s |\n", o.Op, o.Runs, 100*over(o.Measured, all), 1e3*o.Measured,
					number("%.2f", over(o.Measured, o.Predicted)), number("%.1f", over(o.MatrixFLOPs, o.Measured)/1e12), number("%.0f", over(o.Bytes, o.Measured)/1e9))
			}
		}
	}
}

// number is v as text; a dash where it is not known (0).
func number(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func gib(bytes int64) string { return number("%.2f", float64(bytes)/(1<<30)) }

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// median of values; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
