package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

// measured is what --json prints.
type measured struct {
	Workload  string `json:"workload"`
	Device    string `json:"device"`
	Precision string `json:"precision"`
	Optimizer string `json:"optimizer"`
	// MasterWeights is how weights are kept.
	MasterWeights string  `json:"master_weights"`
	MS            float64 `json:"ms"` // the median
	Best          float64 `json:"best_ms"`
	GFLOPs        float64 `json:"gflops"` // a second
	// MFU is of the card's specified peak in this precision; 0 on a processor.
	MFU    float64 `json:"mfu,omitempty"`
	Joules float64 `json:"joules,omitempty"` // of a step
	// Loading is the seconds that compiling and loading the program took.
	Loading float64 `json:"loading_seconds"`
	Loss    float32 `json:"loss"`
	RSS     int64   `json:"rss"` // the peak
	Arena   int64   `json:"arena_bytes"`
	// Planned and Used are bytes of a card, by the plan and by its driver.
	Planned int64 `json:"card_planned_bytes"`
	Used    int64 `json:"card_used_bytes"`
	// Matmuls says what computes them, and what memory of a card cuBLASLt's own code takes, which is in no plan.
	Matmuls string `json:"matmuls,omitempty"`
	Weights string `json:"weights"` // their hash
	// Operations are timed one by one, in a program whose operations wait for each other.
	Operations []plan.ProfileRow `json:"operations,omitempty"`
}

// result sums up the measured times.
func result(o options, w workload, e *engine.Executable, m *memory, ms []float64) (r measured, err error) {
	slices.Sort(ms)
	median := ms[len(ms)/2]
	s := device.NewSampler()
	peak := s.Sample().PeakRSS
	if err := s.Close(); err != nil {
		return r, err
	}
	loss, err := e.OutputF32(engine.FuncStep, engine.OutputLoss)
	if err != nil {
		return r, err
	}
	r = measured{
		Workload: w.name, Device: e.Backend().Name(), Precision: o.Precision, Optimizer: o.Optimizer, MasterWeights: o.MasterWeights, MS: median, Best: ms[0], GFLOPs: w.gflop / median * 1e3, Joules: m.joules,
		Loss: loss[0], RSS: peak, Arena: e.Program().Layout.Bytes, Planned: m.planned, Used: m.used,
	}
	if speed, ok, err := cardSpeed(o, e.Backend()); err != nil {
		return r, err
	} else if ok && speed.Peak > 0 {
		r.MFU = 1e9 * r.GFLOPs / speed.Peak
	}
	_, r.Matmuls = e.Matmuls()
	r.Weights, err = hash(e)
	return r, err
}

// cardSpeed is what is known of the card; ok is false on a processor.
func cardSpeed(o options, on engine.Backend) (s plan.Speed, ok bool, err error) {
	card, _, err := backend.CardOf(on)
	if card == nil || err != nil {
		return s, false, err
	}
	precision, err := device.ParsePrecision(o.Precision)
	return plan.CardSpeed(card, precision, backend.Lower(card)), true, err
}

// print says it to people.
func (r *measured) print(w workload) {
	fmt.Printf("workload %s, %s: %.1f ms a step (best %.1f), %.0f GFLOP/s, peak RSS %v, arena %v, loss %.4f\n",
		w.name, r.Precision, r.MS, r.Best, r.GFLOPs, size.Bytes(r.RSS), size.Bytes(r.Arena), r.Loss)
}

// operations times every node of three steps and sums up by operation, next to the times
// that are predicted: for a card by its model, for a processor by its measured speed.
func (r *measured) operations(o options, e *engine.Executable) error {
	speed, ok, err := cardSpeed(o, e.Backend())
	if err != nil {
		return err
	}
	if !ok {
		precision, err := device.ParsePrecision(o.Precision)
		if err != nil {
			return err
		}
		rates, err := plan.Calibrate(e.Backend())
		if err != nil {
			return err
		}
		speed = rates.In(precision)
	}
	const steps = 3
	profile := plan.Profile{Shapes: o.Shapes}
	var took time.Duration
	if took, err = profile.Run(e, []string{engine.FuncStep}, steps); err != nil {
		return err
	}
	r.Operations = profile.Rows(speed)
	if !o.JSON {
		fmt.Printf("\n%s%d steps took %.1f ms each with every node timed\n", profile.Table(speed), steps, 1e3*took.Seconds()/steps)
	}
	return nil
}
