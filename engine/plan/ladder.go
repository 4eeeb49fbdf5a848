package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/internal/size"
)

// Rung is a step of the ladder: a change of settings, compiled.
type Rung struct {
	Change   string   `json:"change"` // the keys and their new values
	Settings Settings `json:"settings"`
	Total    int64    `json:"planned_total_bytes"`
	// Saves is how many bytes it saves, and Cost how much more time an update takes (0.1 is 10 %), compared
	// with the last rung that was taken.
	Saves  int64   `json:"saves_bytes"`
	Cost   float64 `json:"cost"`
	Update float64 `json:"update_seconds"`
	Fits   bool    `json:"fits"`
	// Host is the main memory that offloading needs, in bytes, and HostShort how much of that is missing.
	Host      int64 `json:"host_bytes,omitempty"`
	HostShort int64 `json:"host_short_bytes,omitempty"`
	// Taken reports whether later rungs build on this one, because it saves memory.
	Taken bool `json:"taken"`
	// Instead marks a rung that stands alone and is compared with the first.
	Instead bool `json:"instead,omitempty"`
}

// NewRung returns the rung of a change of settings, with the figures of its plan.
func NewRung(change string, s Settings, r *Report) Rung {
	return Rung{Change: change, Settings: s, Total: r.Total, Update: r.Time.Update, Fits: r.Fits, Host: r.hostBytes(), HostShort: r.Host.short()}
}

// over returns the rung with what it saves and costs compared with another plan.
func (r Rung) over(total int64, update float64) Rung {
	r.Saves, r.Cost = total-r.Total, r.Update/update-1
	return r
}

// Over returns the rung as an alternative to a whole plan.
func (r Rung) Over(asked *Report) Rung {
	r = r.over(asked.Total, asked.Time.Update)
	r.Instead = true
	return r
}

// change is one way to need less memory.
type change struct {
	name  func(from, to Settings) string
	apply func(s Settings) (Settings, bool) // false if there is nothing left to change
}

func recomputeKey(_, to Settings) string {
	if to.Recompute == pass.RecomputeSlices {
		return fmt.Sprintf("training.gradient_checkpointing: %v, training.checkpoint_slices: %d", to.Recompute, to.Slices)
	}
	return fmt.Sprintf("training.gradient_checkpointing: %v", to.Recompute)
}

func chunkKey(_, to Settings) string { return fmt.Sprintf("training.ce_chunk: %d", to.CEChunk) }

func batchKey(_, to Settings) string {
	return fmt.Sprintf("training.batch_size: %d, training.gradient_accumulation_steps: %d", to.MicroBatch, to.Accumulation)
}

func offloadKey(_, to Settings) string {
	return fmt.Sprintf("training.offload: %v", to.Offload)
}

func gradientsKey(_, to Settings) string {
	if to.NarrowGradients {
		return "training.gradient_dtype: bf16"
	}
	return "training.gradient_dtype: fp32"
}

func compressKey(_, to Settings) string {
	if to.Compress {
		return "training.activation_compression: int8"
	}
	return "training.activation_compression: none"
}

func clipKey(_, to Settings) string {
	return fmt.Sprintf("training.clip_norm: %s", cmp.Or(to.Clip, engine.ClipExact))
}

// twoPasses computes gradients once more to find their norm first, so that they need not wait in memory for
// it.
func (p *Planner) twoPasses(s Settings) (Settings, bool) {
	if s.Clip != "" || s.Accumulation > 1 || !p.Clips && !s.Precision.LossScaling() {
		return s, false
	}
	s.Clip = engine.ClipTwoPasses
	return s, true
}

// clipByPrevious uses the norm of the previous update, which changes the updates.
func (p *Planner) clipByPrevious(s Settings) (Settings, bool) {
	if s.Clip == engine.ClipPrevious || s.Accumulation > 1 || !p.Clips || s.Precision.LossScaling() {
		return s, false
	}
	s.Clip = engine.ClipPrevious
	return s, true
}

// compress keeps arguments in 8 bits. This rounds, so it comes after changes that do not.
func compress(s Settings) (Settings, bool) {
	was := s.Compress
	s.Compress = true
	return s, !was
}

// narrowGradients keeps gradients in 16 bits, which also rounds.
func (p *Planner) narrowGradients(s Settings) (Settings, bool) {
	if s.NarrowGradients || p.FullGradients {
		return s, false
	}
	s.NarrowGradients = true
	return s, true
}

// offload keeps more in main memory: all activations, or as few as it takes to fit.
func (p *Planner) offload(o Offload, all bool) func(Settings) (Settings, bool) {
	return func(s Settings) (Settings, bool) {
		if s.Offload.Has(o) || !p.Offload.Has(o) {
			return s, false
		}
		s.Offload |= o
		s.Budget = 0
		if all && s.Offload.Has(OffloadActivations) {
			s.Budget = allAway
		}
		return s, true
	}
}

func withRecompute(r pass.Recompute) func(Settings) (Settings, bool) {
	return func(s Settings) (Settings, bool) {
		if s.Recompute >= r {
			return s, false
		}
		s.Recompute = r
		return s, true
	}
}

// halve reduces the micro-batch to its largest proper divisor, usually half. The batch of an update stays the
// same.
func (p *Planner) halve(s Settings) (Settings, bool) {
	by := leastFactor(s.MicroBatch)
	if by == 1 || s.MicroBatch/by < p.LeastMicroBatch {
		return s, false
	}
	s.MicroBatch /= by
	s.Accumulation = max(1, s.Accumulation) * by
	return s.divided(), true
}

// leastFactor returns the smallest divisor of n above 1, or 1 if there is none.
func leastFactor(n int) int {
	for d := 2; d <= n/d; d++ {
		if n%d == 0 {
			return d
		}
	}
	return max(n, 1)
}

// changes returns the ladder, cheapest first. It divides the micro-batch as often as possible. fits says that
// s already fits.
func (p *Planner) changes(s Settings, fits bool) []change {
	chunk := p.Target.LossChunk(s.Precision, p.Classes)
	list := []change{
		{chunkKey, func(s Settings) (Settings, bool) {
			if s.CEChunk > 0 && s.CEChunk <= chunk {
				return s, false
			}
			s.CEChunk = chunk
			return s, true
		}},
		{recomputeKey, withRecompute(pass.RecomputeActivation)},
		{recomputeKey, withRecompute(pass.RecomputeSelective)},
	}
	for at, ok := p.halve(s); ok; at, ok = p.halve(at) {
		list = append(list, change{batchKey, p.halve})
	}
	return append(list, change{recomputeKey, withRecompute(pass.RecomputeWide)}, change{recomputeKey, withRecompute(pass.RecomputeFull)},
		change{offloadKey, p.offload(OffloadActivations, fits)}, change{offloadKey, p.offload(OffloadOptimizer, fits)},
		change{clipKey, p.twoPasses}, change{gradientsKey, p.narrowGradients}, change{compressKey, compress}, change{clipKey, p.clipByPrevious})
}

// instead returns alternatives, fastest first: more in main memory; gradients that are not kept, or kept in
// 16 bits; and slices rather than smaller micro-batches, so that layers that normalize over the batch keep
// their statistics.
func (p *Planner) instead(s Settings, fits bool) (list []Settings) {
	for _, o := range p.choices(s.Offload) {
		if to, ok := p.offload(o, fits)(s); ok {
			list = append(list, to)
		}
	}
	for _, with := range []func(Settings) (Settings, bool){p.twoPasses, p.narrowGradients, compress, p.clipByPrevious} {
		if to, ok := with(s); ok {
			list = append(list, to)
		}
	}
	for _, n := range slices.Compact([]int{leastFactor(s.MicroBatch), mostSlices(s.MicroBatch)}) {
		if n > 1 && n <= MostSlices && (s.Recompute != pass.RecomputeSlices || s.Slices < n) {
			s.Recompute, s.Slices, s.Budget = pass.RecomputeSlices, n, 0
			list = append(list, s)
		}
	}
	return list
}

// Ladder climbs from s: each rung keeps those earlier changes that saved memory. The first rung is s itself;
// the last ones stand alone.
func (p *Planner) Ladder(s Settings) ([]Rung, error) {
	r, err := p.Plan(s)
	if err != nil {
		return nil, err
	}
	at := r
	first := NewRung("as asked", s, r)
	first.Taken = true
	rungs := []Rung{first}
	for _, c := range p.changes(s, r.Fits) {
		from := at.Run.Settings
		if from.Offload.Has(OffloadActivations) && !first.Fits {
			from.Budget = 0 // as few as needed after the change
		}
		to, ok := c.apply(from)
		if !ok || slices.ContainsFunc(rungs, func(r Rung) bool { return r.Settings == to }) {
			continue
		}
		r, err := p.Plan(to)
		if err != nil {
			return nil, err
		}
		rung := NewRung(c.name(from, to), to, r).over(at.Total, at.Time.Update)
		rung.Taken = r.Total < at.Total
		rungs = append(rungs, rung)
		if rung.Taken {
			at = r
		}
	}
	for _, to := range p.instead(s, first.Fits) {
		if slices.ContainsFunc(rungs, func(r Rung) bool { return r.Settings == to }) {
			continue
		}
		r, err := p.Plan(to)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(rungs, func(less Rung) bool {
			return less.Instead && less.Total == r.Total && to == less.Settings.with(to.Offload)
		}) {
			continue // moving more to main memory saves nothing more
		}
		rung := NewRung(difference(s, to), to, r).over(first.Total, first.Update)
		rung.Instead = true
		rungs = append(rungs, rung)
		if to.Slices > s.Slices && (r.Fits || r.Total >= first.Total) {
			break // more parts are not needed, or save nothing more
		}
	}
	return rungs, nil
}

// FormatLadder formats the ladder as a table.
func FormatLadder(rungs []Rung) string {
	var s strings.Builder
	rows := [][]string{{"change", "needs", "saves", "update", "cost", ""}}
	for i, r := range rungs {
		saves, cost, note := "", "", ""
		if i > 0 {
			saves, cost = size.Bytes(r.Saves).String(), fmt.Sprintf("%+.1f %%", 100*r.Cost)
		}
		switch {
		case r.Instead && r.Saves <= 0:
			note = "instead of the changes above: saves nothing here"
		case r.Instead && r.Fits:
			note = "instead of the changes above: fits"
		case r.Instead:
			note = "instead of the changes above"
		case !r.Taken:
			note = "saves nothing here: left out below"
		case r.Fits:
			note = "fits"
		}
		if r.Host > 0 {
			note = strings.TrimPrefix(fmt.Sprintf("%s, with %s of main memory", note, size.Bytes(r.Host)), ", ")
		}
		if r.HostShort > 0 {
			note += fmt.Sprintf(", %s more than there is", size.Bytes(r.HostShort))
		}
		rows = append(rows, []string{r.Change, size.Bytes(r.Total).String(), saves, seconds(r.Update), cost, note})
	}
	indented(&s, rows, 1, 2, 3, 4)
	return s.String()
}
