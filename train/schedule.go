package train

import (
	"encoding/json"
	"fmt"
	"math"
)

// Schedule determines the learning rate of each update, the first being update 0. All
// shapes first rise linearly from 0 over Warmup updates (Noam has its own rise). There is
// one clock: every number here counts optimizer updates.
type Schedule struct {
	Kind   ScheduleKind
	Peak   float64 // the highest rate; for Noam the factor
	Warmup int64
	Total  int64   // updates of the run
	Floor  float64 // where linear and cosine end, as a share of Peak
	Width  int     // Noam: the model's width
	// Plateau: Factor is applied after Patience evaluations without
	// improvement by more than Threshold (relative), down to Floor*Peak.
	Factor, Threshold float64
	Patience          int

	memory plateau
}

// plateau is the state of the plateau schedule.
type plateau struct {
	Scale float64 `json:"scale"`
	Best  float64 `json:"best"`
	Bad   int     `json:"bad"`
	Seen  bool    `json:"seen"`
}

// ScheduleKind names a shape.
type ScheduleKind string

// The shapes.
const (
	Constant ScheduleKind = "constant"
	Linear   ScheduleKind = "linear"  // to Floor*Peak at the end
	Cosine   ScheduleKind = "cosine"  // half a cosine to Floor*Peak (Loshchilov and Hutter 2017)
	Noam     ScheduleKind = "noam"    // Peak * Width^-0.5 * min(s^-0.5, s*Warmup^-1.5) (Vaswani et al. 2017)
	Plateau  ScheduleKind = "plateau" // constant until the monitored metric stops improving
)

// LR returns the learning rate of an update, counted from 0.
func (s *Schedule) LR(update int64) float64 {
	if s.Kind == Noam {
		n := float64(update + 1)
		return s.Peak / math.Sqrt(float64(s.Width)) * min(1/math.Sqrt(n), n*math.Pow(float64(max(s.Warmup, 1)), -1.5))
	}
	if update < s.Warmup {
		return s.Peak * float64(update) / float64(s.Warmup)
	}
	done := 1.0
	if s.Total > s.Warmup {
		done = min(1, float64(update-s.Warmup)/float64(s.Total-s.Warmup))
	}
	switch s.Kind {
	case Linear:
		return s.Peak * (s.Floor + (1-s.Floor)*(1-done))
	case Cosine:
		return s.Peak * (s.Floor + (1-s.Floor)*0.5*(1+math.Cos(math.Pi*done)))
	case Plateau:
		return max(s.Peak*s.Floor, s.Peak*s.scale())
	default:
		return s.Peak
	}
}

func (s *Schedule) scale() float64 {
	if s.memory.Scale == 0 {
		return 1
	}
	return s.memory.Scale
}

// Observe passes the plateau schedule the monitored metric of an evaluation.
func (s *Schedule) Observe(g Metric, value float64) {
	m := &s.memory
	if s.Kind != Plateau {
		return
	}
	m.Scale = s.scale()
	if finite(value) && (!m.Seen || g.Better(value, m.Best, s.Threshold*math.Abs(m.Best))) {
		m.Best, m.Bad, m.Seen = value, 0, true
		return
	}
	if m.Bad++; m.Bad > s.Patience {
		m.Scale, m.Bad = m.Scale*s.Factor, 0
	}
}

// State returns what a resumed run needs, nil for schedules without memory.
func (s *Schedule) State() (json.RawMessage, error) {
	if s.Kind != Plateau {
		return nil, nil
	}
	return json.Marshal(s.memory)
}

// Restore is the inverse of State.
func (s *Schedule) Restore(state json.RawMessage) error {
	if len(state) == 0 {
		return nil
	}
	return json.Unmarshal(state, &s.memory)
}

// Preview returns the learning rate at n updates spread evenly over the run.
func (s *Schedule) Preview(n int) (updates []int64, rates []float64) {
	for i := range n {
		u := int64(i) * max(s.Total-1, 0) / int64(max(n-1, 1))
		updates, rates = append(updates, u), append(rates, s.LR(u))
	}
	return updates, rates
}

// Warning says what looks wrong with the schedule, empty for nothing.
func (s *Schedule) Warning() string {
	if share := float64(s.Warmup) / float64(max(s.Total, 1)); share > 0.2 {
		return fmt.Sprintf("warm-up takes %d of %d updates (%.0f %%): more than a fifth of the run is spent below the full learning rate; lower training.warmup_steps", s.Warmup, s.Total, 100*share)
	}
	return ""
}
