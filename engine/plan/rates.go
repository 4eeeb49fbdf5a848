package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/internal/size"
)

// Rates are the speeds of this machine's processor, as [Calibrate] measured them with the executor that will
// train.
type Rates struct {
	F32           float64       `json:"f32"` // FLOP/s of matmuls, by the format of the operands
	BF16          float64       `json:"bf16"`
	F16           float64       `json:"f16"`
	Attention     float64       `json:"attention"` // FLOP/s of attention's matmuls on F32 operands
	AttentionBF16 float64       `json:"attention_bf16"`
	Vector        float64       `json:"vector"`    // FLOP/s of elementwise arithmetic in the cache
	Bandwidth     float64       `json:"bandwidth"` // bytes/s of arrays larger than the cache
	Launch        time.Duration `json:"launch_ns"` // overhead of any node
	Workers       int           `json:"workers"`
	// Measurements is the number of measurements that these are the best of.
	Measurements int `json:"measurements"`
}

// In returns the speed of training in precision p. The peak is the highest matmul rate seen; what else a
// processor could reach is unknown. A format that the processor cannot multiply is computed in fp32, and the
// peak is then that of fp32.
func (r Rates) In(p device.Precision) Speed {
	s := Speed{Half: r.F32, Full: r.F32, Vector: r.Vector, Bandwidth: r.Bandwidth, Launch: r.Launch.Seconds()}
	attention, peak := r.Attention, device.FP32
	switch p {
	case device.BF16:
		s.Half, attention = r.BF16, r.AttentionBF16
	case device.FP16:
		s.Half = r.F16
	}
	s.Attention = over(attention, s.Half)
	s.Peak = max(r.F32, r.Attention)
	if own := max(s.Half, attention); own > s.Peak {
		s.Peak, peak = own, p
	}
	s.PeakName = fmt.Sprintf("measured %s peak", peak)
	if r.Workers > 0 {
		s.Source = fmt.Sprintf("measured on %s (the best of %d): matmuls at %s, memory at %s", size.Of(r.Workers, "worker"), max(1, r.Measurements), FLOPRate(s.Half), ByteRate(s.Bandwidth))
	}
	return s
}

// Best returns the better of two measurements for every rate, because any other load on the machine lowers
// rates.
func (r Rates) Best(o Rates) Rates {
	a, b := r.rates(), o.rates()
	for i, v := range a {
		*v = max(*v, *b[i])
	}
	if r.Launch == 0 || o.Launch > 0 && o.Launch < r.Launch {
		r.Launch = o.Launch
	}
	r.Workers = max(r.Workers, o.Workers)
	r.Measurements += o.Measurements
	return r
}

// Beaten returns the rates of a processor that reached the given matmul rate while training in precision p.
func (r Rates) Beaten(p device.Precision, rate float64) Rates {
	own := &r.F32
	switch p {
	case device.BF16:
		own = &r.BF16
	case device.FP16:
		own = &r.F16
	}
	if rate > r.In(p).Peak && possible(rate) {
		*own = rate
	}
	return r
}

// Valid reports whether these are plausible rates of a processor.
func (r Rates) Valid() bool {
	return r.Workers > 0 && r.Measurements > 0 && r.Launch > 0 && r.Launch < time.Second &&
		!slices.ContainsFunc(r.rates(), func(v *float64) bool { return !possible(*v) })
}

// rates returns the figures for which higher is better.
func (r *Rates) rates() []*float64 {
	return []*float64{&r.F32, &r.BF16, &r.F16, &r.Attention, &r.AttentionBF16, &r.Vector, &r.Bandwidth}
}

// possible reports whether a rate is below what any processor could reach.
func possible(rate float64) bool { return rate > 0 && rate < 1e16 }
