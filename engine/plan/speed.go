package plan

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Speed is how fast a device works. A node takes Launch plus the longest of its matmuls, its other arithmetic
// and its memory traffic (the roofline of Williams, Waterman and Patterson 2009). On a card, what kernels do
// one after another is added up ([Kernels]).
type Speed struct {
	Half      float64 `json:"half_flops"`         // FLOP/s of large matmuls of 16-bit operands, or of those rounded to TF32
	Full      float64 `json:"full_flops"`         // FLOP/s of large matmuls of F32 operands
	Attention float64 `json:"attention_share"`    // the share of these that attention reaches; 0 means all
	Vector    float64 `json:"vector_flops"`       // FLOP/s of elementwise arithmetic; 0 if it never decides
	Bandwidth float64 `json:"bytes_per_second"`   // for arrays larger than any cache
	Launch    float64 `json:"launch_seconds"`     // overhead of any node
	HostIn    float64 `json:"host_in,omitempty"`  // bytes/s of copies from page-locked main memory to the device
	HostOut   float64 `json:"host_out,omitempty"` // and back; both directions at once
	Peak      float64 `json:"peak_flops"`         // reference for the share of peak (MFU)
	PeakName  string  `json:"peak"`               // its name: "measured bf16 peak"
	Source    string  `json:"source,omitempty"`   // source of the figures
	// Kernels is set only for cards; nil for a processor.
	Kernels *Kernels `json:"kernels,omitempty"`
}

// GPULaunch is the time between two kernels that a captured graph launches one after another, in seconds, by
// the best public figures (docs/gpu.md): 3.4 microseconds for each kernel of 2.9 on a V100. None is known for
// a T4, whose streams take 2.7 for a launch.
const GPULaunch = 0.5e-6

// CardAttention is the assumed share of the speed of large matmuls that attention reaches on a card. On
// Turing, the exponentials and the conversions of the probabilities take about as long as the matmuls.
const CardAttention = 0.5

// CardSpeed returns what is known of a card that computes in p: public measurements if there are any,
// otherwise shares of the specification (see [device.Card.Products]). lower returns its kernels; nil if they
// are unknown.
func CardSpeed(c *device.Card, p device.Precision, lower engine.Lowering) Speed {
	const full = device.FP32
	half := p
	if p != device.FP16 && p != device.BF16 && p != device.TF32 {
		half = full
	}
	s := Speed{Launch: GPULaunch, Attention: CardAttention, Peak: c.Rate(half).Peak, PeakName: fmt.Sprintf("specified %s peak", half)}
	var measured, streams bool
	s.Half, measured = c.MatmulRate(half)
	s.Full, _ = c.MatmulRate(full)
	s.Vector, _ = c.MatmulRate(device.FP32)
	s.Bandwidth, streams = c.Streaming()
	link := HostLink(c).Bandwidth
	s.HostIn, s.HostOut = cmp.Or(c.HostIn, link), cmp.Or(c.HostOut, link)
	s.Kernels = &Kernels{SMs: c.SMs, HalfRate: c.Rate(half), FullRate: c.Rate(full), RowTraffic: c.RowStreaming(), Lower: lower}
	if c.Capability.Major == 7 && c.Capability.Minor == 5 {
		const lanes = 64 // float32 lanes of a multiprocessor
		s.Kernels.Clock = c.FP32.Peak / (2 * lanes * float64(c.SMs))
	}
	matmuls := FLOPRate(s.Half)
	if smaller := s.Kernels.HalfRate.BySize; len(smaller) > 0 {
		matmuls = between(FLOPRate, smaller[0].FLOPs, s.Half) + " by size"
	}
	s.Source = fmt.Sprintf("matmuls at %s (%s), memory at %s (%s)", matmuls, known(measured), ByteRate(s.Bandwidth), known(streams))
	return s
}

func known(measured bool) string {
	if measured {
		return "measured in public"
	}
	return "assumed share of the specification"
}

// Seconds prices a node, for the planner and for the recompute pass.
func (s Speed) Seconds(n *graph.Node) float64 {
	if graph.IsFree(n.Op) {
		return 0
	}
	if in, out := graph.Transferred(n); in+out > 0 {
		return over(float64(in), s.HostIn) + over(float64(out), s.HostOut) + s.Launch
	}
	if list, ok := s.lower([]*graph.Node{n}); ok {
		var sum float64
		for _, l := range list {
			sum += s.Launched(l.Kernel).Total
		}
		return sum
	}
	return s.roofline(n)
}

// roofline prices a node by its cost alone.
func (s Speed) roofline(n *graph.Node) float64 { return s.cost(n, n.Cost()).total() }

// nodeTime is the time that each resource needs for a node, in seconds. Of those that work at the same time
// the longest decides; passes is the time of further kernels.
type nodeTime struct{ matmuls, vector, traffic, passes, launch float64 }

func (t nodeTime) total() float64 {
	return max(t.matmuls, t.vector, t.traffic) + t.passes + t.launch
}

func (s Speed) cost(n *graph.Node, c graph.Cost) nodeTime {
	if s.Kernels != nil {
		return s.cardCost(n, c)
	}
	rate := s.Full
	if half(n) {
		rate = s.Half
	}
	switch n.Op.(type) {
	case graph.Attention, graph.AttentionGrad:
		if s.Attention > 0 {
			rate *= s.Attention
		}
	}
	return nodeTime{matmuls: over(c.MatrixFLOPs, rate), vector: over(c.FLOPs-c.MatrixFLOPs, s.Vector), traffic: over(c.Bytes, s.Bandwidth), launch: s.Launch}
}

// half reports whether the matmuls of a node run at the rates of 16-bit operands, which are also the rates of
// TF32.
func half(n *graph.Node) bool {
	return len(n.In) > 0 && n.In[0].DType().Half() || graph.IsTF32(n.Op)
}

// over returns the time that work takes at a rate; 0 if the rate is unknown (0).
func over(work, rate float64) float64 {
	if rate <= 0 {
		return 0
	}
	return work / rate
}

// Timing is the predicted time of one update.
type Timing struct {
	Update    float64 `json:"update_seconds"`
	Optimizer float64 `json:"optimizer_seconds"` // the part of Update in the optimizer's own function
	Recompute float64 `json:"recompute_seconds"` // the part of Update that recomputes
	// Transfer is how long offloaded data takes to cross between device and host, and Exposed the part of
	// Update in which the device waits for it.
	Transfer float64 `json:"transfer_seconds,omitempty"`
	Exposed  float64 `json:"transfer_exposed_seconds,omitempty"`
	Tokens   float64 `json:"tokens_per_second,omitempty"`
	Examples float64 `json:"examples_per_second"`
	// Model is the FLOPs of an update's matmuls without recomputation. MFU is their share of what the peak
	// could do in Update.
	Model float64 `json:"model_flops"`
	MFU   float64 `json:"mfu"`
	// Bound is the part of Update limited by matmuls rather than memory.
	Bound float64 `json:"matmul_bound_seconds"`
	// Slow is the other end of the range for a card; nil if there is no range.
	Slow *Slow `json:"slow,omitempty"`
	// Run is the time of all updates of a run, without evaluations and saves; 0 if unknown.
	Run float64 `json:"run_seconds,omitempty"`
	// Epoch is the time of one pass over EpochUnits tokens (examples) of training data; 0 if their number is
	// unknown.
	Epoch      float64 `json:"epoch_seconds,omitempty"`
	EpochUnits int64   `json:"epoch_units,omitempty"`
	// Note qualifies a range: nothing was measured.
	Note string `json:"note,omitempty"`
}

// Slow is an update on a card that reaches only [CardReached] of [Speed].
type Slow struct {
	Update   float64 `json:"update_seconds"`
	Run      float64 `json:"run_seconds,omitempty"`
	Epoch    float64 `json:"epoch_seconds,omitempty"`
	Tokens   float64 `json:"tokens_per_second,omitempty"`
	Examples float64 `json:"examples_per_second"`
	MFU      float64 `json:"mfu"`
}

// CardReached is the smallest share of the speed predicted here that public training runs with PyTorch
// reached on a T4 (docs/measurements.md): in fp16, 0.35 with handwritten attention and 0.45 to 0.70 with
// fused kernels; in fp32, 0.72. No card has been measured with snug.
func CardReached(p device.Precision) float64 {
	if p == device.FP32 {
		return 0.72
	}
	return 0.349
}

// Unmeasured is the note for a card's range.
const Unmeasured = "predicted, not measured"

// Rate returns the predicted speed in tokens per second, or in examples if a run has no tokens, and the low
// end of its range, which is the same if there is no range.
func (t Timing) Rate() (best, least float64) {
	slow := t.slow()
	if t.Tokens > 0 {
		return t.Tokens, slow.Tokens
	}
	return t.Examples, slow.Examples
}

// ranged adds the slow end for a card, on which runs reached only a share of the prediction.
func (t *Timing) ranged(share float64) {
	t.Slow = &Slow{Update: t.Update / share, Tokens: t.Tokens * share, Examples: t.Examples * share, MFU: t.MFU * share}
	t.Note = Unmeasured
}

// operation is a node of an update, how often it runs, and its time per run.
type operation struct {
	function string
	node     *graph.Node
	times    float64
	pipes    Pipes
	shared   float64 // of its launch with the operation before
}

// updateFunctions are the functions of an update, in order; of variants the first stands for all.
var updateFunctions = []string{engine.FuncStep, engine.FuncMicro, engine.FuncUpdate, engine.FuncOuterGradient, engine.FuncOuterUpdate}

// operations returns the nodes of an update that do any work.
func (s Speed) operations(p *engine.Program, accumulation int) iter.Seq[operation] {
	return func(yield func(operation) bool) {
		for _, name := range updateFunctions {
			fn := firstVariant(p, name)
			if fn == nil {
				continue
			}
			times := 1.0
			switch {
			case name == engine.FuncMicro:
				times = float64(max(1, accumulation))
			case outerFunction(name):
				times /= float64(p.Outer.InnerSteps)
			}
			for o := range s.nodes(fn) {
				o.function, o.times = name, times
				if !yield(o) {
					return
				}
			}
		}
	}
}

// outerFunction reports whether a function belongs to the outer optimizer.
func outerFunction(name string) bool {
	return name == engine.FuncOuterGradient || name == engine.FuncOuterUpdate
}

// nodes returns those of a function that runs once.
func (s Speed) nodes(f *engine.Func) iter.Seq[operation] {
	return func(yield func(operation) bool) {
		priced, ok := s.priced(f.F.Nodes)
		var before *graph.Node
		for _, n := range f.F.Nodes {
			if graph.IsFree(n.Op) {
				continue
			}
			shared := s.shared(before, n)
			o := operation{f.Name, n, 1, priced[n], shared}
			if !ok {
				o.pipes = s.uncounted(n, shared)
			}
			if !yield(o) {
				return
			}
			before = n
		}
	}
}

// priced returns the times of a function's nodes by their kernels, if these are known. Nodes that share a
// kernel split its time by their traffic.
func (s Speed) priced(nodes []*graph.Node) (map[*graph.Node]Pipes, bool) {
	list, ok := s.lower(nodes)
	if !ok {
		return nil, false
	}
	priced := make(map[*graph.Node]Pipes, len(list))
	for _, l := range list {
		took := s.Launched(l.Kernel)
		if len(l.Also) == 0 {
			p := priced[l.Node]
			p.add(took, 1)
			priced[l.Node] = p
			continue
		}
		of := append([]*graph.Node{l.Node}, l.Also...)
		var all float64
		for _, n := range of {
			all += n.Cost().Bytes
		}
		for _, n := range of {
			p, share := priced[n], 1.
			if all > 0 {
				share = n.Cost().Bytes / all
			}
			p.add(took, share)
			priced[n] = p
		}
	}
	return priced, true
}

// Predict returns the time of an update: the micro-batches one after another, shared by the ranks, then the
// optimizer. The first variant stands for all. Waiting for the exchange of gradients is not included.
func Predict(p *engine.Program, s Speed, r Run) Timing {
	var t Timing
	acc := float64(max(1, r.Settings.Accumulation))
	bus := crossing{speed: s}
	for l := range s.operations(p, r.microBatches()) {
		if bus.transfers(l) {
			continue
		}
		bus.compute(l, l.pipes.Total)
		sec := l.times * l.pipes.Total
		t.Update += sec
		if l.node.Clone {
			t.Recompute += sec
		} else {
			t.Model += l.times * l.node.Cost().MatrixFLOPs
		}
		if l.pipes.multiplies() {
			t.Bound += sec
		}
		if l.function == engine.FuncUpdate || outerFunction(l.function) {
			t.Optimizer += sec
		}
	}
	bus.end()
	t.Transfer, t.Exposed = bus.used, bus.exposed
	t.Update += t.Exposed
	t.Optimizer += bus.optimizer
	if t.Update > 0 {
		t.Tokens = acc * float64(r.Tokens) / t.Update
		t.Examples = acc * float64(r.Settings.MicroBatch) / t.Update
		t.MFU = over(t.Model/t.Update, s.Peak)
		if s.Kernels != nil {
			t.ranged(CardReached(r.Settings.Precision))
		}
	}
	return t
}

// MicroFLOPs counts the FLOPs of matmuls in a micro-batch of a variant, without recomputation.
func MicroFLOPs(p *engine.Program, variant string) (sum float64) {
	for _, f := range p.Funcs {
		if f.Name != engine.Variant(engine.FuncStep, variant) && f.Name != engine.Variant(engine.FuncMicro, variant) {
			continue
		}
		for _, n := range f.F.Nodes {
			if !n.Clone && !graph.IsFree(n.Op) {
				sum += n.Cost().MatrixFLOPs
			}
		}
	}
	return sum
}

// Function returns the time of one call of a function.
func (s Speed) Function(f *engine.Func) (seconds float64) {
	for o := range s.nodes(f) {
		seconds += o.pipes.Total
	}
	return seconds
}

// firstVariant returns the function called name, or its first variant.
func firstVariant(p *engine.Program, name string) *engine.Func {
	for _, f := range p.Funcs {
		if engine.IsVariant(f.Name, name) {
			return f
		}
	}
	return nil
}
