package train

import (
	"encoding/json"
	"math"
)

// Metric is the monitored metric, which decides what is best.
type Metric struct {
	Name   string
	Higher bool // whether higher is better
}

// Better reports whether a beats b by more than delta.
func (g Metric) Better(a, b, delta float64) bool {
	if g.Higher {
		return a > b+delta
	}
	return a < b-delta
}

// EarlyStopping ends a run after Patience evaluations that did not improve the
// monitored metric by more than MinDelta. Patience 0 never stops.
type EarlyStopping struct {
	Patience int
	MinDelta float64

	memory struct {
		Best float64 `json:"best"`
		Bad  int     `json:"bad"`
		Seen bool    `json:"seen"`
	}
}

// Observe records the monitored metric and reports whether to stop.
func (e *EarlyStopping) Observe(g Metric, value float64) bool {
	m := &e.memory
	// A value that is not finite is not an improvement, not even over no value.
	if finite(value) && (!m.Seen || g.Better(value, m.Best, e.MinDelta)) {
		m.Best, m.Bad, m.Seen = value, 0, true
	} else {
		m.Bad++
	}
	return e.Stops()
}

// Stops reports whether the observed values end the run.
func (e *EarlyStopping) Stops() bool { return e.Patience > 0 && e.memory.Bad >= e.Patience }

// State returns what a resumed run needs.
func (e *EarlyStopping) State() (json.RawMessage, error) { return json.Marshal(e.memory) }

// Restore is the inverse of State.
func (e *EarlyStopping) Restore(state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	return json.Unmarshal(state, &e.memory)
}

// Outliers flags values far from the recent mean: spikes of the loss
// or of the gradient norm. Its JSON form is its state.
type Outliers struct {
	Recent []float64 `json:"recent"` // a ring of the last zWindow finite values
	Seen   int       `json:"seen"`   // finite values so far
}

// z-scores are relative to the last zWindow values, once zWarm are known.
const (
	zWindow = 128
	zWarm   = 64
)

// SpikeZ is the z-score above which a loss or a gradient norm is a spike.
const SpikeZ = 6

// Observe adds a value and returns its z-score against the previous values, 0 while too
// few are known.
func (o *Outliers) Observe(x float64) float64 {
	z := 0.0
	if n := float64(len(o.Recent)); n >= zWarm {
		mean, sq := 0.0, 0.0
		for _, v := range o.Recent {
			mean += v
		}
		mean /= n
		for _, v := range o.Recent {
			sq += (v - mean) * (v - mean)
		}
		if sd := math.Sqrt(sq / n); sd > 0 {
			z = (x - mean) / sd
		}
	}
	if finite(x) {
		if len(o.Recent) < zWindow {
			o.Recent = append(o.Recent, x)
		} else {
			o.Recent[o.Seen%zWindow] = x
		}
		o.Seen++
	}
	return z
}
