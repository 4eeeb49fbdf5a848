package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
)

// Least is the minimum that a model needs. It is computed from sizes alone, without building anything, so it
// is available at once for any size. It leaves out what is small; no plan of the model needs less.
type Least []Part

// Part is something that a program holds as a whole.
type Part struct {
	Of Holding
	// Count is the number of weights, or of bytes in a row of a micro-batch. It is a float64 because it may
	// exceed an int64.
	Count float64
	// Each is the number of bytes of a trained weight with its moments, by default 12, or of a frozen one, by
	// default 4.
	Each float64
	// Keys names the settings that it grows with, for messages.
	Keys string
}

// Holding says what a part is.
type Holding int

// The kinds of holdings.
const (
	Trained Holding = iota // weights with their moments, and a gradient if it is accumulated
	Frozen                 // only weights
	EachRow                // bytes for each row of a micro-batch
)

// offloadedLeast is the minimum size in bytes of a trained weight on a device that does not hold its moments:
// the weight itself in 16 bits.
const offloadedLeast = 2

// bytes returns the size of the part in settings s.
func (p Part) bytes(s Settings) float64 {
	switch p.Of {
	case Trained:
		each := cmp.Or(p.Each, 12)
		if s.Offload.Has(OffloadOptimizer) {
			each = min(each, offloadedLeast)
		}
		if s.Accumulation > 1 {
			each += 4
			if s.NarrowGradients {
				each -= 2
			}
		}
		return each * p.Count
	case Frozen:
		return cmp.Or(p.Each, 4) * p.Count
	}
	return float64(s.MicroBatch) * p.Count
}

// Tokens returns the rows of a model that reads length tokens and has states of width d: ids in two slots of
// inputs, and 16-bit states.
func Tokens(length, d int) Part {
	return Part{Of: EachRow, Count: engine.Slots*4*float64(length) + 2*size.Float(length, d), Keys: "training.batch_size, data.seq_len or model.d_model"}
}

// With returns the same model with the given bytes per trained weight and its moments.
func (l Least) With(each float64) Least {
	l = slices.Clone(l)
	for i := range l {
		if l[i].Of == Trained {
			l[i].Each = each
		}
	}
	return l
}

// Bytes returns the minimum that a plan in settings s needs.
func (l Least) Bytes(s Settings) (n float64) {
	for _, p := range l {
		n += p.bytes(s)
	}
	return n
}

// hopeless is how many times the capacity the minimum must be to refuse without a plan. Nearer to the
// capacity, a plan tells more than that it does not fit.
const hopeless = 4

// Check refuses settings that cannot fit with any change of the batch or recomputation, or that exceed any
// machine.
func (l Least) Check(s Settings, t Target, leastRows int) error {
	small := s
	small.MicroBatch = max(1, leastRows)
	if most := hopeless * float64(t.Capacity()); most > 0 && l.Bytes(small) > most {
		return l.refuse(small, t)
	}
	if l.Bytes(s) > graph.MostBytes {
		return l.refuse(s, t)
	}
	return nil
}

// Hopeless refuses settings whose [Least] is far more than the capacity.
type Hopeless struct {
	Target   Target   `json:"target"`
	Settings Settings `json:"settings"`
	Least    int64    `json:"least_bytes"`
	// Parameters is the number of parameters counted.
	Parameters int64 `json:"parameters"`
	// Lower names the settings that account for most of it: Largest bytes.
	Lower   string `json:"lower"`
	Largest int64  `json:"largest_bytes"`
}

func (l Least) refuse(s Settings, t Target) *Hopeless {
	h := &Hopeless{Target: t, Settings: s, Least: whole(l.Bytes(s))}
	var parameters, largest float64
	for _, p := range l {
		if p.Of != EachRow {
			parameters += p.Count
		}
		if b := p.bytes(s); b >= largest {
			largest, h.Lower = b, p.Keys
		}
	}
	h.Parameters, h.Largest = whole(parameters), whole(largest)
	return h
}

// whole returns x as an int64, clamped to half the maximum.
func whole(x float64) int64 { return int64(min(x, math.MaxInt64/2)) }

// ExitCode is 3: does not fit.
func (*Hopeless) ExitCode() int { return 3 }

func (h *Hopeless) Error() string {
	has := fmt.Sprintf("no machine has more than %s", size.Bytes(graph.MostBytes))
	if h.Target.Capacity() > 0 {
		has = h.Target.capacityText()
	}
	return fmt.Sprintf("does not fit: at least %s are needed for the %s parameters and a micro-batch of %d, %s: lower %s, by which alone %s are taken",
		size.Bytes(h.Least), size.Thousands(h.Parameters), h.Settings.MicroBatch, has, h.Lower, size.Bytes(h.Largest))
}
