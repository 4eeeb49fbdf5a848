package train

import (
	"encoding/json"
	"math"
)

// Goal is the metric that decides what is best.
type Goal struct {
	Name   string
	Higher bool // whether more is better
}

// Better reports whether a beats b by more than delta.
func (g Goal) Better(a, b, delta float64) bool {
	if g.Higher {
		return a > b+delta
	}
	return a < b-delta
}

// EarlyStopping ends a run after Patience evaluations that did not improve the
// goal by more than MinDelta. Patience 0 never stops.
type EarlyStopping struct {
	Patience int
	MinDelta float64

	memory struct {
		Best float64 `json:"best"`
		Bad  int     `json:"bad"`
		Seen bool    `json:"seen"`
	}
}

// Observe takes the goal's value and reports whether to stop.
func (e *EarlyStopping) Observe(g Goal, value float64) bool {
	m := &e.memory
	switch {
	case !m.Seen, g.Better(value, m.Best, e.MinDelta):
		if !math.IsNaN(value) {
			m.Best, m.Bad, m.Seen = value, 0, true
		}
	default:
		m.Bad++
	}
	return e.Stops()
}

// Stops reports whether what was observed ends the run.
func (e *EarlyStopping) Stops() bool { return e.Patience > 0 && e.memory.Bad >= e.Patience }

// State is what a resume needs.
func (e *EarlyStopping) State() (json.RawMessage, error) { return json.Marshal(e.memory) }

// Restore is the inverse of State.
func (e *EarlyStopping) Restore(state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	return json.Unmarshal(state, &e.memory)
}

// Outliers flags values that lie far from the recent mean: spikes of the loss
// or of the gradient norm.
type Outliers struct {
	window [128]float64
	n      int
}

// zWarm is how many values must be known before a z-score means anything.
const zWarm = 32

// Observe adds a value and gives its z-score against the values before it, 0
// while too few are known.
func (o *Outliers) Observe(x float64) float64 {
	z := 0.0
	if k := min(o.n, len(o.window)); k >= zWarm {
		mean, sq := 0.0, 0.0
		for _, v := range o.window[:k] {
			mean += v
		}
		mean /= float64(k)
		for _, v := range o.window[:k] {
			sq += (v - mean) * (v - mean)
		}
		if sd := math.Sqrt(sq / float64(k)); sd > 0 {
			z = (x - mean) / sd
		}
	}
	if !math.IsNaN(x) && !math.IsInf(x, 0) {
		o.window[o.n%len(o.window)] = x
		o.n++
	}
	return z
}
