package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/pass"
)

// Search says among which settings [Planner.Fit] chooses.
type Search struct {
	// Effective is the batch of an update: micro-batch times accumulation.
	Effective int
	// MaxMicroBatch bounds the micro-batch; 0: Effective.
	MaxMicroBatch int
	// Precisions to choose from, at least one.
	Precisions []device.Precision
	// CEChunk fixes the rows of logits; 0: the planner chooses.
	CEChunk int
	// Recompute fixes the recomputation; nil: the planner chooses, block by block.
	Recompute *pass.Recompute
}

// Candidate is one of the settings that were tried.
type Candidate struct {
	Settings Settings `json:"settings"`
	Total    int64    `json:"planned_total_bytes"`
	Time     Timing   `json:"time"`
	Fits     bool     `json:"fits"`
	// Why it was not chosen; empty for the choice.
	Why string `json:"why,omitempty"`
}

// Choice is what a search found.
type Choice struct {
	Best *Report `json:"best"`
	// Candidates are all that were compiled, the fastest that fit first.
	Candidates []Candidate `json:"candidates"`
}

// Fit finds the settings with the most predicted tokens/s at the effective batch
// that fit the target. It uses that more rows need more bytes and that no
// recomputation makes a step faster; what it leaves out could not have won by
// the time model. If nothing fits, err is the [DoesNotFit] of the least that it
// tried.
func (p *Planner) Fit(s Search) (*Choice, error) {
	if s.Effective < 1 || len(s.Precisions) == 0 {
		return nil, fmt.Errorf("fit wants a batch of at least 1 and a precision, got %d and %v", s.Effective, s.Precisions)
	}
	f := &fitting{p: p, batches: divisors(s.Effective, cmp.Or(s.MaxMicroBatch, s.Effective)), s: s, seen: map[Settings]*Report{}}
	for _, precision := range s.Precisions {
		for _, chunk := range f.chunks(precision) {
			if err := f.search(precision, chunk); err != nil {
				return nil, err
			}
			if f.best != nil && f.best.Run.Settings.Recompute == pass.RecomputeNone && f.best.Run.Settings.CEChunk == chunk {
				break // smaller chunks could only save memory that is not short
			}
		}
	}
	if f.best == nil {
		_, err := p.Check(f.least())
		var no *DoesNotFit
		if errors.As(err, &no) {
			no.Tried = len(f.seen)
		}
		return nil, err
	}
	return f.choice(), nil
}

// divisors of n up to most, ascending.
func divisors(n, most int) []int {
	var d []int
	for i := 1; i <= min(n, most); i++ {
		if n%i == 0 {
			d = append(d, i)
		}
	}
	return d
}

// fitting is the state of a search.
type fitting struct {
	p       *Planner
	s       Search
	batches []int
	seen    map[Settings]*Report
	best    *Report
}

// chunks to try in a precision: what costs nothing by the model, and a quarter
// of it for when memory is short.
func (f *fitting) chunks(precision device.Precision) []int {
	if f.s.CEChunk > 0 {
		return []int{f.s.CEChunk}
	}
	c := LossChunk(f.p.Target.Speed(precision), precision)
	return []int{c, max(64, c/4)}
}

// try plans one candidate and keeps the best.
func (f *fitting) try(precision device.Precision, chunk, batch int, r pass.Recompute) (*Report, error) {
	rep, err := f.p.Plan(Settings{MicroBatch: batch, Accumulation: f.s.Effective / batch, Recompute: r, Precision: precision, CEChunk: chunk})
	if err != nil {
		return nil, err
	}
	f.seen[rep.Run.Settings] = rep
	if rep.Fits && (f.best == nil || faster(rep, f.best)) {
		f.best = rep
	}
	return rep, nil
}

// beaten reports whether nothing that takes at least as long as r can win.
func (f *fitting) beaten(r *Report) bool {
	return f.best != nil && !faster(r, f.best)
}

// faster orders plans by predicted time, then by need.
func faster(a, b *Report) bool {
	return cmp.Or(cmp.Compare(a.Time.Step, b.Time.Step), cmp.Compare(a.Total, b.Total)) < 0
}

// search looks at one precision and chunk: first for the largest micro-batch
// that fits without recomputation, then whether recomputation pays for a larger
// one. The largest of all may be the only micro-batch of an update; then there
// are no accumulators, and it can fit where a smaller one does not.
func (f *fitting) search(precision device.Precision, chunk int) error {
	plain := pass.RecomputeNone
	if f.s.Recompute != nil {
		plain = *f.s.Recompute
	}
	last := len(f.batches) - 1
	// Without recomputation, the largest batch is as fast as can be.
	if bound, err := f.try(precision, chunk, f.batches[last], plain); err != nil || bound.Fits || f.beaten(bound) {
		return err
	}
	lo, hi := 0, last // batches before lo fit, from hi on they do not
	for lo < hi {
		mid := (lo + hi) / 2
		r, err := f.try(precision, chunk, f.batches[mid], plain)
		if err != nil {
			return err
		}
		if r.Fits {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if f.s.Recompute != nil {
		return nil
	}
	for i := lo; i <= last; i++ {
		bound, err := f.try(precision, chunk, f.batches[i], plain)
		if err != nil {
			return err
		}
		if f.beaten(bound) {
			continue
		}
		fits, err := f.recomputing(precision, chunk, f.batches[i])
		if err != nil {
			return err
		}
		if !fits {
			i = max(i, last-1) // larger ones do not either, but the last may
		}
	}
	return nil
}

// recomputing tries the least recomputation that fits, block by block, and
// whether less of it in every block would do: more of it in some is nearly
// always, but not always, what needs less.
func (f *fitting) recomputing(precision device.Precision, chunk, batch int) (fits bool, err error) {
	auto, err := f.try(precision, chunk, batch, pass.RecomputeAuto)
	if err != nil {
		return false, err
	}
	most := pass.RecomputeFull
	if auto.Fits {
		most = 0
		for _, b := range auto.Blocks {
			most = max(most, b.Recompute)
		}
	}
	for r := pass.RecomputeNorm; r < most; r++ {
		uniform, err := f.try(precision, chunk, batch, r)
		if err != nil || uniform.Fits {
			return true, err
		}
	}
	return auto.Fits, nil
}

// least is what needs the least of all that was tried.
func (f *fitting) least() Settings {
	var least *Report
	for _, r := range f.seen {
		if least == nil || cmp.Or(cmp.Compare(r.Total, least.Total), cmp.Compare(r.Time.Step, least.Time.Step)) < 0 {
			least = r
		}
	}
	return least.Run.Settings
}

func (f *fitting) choice() *Choice {
	c := &Choice{Best: f.best}
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
		return cmp.Or(cmp.Compare(a.Time.Step, b.Time.Step), cmp.Compare(a.Total, b.Total), strings.Compare(a.Settings.String(), b.Settings.String()))
	})
	return c
}

// why says what r lost by.
func (f *fitting) why(r *Report) string {
	best := f.best
	if r == best {
		return ""
	}
	if !r.Fits {
		return fmt.Sprintf("does not fit: needs %s, %s short", Bytes(r.Total), Bytes(r.Total-r.Capacity))
	}
	slower := r.Time.Step/best.Time.Step - 1
	if slower == 0 {
		return fmt.Sprintf("as fast, but needs %s more", Bytes(r.Total-best.Total))
	}
	var reasons []string
	a, b := r.Run.Settings, best.Run.Settings
	if d := r.Time.Recompute - best.Time.Recompute; d > 0 {
		reasons = append(reasons, fmt.Sprintf("computes again for %s", seconds(d)))
	}
	if a.Precision != b.Precision && r.Speed.Half < best.Speed.Half {
		reasons = append(reasons, fmt.Sprintf("%s products at %s instead of %s", a.Precision, FLOPRate(r.Speed.Half), FLOPRate(best.Speed.Half)))
	}
	if a.Accumulation > b.Accumulation {
		reasons = append(reasons, fmt.Sprintf("goes over weights and gradients %d times instead of %d", a.Accumulation, b.Accumulation))
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f %% slower: %s", 100*slower, join(reasons)), ": ")
}

// String is the search's result as a table for people.
func (c *Choice) String() string {
	var s strings.Builder
	s.WriteString(c.Best.String())
	s.WriteString("\nwhy not\n")
	var rows [][]string
	for _, k := range c.Candidates {
		if k.Why == "" {
			continue
		}
		rows = append(rows, []string{k.Settings.String(), Bytes(k.Total).String(), seconds(k.Time.Step), k.Why})
	}
	table(&s, "  ", map[int]bool{1: true, 2: true}, rows)
	return s.String()
}
