// Package plan predicts what a program needs before it runs: its memory, component by component, and its
// time, also on a card that is not present.
//
// It guarantees:
//
//   - The arena's components add up to the program's arena to the byte. What is outside the arena is measured,
//     given by the caller or marked as an estimate ([New]).
//   - Every rung of the ladder is a program that was compiled, never a rule of thumb ([Planner.Ladder]), and what
//     does not fit is refused with numbers ([DoesNotFit]).
//   - Settings found by [Planner.Fit] fit, and no other candidate that it tried both fits and is predicted to be
//     faster.
//
// The time model is a roofline ([Speed]); on a card, work that kernels do one after another is added up
// ([Kernels]). It ranks settings, and is printed next to measured times but never instead of them. For a card
// it is a range ([Slow]), because no card has been measured.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Run is what a plan needs to know about a run besides its program.
type Run struct {
	Settings Settings `json:"settings"`
	// Tokens is the number of tokens in a micro-batch; 0 if it holds other examples.
	Tokens int64 `json:"micro_batch_tokens,omitempty"`
	// Workspace is the memory that kernels need outside the arena, in bytes; on the CPU,
	// [engine.Program.Workspace].
	Workspace int64 `json:"workspace_bytes,omitempty"`
	// Staging is the memory in which a save keeps states that changed before they were written, Data the size of
	// mapped files, whose pages the system drops when it needs room, and Heap what open data adds to the
	// garbage-collected heap. They are bytes of main memory, part of a plan for the CPU.
	Staging int64 `json:"checkpoint_staging_bytes,omitempty"`
	Data    int64 `json:"mapped_data_bytes,omitempty"`
	Heap    int64 `json:"heap_bytes,omitempty"`
	// Ranks is the number of processes that share the micro-batches; 0 means one.
	Ranks int `json:"ranks,omitempty"`
	// Exchange is the main memory that one of several ranks needs, on any device, for gradients besides its
	// own. Room is what it needs for them on its card.
	Exchange int64 `json:"gradient_exchange_bytes,omitempty"`
	Room     int64 `json:"gradient_room_bytes,omitempty"`
	// MPI says that an MPI library, which needs memory of its own, exchanges the gradients.
	MPI bool `json:"mpi,omitempty"`
}

// dataInHeap names the component of [Run.Heap], and forGarbage says why it is larger.
const (
	dataInHeap = "data in the heap"
	forGarbage = "as much again for the garbage collector"
)

// heap returns the memory that the heap takes between collections.
func (r Run) heap() int64 { return 2 * r.Heap }

// microBatches returns how many micro-batches of an update one process computes.
func (r Run) microBatches() int {
	ranks := max(1, r.Ranks)
	return (max(1, r.Settings.Accumulation) + ranks - 1) / ranks
}

// Report is the plan of a program on a target.
type Report struct {
	Target   Target `json:"target"`
	Speed    Speed  `json:"speed"`
	Run      Run    `json:"run"`
	Function string `json:"peak_function"` // the function whose temporaries decide the arena

	Parameters int64    `json:"parameters"`
	Trained    int64    `json:"parameters_trained"`
	Untrained  []string `json:"parameters_without_gradient,omitempty"`

	// Components are in the order of printing, with those of the arena first.
	Components []Component `json:"components"`
	Arena      int64       `json:"arena_bytes"`
	Total      int64       `json:"planned_total_bytes"`
	Capacity   int64       `json:"capacity_bytes"` // of the target; 0 if unknown
	Fits       bool        `json:"fits"`

	// Host is the main memory that a run on a card needs if anything is offloaded to it; otherwise nil.
	Host *MainMemory `json:"host,omitempty"`

	// Largest lists the ten largest temporaries at the peak; those that differ only in the number of their
	// layer count as one. PeakAt is the operation that runs at the peak.
	Largest []Live `json:"largest_at_peak"`
	PeakAt  string `json:"peak_at"`
	// Blocks lists what each block of the model keeps for its backward half.
	Blocks []Block `json:"blocks,omitempty"`

	Time Timing `json:"time"`
	// Scaling predicts the plan with several processes; nil if that was not requested.
	Scaling *Scaling `json:"scaling,omitempty"`
}

// Component is one row of the memory table.
type Component struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	// Arena reports whether it is in the program's arena, whose components are exact.
	Arena bool `json:"arena"`
	// Estimate marks what was not measured.
	Estimate bool   `json:"estimate,omitempty"`
	Note     string `json:"note,omitempty"`
}

// GoRuntime is the assumed memory of the process outside the arena on the CPU: pages of the binary, buffers
// of a run, stacks. It is not measured.
const GoRuntime = 56 << 20

// NCCL is the assumed memory of a card that NVIDIA's library takes for its own buffers. The real size depends
// on the cards, the links between them, and NCCL_BUFFSIZE.
const NCCL = 256 << 20

// MPI is the assumed main memory that an MPI library takes for itself. On one machine, Open MPI 4.1 and 5.0
// and MPICH 4.0 and 5.0 took 13 to 22 MiB with 2 to 8 processes (docs/many-processes.md); the drivers of fast
// networks may take more.
const MPI = 24 << 20

// New plans the program for the target.
func New(p *engine.Program, t Target, r Run) *Report {
	rep := &Report{Target: t, Speed: t.Speed(r.Settings.Precision), Run: r, Untrained: p.Untrained, Arena: p.Layout.Bytes, Capacity: t.Capacity()}
	rep.Parameters, rep.Trained = p.Parameters()
	for _, s := range p.States {
		if s.Role == graph.Weight && slices.Contains(p.Untrained, s.Name) {
			rep.Trained -= s.Type.Shape.Elems()
		}
	}
	rep.states(p)
	rep.temporaries(p)
	l := &p.Layout
	rep.add(Component{Name: "input buffers", Bytes: l.Inputs.Bytes, Arena: true, Note: "one set computed on, one being filled"})
	rep.add(Component{Name: "outputs", Bytes: l.Outputs.Bytes, Arena: true})
	rep.outside()
	for _, c := range rep.Components {
		rep.Total += c.Bytes
	}
	rep.Host = rep.host(p)
	rep.Fits = rep.onDevice() && (rep.Host == nil || rep.Host.Fits)
	rep.Time = Predict(p, rep.Speed, r)
	return rep
}

// onDevice reports whether what is on the target itself fits.
func (r *Report) onDevice() bool { return r.Capacity == 0 || r.required() <= r.Capacity }

// required returns what must be in memory at once: all but mapped files.
func (r *Report) required() int64 { return r.Total - r.Run.Data }

// room returns what the capacity leaves for the arena.
func (r *Report) room() int64 { return r.Capacity - (r.Total - r.Arena) }

// add appends a component unless it is empty.
func (r *Report) add(c Component) {
	if c.Bytes != 0 {
		r.Components = append(r.Components, c)
	}
}

// roles lists the components of the arena's states, in the order of printing.
var roles = [...]struct {
	role graph.Role
	name string
}{
	{graph.Weight, "weights"},
	{graph.Frozen, "frozen weights"},
	{graph.Rounded, "rounded weights"},
	{graph.Buffer, "running statistics"},
	{graph.Gradient, "gradient accumulators"},
	{graph.Moment, "optimizer moments"},
	{graph.OuterMoment, "outer momentum"},
	{graph.Reference, "synchronized weights"},
	{graph.Counter, "counters"},
	{graph.CacheRole, "key and value cache"},
	{graph.Transient, "losses of micro-batches"},
}

func (r *Report) states(p *engine.Program) {
	for _, role := range roles {
		c := Component{Name: role.name, Arena: true}
		var names []string
		for _, s := range p.States {
			if s.Role != role.role || s.Offloaded {
				continue
			}
			c.Bytes += p.Align(s.Type.Bytes())
			if d := s.Type.DType.String(); !slices.Contains(names, d) {
				names = append(names, d)
			}
		}
		if role.role == graph.Moment && p.Shards != nil {
			names = append(names, fmt.Sprintf("the largest part of %d", len(p.Shards.Moments)))
		}
		c.Note = join(names)
		r.add(c)
	}
}

// temporaries splits the function with the largest need by what is live at its peak.
func (r *Report) temporaries(p *engine.Program) {
	if len(p.Funcs) == 0 {
		return
	}
	f := slices.MaxFunc(p.Funcs, func(a, b *engine.Func) int { return cmp.Compare(a.Placement.Bytes, b.Placement.Bytes) })
	r.Function = f.Name
	kinds := classify(f.F)
	var by [kindCount]int64
	var live int64
	for _, v := range f.Placement.AtPeak {
		b := p.Align(v.Type.Bytes())
		by[kinds.of(v)] += b
		live += b
	}
	r.Largest = largest(f.Placement.AtPeak, kinds, 10)
	for k, b := range by {
		r.add(Component{Name: Kind(k).String(), Bytes: b, Arena: true, Note: kindNotes[k]})
	}
	r.add(Component{Name: "packing gaps", Bytes: p.Layout.Temps.Bytes - live, Arena: true})
	if len(f.F.Nodes) > 0 {
		r.PeakAt = label(f.F.Nodes[f.Placement.Peak])
	}
	for _, g := range p.Funcs {
		if b := savedByBlock(p, g); len(b) > 0 {
			r.Blocks = b
			break
		}
	}
}

// mpi returns the assumed memory of the run's MPI library.
func (r *Report) mpi() int64 {
	if r.Run.MPI {
		return MPI
	}
	return 0
}

// outside adds what the process or the card needs outside the arena.
func (r *Report) outside() {
	r.add(Component{Name: "kernel workspace", Bytes: r.Run.Workspace})
	if c := r.Target.Card; c != nil {
		context, measured := c.Context()
		r.add(Component{Name: "device context and libraries", Bytes: context, Estimate: !measured, Note: map[bool]string{true: "as measured with PyTorch"}[measured]})
		r.add(Component{Name: "floor left to the driver", Bytes: device.DriverFloor})
		if r.Run.Room > 0 {
			r.add(Component{Name: "gradient exchange", Bytes: r.Run.Room, Note: "shards of the other ranks"})
			r.add(Component{Name: "NCCL", Bytes: NCCL, Estimate: true, Note: "stated allowance"})
		}
		return
	}
	r.add(Component{Name: "Go runtime", Bytes: GoRuntime, Estimate: true, Note: "stated allowance"})
	r.add(Component{Name: "checkpoint staging", Bytes: r.Run.Staging, Note: "what an update changes before it is written"})
	r.add(Component{Name: "gradient exchange", Bytes: r.Run.Exchange, Note: "shards of the other ranks"})
	r.add(Component{Name: "MPI", Bytes: r.mpi(), Estimate: true, Note: "stated allowance"})
	r.add(Component{Name: "mapped data", Bytes: r.Run.Data})
	r.add(Component{Name: dataInHeap, Bytes: r.Run.heap(), Note: forGarbage})
}
