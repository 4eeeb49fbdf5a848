package session

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/train"
)

// Share returns rate, in FLOP/s of training by a report's plan, as a share of the peak; 0 if no peak is
// known. Training that is faster than every measurement is itself a measurement, and raises the peak.
func (s *Setup) Share(of *plan.Report, rate float64) float64 {
	if of.Speed.Peak == 0 {
		return 0
	}
	if p := of.Run.Settings.Precision; rate > of.Speed.Peak && s.rates != nil {
		*s.rates = s.rates.Beaten(p, rate)
		s.beaten = true
		now := s.rates.In(p)
		of.Speed.Peak, of.Speed.PeakName = now.Peak, now.PeakName
	}
	return min(1, rate/of.Speed.Peak)
}

// keepPeak stores a peak that training raised.
func (s *Setup) keepPeak() {
	if s.beaten {
		r := *s.rates
		r.Measurements = 1 // counts this measurement only; earlier ones are already counted
		*s.rates = ratesFolder().keep(s.processor(), r)
		s.beaten = false
	}
}

// processor identifies what the rates of this setup belong to: always the host's processor, whatever device
// is requested.
func (s *Setup) processor() processor {
	return processor{s.Host.CPU.Model, backend.CPU(s.Threads).Arithmetic(), s.Threads}
}

// counter counts the matmul FLOPs of updates.
type counter struct {
	program *engine.Program
	model   float64            // per update, if all micro-batches have one shape
	ranks   int                // number of ranks that share the micro-batches
	micro   map[string]float64 // per micro-batch by its shape, filled on demand
}

func newCounter(p *engine.Program, r *plan.Report) *counter {
	return &counter{p, r.Time.Model, max(1, r.Run.Ranks), map[string]float64{}}
}

// update returns the FLOPs of an update whose micro-batches have these shapes. Recomputation does not count.
func (c *counter) update(variants []string) (sum float64) {
	if variants == nil {
		return c.model
	}
	for i, v := range variants {
		if i%c.ranks != 0 {
			continue // belongs to another rank
		}
		if _, ok := c.micro[v]; !ok {
			c.micro[v] = plan.MicroFLOPs(c.program, v)
		}
		sum += c.micro[v]
	}
	return sum
}

// speedometer adds up the work that a session has done.
type speedometer struct {
	products               *counter
	tokens, flops, seconds float64
	exchange               float64 // included in seconds
	hidden                 float64 // exchange time that overlapped with computing
	updates                int64
}

// update adds an update and returns the FLOPs of its matmuls.
func (m *speedometer) update(s *train.Step) float64 {
	flops := m.products.update(s.Variants)
	m.tokens += float64(s.NewTokens)
	m.flops += flops
	m.seconds += s.Took.Seconds()
	m.exchange += s.Exchange.Seconds()
	m.hidden += s.Hidden.Seconds()
	m.updates++
	return flops
}
