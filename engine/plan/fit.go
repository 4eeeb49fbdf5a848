package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/internal/size"
)

// Search limits the settings that [Planner.Fit] chooses from.
type Search struct {
	// Effective is the batch of an update: micro-batch times accumulation.
	Effective int
	// MaxMicroBatch limits the micro-batch; 0 means Effective.
	MaxMicroBatch int
	// Precisions are those to choose from, at least one.
	Precisions []device.Precision
	// CEChunk fixes the rows of logits at a time; if 0, the planner chooses.
	CEChunk int
	// Offload is what is kept in main memory; if nothing, the planner chooses, where it may.
	Offload Offload
	// Compress keeps the arguments of GELU and SiLU in 8 bits.
	Compress bool
	// NarrowGradients keeps gradients in 16 bits.
	NarrowGradients bool
	// Clip is the norm that gradients are clipped by.
	Clip engine.ClipNorm
	// Recompute fixes the recomputation; if nil, the planner chooses, block by block.
	Recompute *pass.Recompute
}

// Candidate is one of the settings that a search tried.
type Candidate struct {
	Settings Settings `json:"settings"`
	Total    int64    `json:"planned_total_bytes"`
	Time     Timing   `json:"time"`
	Fits     bool     `json:"fits"`
	// Why says why it was not chosen; empty for the choice.
	Why string `json:"why,omitempty"`
}

// Choice is the result of a search.
type Choice struct {
	Best *Report `json:"best"`
	// Candidates are all settings that were planned to the end; the fastest that fits comes first.
	Candidates []Candidate `json:"candidates"`
	// GivenUp are settings of which all that fits is slower than Best, which was known before their bytes were.
	GivenUp []Settings `json:"given_up,omitempty"`
}

// Fit finds the settings with the most predicted tokens/s at the effective batch that fit the target. It
// relies on two facts: more rows need more bytes, and recomputation makes no update faster, except for that of
// elementwise results alone, which is tried in the end. By the time model, settings that it skips could not
// have won. If nothing fits, err is the [DoesNotFit] of the smallest settings that it tried.
func (p *Planner) Fit(s Search) (*Choice, error) {
	if s.Effective < 1 || len(s.Precisions) == 0 {
		return nil, fmt.Errorf("fit wants a batch of at least 1 and a precision, got %d and %v", s.Effective, s.Precisions)
	}
	f := &fitting{p: p, s: s, seen: map[Settings]*Report{}}
	all := divisors(s.Effective, max(1, p.LeastMicroBatch), cmp.Or(s.MaxMicroBatch, s.Effective))
	if len(all) == 0 {
		return nil, fmt.Errorf("fit: a batch of %d is smaller than the model's smallest micro-batch, %d", s.Effective, p.LeastMicroBatch)
	}
	for _, precision := range s.Precisions {
		offloads, err := f.offloads(precision, all)
		if err != nil {
			return nil, err
		}
		for _, o := range offloads {
			if o != s.Offload && f.best != nil && f.best.report.unimpeded(all[len(all)-1]) {
				continue // nothing can be faster
			}
			f.s.Offload = o
			f.batches = p.possible(all, f.s)
			if err := f.precision(precision); err != nil {
				return nil, err
			}
		}
		f.s.Offload = s.Offload
	}
	if f.best == nil {
		_, err := p.Check(f.least())
		var no *DoesNotFit
		if errors.As(err, &no) {
			no.Tried = len(f.seen)
		}
		return nil, err
	}
	if err := f.again(); err != nil {
		return nil, err
	}
	return f.choice(), nil
}

// again tries the best plan, if it recomputes nothing, with elementwise results computed again.
func (f *fitting) again() error {
	s := f.best.report.Run.Settings
	if s.Recompute != pass.RecomputeNone || f.s.Recompute != nil || s.Offload.Has(OffloadActivations) {
		return nil
	}
	best, err := f.p.elementwise(f.best)
	if err != nil {
		return err
	}
	f.best, f.seen[best.report.Run.Settings] = best, best.report
	return nil
}

// offloads returns what may be kept in main memory, in the order in which to search. Where the largest batch does not
// fit as it is, plans with activations there are usually the fastest: once they are known, others are soon given up.
func (f *fitting) offloads(precision device.Precision, batches []int) ([]Offload, error) {
	list := append([]Offload{f.s.Offload}, f.p.choices(f.s.Offload)...)
	i := slices.IndexFunc(list, func(o Offload) bool { return o.Has(OffloadActivations) })
	if i <= 0 || f.s.Recompute != nil {
		return list, nil
	}
	possible := f.p.possible(batches, f.s)
	if n, err := f.largest(precision, f.chunk(precision), possible, pass.RecomputeNone); err != nil || n == len(possible) {
		return list, err
	}
	first := list[i]
	return append([]Offload{first}, slices.Delete(list, i, i+1)...), nil
}

// unimpeded reports whether a plan has the given micro-batch, recomputes nothing and waits for nothing.
func (r *Report) unimpeded(batch int) bool {
	s := r.Run.Settings
	return s.MicroBatch == batch && s.Recompute == pass.RecomputeNone && r.Time.Exposed == 0
}

// chunk returns how many rows of logits the loss computes at once.
func (f *fitting) chunk(p device.Precision) int {
	return cmp.Or(f.s.CEChunk, f.p.Target.LossChunk(p, f.p.Classes))
}

// possible returns the batches that can fit by the model's minimum need, and always the smallest.
func (p *Planner) possible(batches []int, s Search) []int {
	capacity := p.Target.Capacity()
	if capacity == 0 {
		capacity = graph.MostBytes
	}
	return slices.DeleteFunc(slices.Clone(batches), func(b int) bool {
		return b > batches[0] && p.Least.Bytes(Settings{MicroBatch: b, Accumulation: s.Effective / b, Offload: s.Offload, NarrowGradients: s.NarrowGradients}) > float64(capacity)
	})
}

// divisors returns the divisors of n from least to most, ascending.
func divisors(n, least, most int) []int {
	var d []int
	for i := 1; i <= n/i; i++ {
		if n%i == 0 {
			d = append(d, i, n/i)
		}
	}
	slices.Sort(d)
	return slices.DeleteFunc(slices.Compact(d), func(i int) bool { return i < least || i > most })
}

// fitting is the state of a search.
type fitting struct {
	p       *Planner
	s       Search
	batches []int
	seen    map[Settings]*Report
	best    *planned
	givenUp []Settings
	// settled says that something fits, or cannot win, with what is being searched: a precision and what is kept in
	// main memory.
	settled bool
}

// precision searches one precision with the same data in main memory: first with the chunk of logits that costs no time
// by the time model, then, if memory is short, with a quarter of it.
func (f *fitting) precision(p device.Precision) error {
	chunk := f.chunk(p)
	if f.s.Offload.Has(OffloadActivations) {
		return f.away(p, chunk)
	}
	before := f.best
	f.settled = false
	if err := f.search(p, chunk, f.batches); err != nil {
		return err
	}
	if f.s.CEChunk == 0 && chunk > 64 {
		small := max(64, chunk/4)
		switch {
		case !f.settled:
			chunk = small
			ends := slices.Compact([]int{f.batches[0], f.batches[len(f.batches)-1]})
			if err := f.search(p, small, ends); err != nil {
				return err
			}
		case f.best != before:
			i := slices.Index(f.batches, f.best.report.Run.Settings.MicroBatch)
			if f.best.report.Run.Settings.Recompute != pass.RecomputeNone {
				if err := f.climb(p, small, f.batches[i:min(i+2, len(f.batches))]); err != nil {
					return err
				}
			}
			// A smaller chunk may free enough memory for a larger micro-batch.
			if larger := f.batches[i+1:]; len(larger) > 0 {
				if err := f.search(p, small, larger); err != nil {
					return err
				}
			}
		}
	}
	return f.uniform(before, p, chunk)
}

// try plans one candidate and keeps the best. It returns nil if the candidate is [pass.RecomputeAuto] and all that
// fits of it is slower than the best.
func (f *fitting) try(precision device.Precision, chunk, batch int, r pass.Recompute) (*Report, error) {
	s := f.settings(precision, chunk, batch, r)
	d, err := f.p.against(s, f.best)
	if err != nil {
		return nil, err
	}
	if d == nil {
		f.givenUp = append(f.givenUp, s)
		f.settled = true
		return nil, nil
	}
	rep := d.report
	f.seen[rep.Run.Settings] = rep
	f.settled = f.settled || rep.Fits
	if rep.Fits && (f.best == nil || faster(rep, f.best.report)) {
		f.best = d
	}
	return rep, nil
}

// settings returns those of a candidate.
func (f *fitting) settings(precision device.Precision, chunk, batch int, r pass.Recompute) Settings {
	return Settings{MicroBatch: batch, Accumulation: f.s.Effective / batch, Recompute: r, Precision: precision, CEChunk: chunk, Offload: f.s.Offload, Compress: f.s.Compress, NarrowGradients: f.s.NarrowGradients, Clip: f.s.Clip}
}

// beaten reports whether r, and anything at least as slow, cannot win.
func (f *fitting) beaten(r *Report) bool {
	return f.best != nil && !faster(r, f.best.report)
}

// faster orders plans by predicted time, then by memory.
func faster(a, b *Report) bool {
	return cmp.Or(cmp.Compare(a.Time.Update, b.Time.Update), cmp.Compare(a.Total, b.Total)) < 0
}

// search tries one precision and chunk. It looks for the largest micro-batch that fits without recomputation,
// then checks whether recomputation pays for a larger one. The largest of all may be the only micro-batch of
// an update; an update then needs no accumulators, and may fit where a smaller micro-batch does not.
func (f *fitting) search(precision device.Precision, chunk int, batches []int) error {
	plain := pass.RecomputeNone
	if f.s.Recompute != nil {
		plain = *f.s.Recompute
	}
	n, err := f.largest(precision, chunk, batches, plain)
	if err != nil || n == len(batches) || f.s.Recompute != nil {
		return err
	}
	return f.climb(precision, chunk, batches[n:])
}

// largest looks for the largest micro-batch that fits with a recipe, and returns how many fit: all of them also where
// none can win.
func (f *fitting) largest(precision device.Precision, chunk int, batches []int, r pass.Recompute) (int, error) {
	last := len(batches) - 1
	// Nothing is faster than the largest batch.
	bound, err := f.try(precision, chunk, batches[last], r)
	if err != nil {
		return 0, err
	}
	if bound.Fits || f.beaten(bound) {
		f.settled = true
		return len(batches), nil
	}
	lo, hi := 0, last // batches before lo fit; those from hi on do not
	for lo < hi {
		mid := (lo + hi) / 2
		report, err := f.try(precision, chunk, batches[mid], r)
		if err != nil {
			return 0, err
		}
		if report.Fits {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// away tries micro-batches with activations in main memory, from the largest down; with a fixed recipe for as long
// as smaller ones are faster. Smaller micro-batches wait less for copies but pass over the weights more often.
func (f *fitting) away(precision device.Precision, chunk int) error {
	recompute := pass.RecomputeAuto
	if f.s.Recompute != nil {
		recompute = *f.s.Recompute
	}
	var previous *Report
	for _, batch := range slices.Backward(f.batches) {
		if recompute == pass.RecomputeAuto {
			// Nothing is faster with everything on the card and without recomputation, and no smaller batch either.
			s := f.settings(precision, chunk, batch, pass.RecomputeNone)
			if bound, err := f.p.Plan(s.without(OffloadActivations)); err != nil || f.beaten(bound) {
				return err
			}
		}
		r, err := f.try(precision, chunk, batch, recompute)
		if err != nil {
			return err
		}
		if r == nil {
			continue // but an even smaller one may win, with less to keep besides the sums of gradients
		}
		if previous != nil && previous.Fits && faster(previous, r) {
			break
		}
		previous = r
	}
	return nil
}

// climb recomputes for ever larger micro-batches as long as they fit and pay off: the gain shrinks and the
// recomputation grows. It always tries the largest one.
func (f *fitting) climb(precision device.Precision, chunk int, batches []int) error {
	var previous *Report
	for i := 0; i < len(batches); i++ {
		bound, err := f.try(precision, chunk, batches[i], pass.RecomputeNone)
		if err != nil {
			return err
		}
		if f.beaten(bound) {
			continue
		}
		auto, err := f.try(precision, chunk, batches[i], pass.RecomputeAuto)
		if err != nil {
			return err
		}
		if auto == nil {
			continue
		}
		if !auto.Fits || (previous != nil && faster(previous, auto)) {
			i = max(i, len(batches)-2)
		}
		previous = auto
	}
	return nil
}

// uniform tries less recomputation than the best plan uses, if that is new since before, but in every block:
// strong recomputation in a few blocks nearly always needs less memory, but not always. If nothing in this
// precision fits, it tries the smallest and the largest batch with the given chunk.
func (f *fitting) uniform(before *planned, precision device.Precision, chunk int) error {
	if f.s.Recompute != nil || (f.settled && f.best == before) {
		return nil
	}
	var from []*Report
	most := pass.RecomputeNone
	if !f.settled {
		most = pass.RecomputeFull
		for s, r := range f.seen {
			if s.Recompute == pass.RecomputeNone && s.Offload == f.s.Offload && s.Precision == precision && s.CEChunk == chunk &&
				(s.MicroBatch == f.batches[0] || s.Accumulation == 1) && !f.beaten(r) {
				from = append(from, r)
			}
		}
	} else {
		from = []*Report{f.best.report}
		for _, b := range f.best.report.Blocks {
			most = max(most, b.Recompute)
		}
	}
	for _, r := range from {
		s := r.Run.Settings
		for k := pass.RecomputeActivation; k < most; k++ {
			if _, err := f.try(s.Precision, s.CEChunk, s.MicroBatch, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// least returns the settings with the smallest need of all that were tried.
func (f *fitting) least() Settings {
	var least *Report
	for _, r := range f.seen {
		if least == nil || cmp.Or(cmp.Compare(r.Total, least.Total), cmp.Compare(r.Time.Update, least.Time.Update)) < 0 {
			least = r
		}
	}
	return least.Run.Settings
}

func (f *fitting) choice() *Choice {
	c := &Choice{Best: f.best.report, GivenUp: f.givenUp}
	for s, r := range f.seen {
		c.Candidates = append(c.Candidates, Candidate{s, r.Total, r.Time, r.Fits, f.why(r)})
	}
	slices.SortFunc(c.Candidates, func(a, b Candidate) int {
		if a.Fits != b.Fits {
			if a.Fits {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Time.Update, b.Time.Update), cmp.Compare(a.Total, b.Total), strings.Compare(a.Settings.String(), b.Settings.String()))
	})
	return c
}

// why says why r lost.
func (f *fitting) why(r *Report) string {
	best := f.best.report
	if r == best {
		return ""
	}
	if h := r.Host; r.onDevice() && h != nil && !h.Fits {
		return fmt.Sprintf("does not fit: needs %s of main memory, %s short", size.Bytes(h.Total), size.Bytes(h.short()))
	}
	if !r.Fits {
		return fmt.Sprintf("does not fit: %s short", size.Bytes(r.Total-r.Capacity))
	}
	slower := r.Time.Update/best.Time.Update - 1
	if slower == 0 {
		return fmt.Sprintf("as fast, but needs %s more", size.Bytes(r.Total-best.Total))
	}
	var reasons []string
	a, b := r.Run.Settings, best.Run.Settings
	if d := r.Time.Recompute - best.Time.Recompute; d > 0 {
		reasons = append(reasons, fmt.Sprintf("computes again for %s", seconds(d)))
	}
	if d := r.Time.Exposed - best.Time.Exposed; d > 0 {
		reasons = append(reasons, fmt.Sprintf("waits %s for main memory", seconds(d)))
	}
	if a.Precision != b.Precision && r.Speed.Half < best.Speed.Half {
		reasons = append(reasons, fmt.Sprintf("%s matmuls at %s instead of %s", a.Precision, FLOPRate(r.Speed.Half), FLOPRate(best.Speed.Half)))
	}
	if a.Accumulation > b.Accumulation {
		reasons = append(reasons, fmt.Sprintf("passes over weights and gradients %s instead of %d", size.Of(a.Accumulation, "time"), b.Accumulation))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f %% slower: %s", 100*slower, join(reasons)), ": ")
}

// String formats the result of the search.
func (c *Choice) String() string {
	rows := c.rows()
	if len(rows) == 1 {
		return c.Best.String()
	}
	var s strings.Builder
	s.WriteString(c.Best.String())
	s.WriteString("\nwhy not")
	if c.Best.Time.Slow != nil {
		s.WriteString(" (updates at their best)")
	}
	s.WriteString("\n")
	last := len(rows[0]) - 1
	indented(&s, rows, last-2, last-1)
	return s.String()
}

// rows are a head and a row for everything that was not chosen. Chunks and offloading are left out if there are none.
func (c *Choice) rows() (rows [][]string) {
	chunks, offloads := false, false
	for _, k := range c.Candidates {
		chunks, offloads = chunks || k.Settings.CEChunk > 0, offloads || k.Settings.Offload != OffloadNothing
	}
	add := func(precision, batch, recompute, chunk, offload, needs, update, why string) {
		row := []string{precision, batch, recompute}
		if chunks {
			row = append(row, chunk)
		}
		if offloads {
			row = append(row, offload)
		}
		rows = append(rows, append(row, needs, update, why))
	}
	add("precision", "batch", "recompute", "loss chunk", "offload", "needs", "update", "")
	settings := func(k Settings, needs, update, why string) {
		recompute, chunk := k.Recompute.String(), "all rows"
		if k.Recompute == pass.RecomputeSlices {
			recompute = fmt.Sprintf("%d slices", k.Slices)
		}
		if k.CEChunk > 0 {
			chunk = size.Of(k.CEChunk, "row")
		}
		add(string(k.Precision), fmt.Sprintf("%d x %d", k.MicroBatch, max(1, k.Accumulation)), recompute, chunk, k.Offload.String(), needs, update, why)
	}
	for _, k := range c.Candidates {
		if k.Why != "" {
			settings(k.Settings, size.Bytes(k.Total).String(), seconds(k.Time.Update), k.Why)
		}
	}
	for _, k := range c.GivenUp {
		settings(k, "", "", "whatever of it fits is slower")
	}
	return rows
}
