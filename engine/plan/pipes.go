package plan

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// Pipes is the time, in seconds, that the units of a card need for an operation, by the instructions that the
// interpreter counted in its kernels (package counts). Each field is how long one unit would be busy; in
// Total, the units of a phase overlap and phases do not.
type Pipes struct {
	Tensor  float64 `json:"tensor_seconds"`
	FP32    float64 `json:"fp32_seconds"`
	FP64    float64 `json:"fp64_seconds"`
	Integer float64 `json:"integer_seconds"`
	XU      float64 `json:"xu_seconds"`
	Issue   float64 `json:"issue_seconds"`
	Shared  float64 `json:"shared_memory_seconds"` // including the sectors that use the same path
	L2      float64 `json:"l2_seconds"`
	Latency float64 `json:"latency_seconds"` // latency that resident blocks do not hide for one another
	Memory  float64 `json:"memory_seconds"`
	Power   float64 `json:"power_seconds"` // time of matmuls at the rate that the card's power allows
	Launch  float64 `json:"launch_seconds"`
	Total   float64 `json:"seconds"`
	// Counted is the part of Total that was counted; the rest comes from the roofline.
	Counted float64 `json:"counted_seconds"`
	// Launches is the number of kernels.
	Launches float64 `json:"launches"`
}

// pipeNames has the order of Pipes.units.
var pipeNames = [...]string{"tensor", "fp32", "fp64", "integer", "xu", "issue", "shared memory", "L2", "latency", "memory", "power", "launch"}

func (p *Pipes) units() [12]*float64 {
	return [...]*float64{&p.Tensor, &p.FP32, &p.FP64, &p.Integer, &p.XU, &p.Issue, &p.Shared, &p.L2, &p.Latency, &p.Memory, &p.Power, &p.Launch}
}

// Limit names the unit that is busy longest.
func (p Pipes) Limit() string {
	best := 0
	units := p.units()
	for i, u := range units {
		if *u > *units[best] {
			best = i
		}
	}
	return pipeNames[best]
}

// multiplies reports whether matmuls are the limit.
func (p Pipes) multiplies() bool {
	limit := p.Limit()
	return limit == "tensor" || limit == "power"
}

// add adds something that runs the given number of times.
func (p *Pipes) add(o Pipes, times float64) {
	to, from := p.units(), o.units()
	for i := range to {
		*to[i] += times * *from[i]
	}
	p.Total += times * o.Total
	p.Counted += times * o.Counted
	p.Launches += times * o.Launches
}

// The work per clock of a multiprocessor of compute capability 7.5. Instructions are per warp: four
// schedulers issue one each, to 64 lanes for float32, 64 for integers, 16 for the rest, 2 for float64, and to
// tensor cores that take two clocks for an m16n8k8. Shared memory shares a path of 64 bytes with loads and
// stores (Jia et al. 2019, arXiv:1903.07486, measured 59 of them, and 1,270 GB/s for a T4's L2).
const (
	clocksTensor, clocksLanes, clocksFP64, clocksXU, clocksIssue = 2, 0.5, 16, 2, 0.25
	clocksWavefront, clocksSector                                = 2, 0.5
	clocksSectorL2                                               = 32. / 20
)

// Pipes prices a node by what was counted, or by the roofline on cards without counts.
func (s Speed) Pipes(n *graph.Node) (p Pipes) {
	if graph.IsFree(n.Op) {
		return p
	}
	if list, ok := s.lower([]*graph.Node{n}); ok {
		for _, l := range list {
			p.add(s.Launched(l.Kernel), 1)
		}
		return p
	}
	return s.uncounted(n, 0)
}

// uncounted returns the roofline time of a node, less what it shares with another.
func (s Speed) uncounted(n *graph.Node, shared float64) Pipes {
	t := s.cost(n, n.Cost())
	t.launch -= shared
	p := Pipes{Tensor: t.matmuls, Memory: t.traffic + t.passes, FP32: t.vector, Launch: t.launch, Total: t.total()}
	if s.Launch > 0 {
		p.Launches = t.launch / s.Launch
	}
	return p
}

// lower returns the launches of consecutive nodes, if all of their work was counted.
func (s Speed) lower(nodes []*graph.Node) (list []engine.Launch, ok bool) {
	if s.Kernels == nil || s.Kernels.Clock == 0 || s.Kernels.Lower == nil {
		return nil, false
	}
	list, err := s.Kernels.Lower.Launches(nodes)
	if err != nil {
		return nil, false // the passes are not done with it yet, or snug has no kernel for it
	}
	for _, l := range list {
		if l.Work.Err != nil {
			return nil, false
		}
	}
	return list, true
}

// Launched prices a launch of a kernel. A multiprocessor takes as long as its busiest pipe, or as its blocks take one
// after another at its occupancy: a few resident warps do not hide their latencies (Volkov 2016,
// "Understanding Latency Hiding on GPUs": throughput is the lesser of occupancy over latency and the peak).
// No kernel is faster than memory, or than the matmuls that the card's power allows.
func (s Speed) Launched(k *engine.Kernel) Pipes {
	return s.Kernels.prices.of(k, s.launched)
}

func (s Speed) launched(k *engine.Kernel) (p Pipes) {
	most := float64((k.Blocks + s.Kernels.SMs - 1) / s.Kernels.SMs) // blocks of the multiprocessor that ends last
	perSM := most / float64(k.Blocks) / s.Kernels.Clock
	var busy float64
	var all counts.Work
	for _, w := range k.Work.Phases { // the error was checked in lower
		all = all.Plus(1, w)
		q := Pipes{
			Tensor: clocksTensor * w.Tensor, FP32: clocksLanes * w.FP32, FP64: clocksFP64 * w.FP64, Integer: clocksLanes * w.Integer, XU: clocksXU * w.XU,
			Issue: clocksIssue * w.Issued(), Shared: clocksWavefront*w.Shared + clocksSector*w.Sectors, L2: clocksSectorL2 * w.Sectors,
		}
		longest := 0.
		for _, u := range q.units() {
			*u = max(0, *u*perSM) // the sum of units may be slightly off
			longest = max(longest, *u)
		}
		busy += longest
		p.add(q, 1)
	}
	all.Alone += float64(k.Blocks) * k.Work.Alone
	p.Latency = all.Alone / float64(k.Blocks) * max(1, most/float64(k.Work.Resident)) / s.Kernels.Clock
	bytes, rate := k.Bytes, s.Bandwidth
	if bytes == 0 {
		bytes = all.Bytes
	}
	if k.Rows {
		rate = s.Kernels.RowTraffic
	}
	p.Memory = over(bytes, rate)
	p.Power = over(k.FLOPs, s.matmulRate(all.Tensor > 0, k.FLOPs))
	p.Launch, p.Launches = s.Launch, 1
	p.Total = max(busy, p.Latency, p.Memory, p.Power) + p.Launch
	p.Counted = p.Total
	return p
}
