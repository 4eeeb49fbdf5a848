package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/snug-ml/snug/data/safetensors"
)

// Tensor is a named array: little-endian, row-major.
type Tensor struct {
	Name  string
	DType safetensors.DType
	Shape []int
	// Data are the elements; SaveAsync copies them. Nil: they are those of the tensor
	// with this name in Snapshot.Live.
	Data []byte
}

// bytes is the size of the elements.
func (t Tensor) bytes() int64 {
	if t.Data != nil {
		return int64(len(t.Data))
	}
	n := int64(t.DType.Bits())
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n / 8
}

// Snapshot is what a save writes. Nothing in it is retained but Live, until the save has
// ended.
type Snapshot struct {
	// Live has the tensors without Data. They are saved as they are now, however they
	// change later.
	Live      Live
	Weights   []Tensor // to model.safetensors; at least one
	Optimizer []Tensor // to optimizer.safetensors; may be empty
	State     State
	Metadata  Metadata
	Files     map[string][]byte // passed through: config.yaml, tokenizer files
	PlanHash  string            // of the compiled program, to tell whether a resume runs the same one
	Metric    *Metric           // what "best" means for retention; nil if not measured
	// Arithmetic is what the updates up to here were computed in, such as
	// "bf16 with cpu kernels avx512": other arithmetic rounds differently.
	Arithmetic string
	Lineage    *Lineage
	Problem    string // what makes the state bad besides its numbers: an evaluation that is not finite
}

// Metric is the held-out figure by which checkpoints are ranked.
type Metric struct {
	Name           string `json:"name"`
	Value          Float  `json:"value"`
	HigherIsBetter bool   `json:"higher_is_better,omitempty"`
	// Loss is that of the same evaluation, which decides between equal values; nil if it was not measured or
	// is the value.
	Loss *Float `json:"loss,omitempty"`
}

// Better reports whether m beats o: by its value or, if that is the same, by a lower loss.
// A number that is not finite, or not there, beats nothing and is beaten by every finite
// one.
func (m Metric) Better(o Metric) bool {
	lower := func(a, b Float) bool { return a.finite() && (!b.finite() || a < b) }
	switch {
	case m.Value.finite() && m.Value == o.Value:
		return lower(m.loss(), o.loss())
	case m.HigherIsBetter:
		return lower(-m.Value, -o.Value)
	}
	return lower(m.Value, o.Value)
}

func (m Metric) loss() Float {
	if m.Loss == nil {
		return Float(math.NaN())
	}
	return *m.Loss
}

// State is everything besides tensors that a bit-exact resume needs. Parts
// that other packages own are kept as they encode them.
type State struct {
	Update    int64                      `json:"update"` // optimizer updates done
	Tokens    int64                      `json:"tokens"` // tokens seen
	RNG       RNG                        `json:"rng"`
	Loader    json.RawMessage            `json:"loader,omitempty"`   // cursor of the data
	Scaler    json.RawMessage            `json:"scaler,omitempty"`   // loss scale and its growth counter
	Schedule  json.RawMessage            `json:"schedule,omitempty"` // schedules with a memory, such as plateau
	EarlyStop json.RawMessage            `json:"early_stop,omitempty"`
	Best      *Metric                    `json:"best,omitempty"` // best so far
	BestAt    int64                      `json:"best_at,omitempty"`
	Extra     map[string]json.RawMessage `json:"extra,omitempty"`
}

// RNG is the position of the counter-based generator.
type RNG struct {
	Seed    uint64 `json:"seed"`
	Counter uint64 `json:"counter"`
}

// Metadata describes the run for people and tools; a resume only continues its
// History. It has no effect on training.
type Metadata struct {
	Snug       string           `json:"snug,omitempty"` // version that wrote it
	Created    string           `json:"created"`        // RFC 3339, by the machine's clock
	System     string           `json:"system,omitempty"`
	Preset     string           `json:"preset,omitempty"`
	Parameters int64            `json:"parameters,omitempty"`
	MaxUpdates int64            `json:"max_updates,omitempty"`
	Epoch      Float            `json:"epoch,omitempty"`
	Documents  int64            `json:"documents,omitempty"`
	Seconds    Float            `json:"seconds,omitempty"` // of training, all sessions
	Metrics    map[string]Float `json:"metrics,omitempty"` // the latest of each
	History    History          `json:"history"`
	Machine    map[string]any   `json:"machine,omitempty"`  // device, precision, threads, host, ...
	Model      map[string]any   `json:"model,omitempty"`    // configuration of the model
	Training   map[string]any   `json:"training,omitempty"` // summary of batch, schedule, precision
	// Performance is what the session that wrote it had measured; nil in older checkpoints.
	Performance *Performance `json:"performance,omitempty"`
}

// Performance is the speed and the memory of a session up to a checkpoint.
type Performance struct {
	Unit           string  `json:"unit"` // tokens, examples
	UnitsPerSecond float64 `json:"units_per_second"`
	Updates        int64   `json:"updates"` // that this was measured over
	BatchSize      int     `json:"batch_size"`
	EffectiveBatch int64   `json:"effective_batch"` // sequences (examples) in an update
	PeakRSS        int64   `json:"peak_rss_bytes"`
	PlannedTotal   int64   `json:"planned_total_bytes"`
	ArenaPlanned   int64   `json:"arena_planned_bytes"`
	CardPeak       int64   `json:"card_peak_bytes,omitempty"` // of the card's memory, by all programs on it
}

// maxHistory bounds a series of History.
const maxHistory = 2048

// Series is a curve, thinned as it grows: once it holds 2048 points every other
// one is dropped and from then on only every second, fourth, ... point is taken,
// so that its size is bounded and it always spans the whole run.
type Series struct {
	Update []int64 `json:"update"`
	Value  []Float `json:"value"`
	Stride int64   `json:"stride"` // points offered for each one kept
	Seen   int64   `json:"seen"`   // points offered
}

// History holds the curves of a run by name: loss, learning_rate, eval_loss, ...
type History map[string]*Series

// Add offers a point to a curve, which it creates if need be.
func (h History) Add(name string, update int64, value float64) {
	s := h[name]
	if s == nil {
		s = &Series{Stride: 1}
		h[name] = s
	}
	if s.Stride < 1 {
		s.Stride = 1
	}
	if s.Seen%s.Stride == 0 {
		if len(s.Update) == maxHistory {
			s.thin()
		}
		if s.Seen%s.Stride == 0 {
			s.Update = append(s.Update, update)
			s.Value = append(s.Value, Float(value))
		}
	}
	s.Seen++
}

func (s *Series) thin() {
	n := 0
	for i := 0; i < len(s.Update); i += 2 {
		s.Update[n], s.Value[n] = s.Update[i], s.Value[i]
		n++
	}
	s.Update, s.Value = s.Update[:n], s.Value[:n]
	s.Stride *= 2
}

// Clone is a deep copy.
func (h History) Clone() History {
	c := make(History, len(h))
	for name, s := range h {
		d := *s
		d.Update, d.Value = slices.Clone(s.Update), slices.Clone(s.Value)
		c[name] = &d
	}
	return c
}

// Float is a float64 whose JSON form also knows NaN and the infinities, as
// strings: a run that has just met a NaN must still be able to save.
type Float float64

func (f Float) finite() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

// MarshalJSON writes a number, or one of "NaN", "+Inf" and "-Inf".
func (f Float) MarshalJSON() ([]byte, error) {
	if v := float64(f); math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.AppendQuote(nil, strconv.FormatFloat(v, 'g', -1, 64)), nil
	}
	return json.Marshal(float64(f))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *Float) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*f = Float(math.NaN())
	case `"+Inf"`:
		*f = Float(math.Inf(1))
	case `"-Inf"`:
		*f = Float(math.Inf(-1))
	case "null":
		return fmt.Errorf("want a number, found null")
	default:
		return json.Unmarshal(text, (*float64)(f))
	}
	return nil
}
