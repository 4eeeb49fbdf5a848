package plan

import (
	"fmt"
	"math"
)

// Cluster describes how the processes of a run are spread over machines, and how they are connected.
type Cluster struct {
	PerNode int `json:"processes_per_machine"`
	Nodes   int `json:"machines"`
	// Net is the link between machines; nil if there is only one. Local is the link between the cards of a
	// machine, and Host the one between a card and main memory; nil if processors compute.
	Net   *Link `json:"link,omitempty"`
	Local *Link `json:"card_link,omitempty"`
	Host  *Link `json:"host_link,omitempty"`
	// Old marks cards before compute capability 8.0, for which NCCL assumes longer hops.
	Old bool `json:"-"`
}

// World returns the number of processes.
func (c Cluster) World() int { return c.PerNode * c.Nodes }

// Work is the work of an update, without the exchange with other processes.
type Work struct {
	Micro        float64 // seconds for a micro-batch, both halves
	Optimizer    float64 // seconds
	MicroBatches int     // per update, over all processes
	Buckets      []int64 // bytes of gradients exchanged at a time
	// Memory is the bandwidth of main memory in bytes per second.
	Memory float64
	// Scatter and Gather are the bytes sent per byte of gradients: in each round of micro-batches, and to
	// spread the result. Sharded divides the optimizer among processes.
	Scatter, Gather float64
	Sharded         bool
	// Fast means that each process adds up its own micro-batches, and only the sums are exchanged. Tree means
	// that it adds them up in main memory, as a tree.
	Fast, Tree bool
	// Inner is the number of updates after which processes that train on their own exchange what their weights
	// changed by; 0 if they exchange gradients in every update.
	Inner int
	// Reached is the share of the speed of Micro and Optimizer at the slow end of a card's range, see
	// [CardReached]; 0 if there is no range.
	Reached float64
}

// The shares of a network's rate that processes reach: at most what Ethernet frames leave of it (1448 bytes
// of 1538), and at least what the slowest public run in docs/scaling.md reached.
const (
	NetBest  = .94
	NetLeast = .58
)

// The bytes per second that one process sends and receives at once by TCP. The lower bound is what a ring
// between two processes of snug moved on a machine with two cores (docs/scaling.md); the upper bound, twice
// that, is an assumption for processors with cores to spare.
const (
	tcpLeast = 1.2e9
	tcpBest  = 2 * tcpLeast
)

// The latency of a call of all processes, in seconds: measured with small messages on one machine, and
// assumed for Ethernet between machines.
const (
	callLocal = 25e-6
	callNet   = 100e-6
)

// HostMemory is the assumed bandwidth of the main memory next to a card, in bytes per second, for one process
// that copies and adds.
const HostMemory = 10e9

// conditions are one end of the range of the unknowns.
type conditions struct {
	compute float64 // share of the predicted speed
	net     float64 // share of the network's rate
	tcp     float64 // bytes per second for each process
	overlap bool    // the exchange overlaps with computing as far as possible
}

var (
	fastest = conditions{compute: 1, net: NetBest, tcp: tcpBest, overlap: true}
	slowest = conditions{compute: 1, net: NetLeast, tcp: tcpLeast}
)

// UpdateTime breaks down the time of an update, in seconds.
type UpdateTime struct {
	Compute   float64 `json:"compute_seconds"` // micro-batches, each process its part
	Uneven    float64 `json:"uneven_seconds"`  // waiting for processes with one more micro-batch
	Optimizer float64 `json:"optimizer_seconds"`
	Wire      float64 `json:"wire_seconds"` // waiting for bytes between processes
	Copies    float64 `json:"copies_seconds"`
	Update    float64 `json:"update_seconds"`
	// Efficiency is the speed of the processes relative to as many that compute alone.
	Efficiency float64 `json:"efficiency"`
}

// rounds returns the number of micro-batches of the busiest process.
func (c Cluster) rounds(w Work) int { return (w.MicroBatches + c.World() - 1) / c.World() }

// exchanges returns how often a process sends its gradients in an update.
func (c Cluster) exchanges(w Work) float64 {
	if w.Fast || w.Tree || w.Inner > 0 {
		return 1
	}
	return float64(c.rounds(w))
}

// share returns how often the bytes of an exchange are sent in an update.
func (w Work) share() float64 { return 1 / float64(max(1, w.Inner)) }

// Sends returns the bytes that a process sends in an update with snug's exchange: (M+1)(N-1)/N of the
// gradients for M exchanges, in the format on the wire. It is the mean if not every update has an exchange.
func (c Cluster) Sends(w Work) float64 {
	n := float64(c.World())
	return w.share() * (c.exchanges(w)*w.Scatter + w.Gather) * (n - 1) / n * total(w.Buckets)
}

// Carries returns the part of them that crosses the link of a machine, in each direction.
func (c Cluster) Carries(w Work) float64 {
	n, g := float64(c.World()), float64(c.PerNode)
	return w.share() * (c.exchanges(w)*w.Scatter + w.Gather) * g * (n - g) / n * total(w.Buckets)
}

func total(bytes []int64) (sum float64) {
	for _, b := range bytes {
		sum += float64(b)
	}
	return sum
}

// begin returns an update without an exchange.
func (c Cluster) begin(w Work, k conditions) UpdateTime {
	micro, n := w.Micro/k.compute, float64(c.World())
	t := UpdateTime{Compute: float64(w.MicroBatches) / n * micro, Optimizer: w.Optimizer / k.compute}
	t.Uneven = float64(c.rounds(w))*micro - t.Compute
	if w.Sharded {
		t.Optimizer /= n
	}
	return t
}

// end adds up the parts.
func (c Cluster) end(t UpdateTime, w Work, k conditions) UpdateTime {
	t.Update = t.Compute + t.Uneven + t.Optimizer + t.Wire + t.Copies
	alone := (float64(w.MicroBatches)*w.Micro + w.Optimizer) / k.compute
	t.Efficiency = over(alone, float64(c.World())*t.Update)
	return t
}

// mesh returns an update with snug's own exchange. In each round, every process sends all others their shards
// of every bucket by TCP and adds up its own; after the last round it sends the sums to all. A round overlaps
// with the next one, and the last with its own backward half.
func (c Cluster) mesh(w Work, k conditions) UpdateTime {
	t := c.begin(w, k)
	exchanges := c.exchanges(w)
	if c.World() > 1 {
		micro := w.Micro / k.compute
		scatter, gather := c.between(w.Buckets, w.Scatter, k), c.between(w.Buckets, w.Gather, k)
		last := w.Buckets[max(0, len(w.Buckets)-1):]
		end := scatter.and(gather)
		if w.Inner > 0 { // all wait for it
			const calls = 3 // whether to stop, losses, what rank 0 decided
			t.Wire = w.share() * (end.took + calls*c.call())
			t.Copies = w.share() * c.copies(w, 1)
			return c.end(t, w, k)
		}
		t.Wire = (exchanges-1)*c.waited(scatter, micro, k) +
			max(c.waited(end, backward*micro, k), c.between(last, w.Scatter+w.Gather, k).took)
		// All processes agree to begin, and compare losses at the end. Rounds without an exchange need a call
		// each to agree.
		calls := 2.
		if w.Fast || w.Tree {
			calls += float64(c.rounds(w) - 1)
		}
		t.Wire += calls * c.call()
	}
	t.Copies = c.copies(w, exchanges)
	return c.end(t, w, k)
}

// copies returns how long gradients are copied, added and cleared in main memory for so many exchanges.
func (c Cluster) copies(w Work, exchanges float64) (seconds float64) {
	s := total(w.Buckets)
	const copied, added, cleared = 2, 3, 1 // bytes of memory traffic per byte of gradients
	seconds = over(s*(exchanges*(copied+added+cleared+copied)+2*copied), w.Memory)
	taken := exchanges // the number of micro-batches whose gradients are copied
	if w.Tree {
		taken = float64(c.rounds(w))
		seconds += over(s*((taken-1)*(copied+cleared)+taken*added), w.Memory)
	}
	if c.Host != nil {
		seconds += s * (2*taken + 1) / c.Host.Bandwidth
	}
	return seconds
}

// transfer is the time of a transfer between processes, in seconds, and the part of it that keeps processors
// busy.
type transfer struct{ took, busy float64 }

func (t transfer) and(u transfer) transfer { return transfer{t.took + u.took, t.busy + u.busy} }

// call returns the latency of a call of all processes.
func (c Cluster) call() float64 {
	if c.Net != nil {
		return callNet
	}
	return callLocal
}

// between returns the transfer of (N-1)/N of the buckets from each process, with wire bytes sent for each
// byte.
func (c Cluster) between(buckets []int64, wire float64, k conditions) transfer {
	n, g, s := float64(c.World()), float64(c.PerNode), total(buckets)*wire
	t := transfer{busy: s * (n - 1) / n / k.tcp}
	t.took = t.busy
	if c.Net != nil {
		t.took = max(t.took, s*g*(n-g)/n/(c.Net.Bandwidth*k.net))
	}
	t.took += float64(len(buckets)) * c.call()
	return t
}

// waited returns how long a process waits for a transfer while it has work for the given seconds. At worst, a
// processor busy with the transfer does nothing else, such as computing or feeding a card.
func (c Cluster) waited(t transfer, behind float64, k conditions) float64 {
	if k.overlap {
		return max(0, t.took-behind)
	}
	return t.busy + max(0, t.took-t.busy-behind)
}

// NCCL's constants (src/graph/tuning.cc, 2.30), in seconds: the startup time of a collective and the time per
// hop, by algorithm and protocol, and the share of the bandwidth that a protocol reaches.
type ncclProtocol struct {
	base, nvlink, pcie, net float64
	share                   float64
	// plateau multiplies the latency between machines, on cards before 8.0 and later ones.
	plateau [2]float64
}

var (
	ncclRing = []ncclProtocol{
		{6.6e-6, .6e-6, 1e-6, 2.7e-6, .5, [2]float64{1, 1}},      // LL
		{8.4e-6, 3.4e-6, 5.7e-6, 14e-6, 1, [2]float64{1.9, 1.4}}, // Simple
	}
	ncclTree = []ncclProtocol{
		{6.8e-6, .6e-6, 1e-6, 5e-6, 1 / 3.8, [2]float64{1, 1}},
		{8.4e-6, 4e-6, 4e-6, 14e-6, .92, [2]float64{1, 1}},
	}
)

// AllReduce returns how long NCCL would take to sum the given bytes over all cards, by the better of its
// rings and trees. share is the share of the network's rate that is reached.
func (c Cluster) AllReduce(bytes, share float64) float64 {
	n, g, nodes := float64(c.World()), float64(c.PerNode), float64(c.Nodes)
	if n < 2 {
		return 0
	}
	ring, tree := math.Inf(1), math.Inf(1) // bytes per second
	if c.PerNode > 1 {
		ring, tree = c.Local.Bandwidth, c.Local.Bandwidth
	}
	if c.Net != nil {
		net := c.Net.Bandwidth * share
		ring = min(ring, net)
		if c.Nodes == 2 { // each machine is the root of one of the two trees and a leaf of the other
			net *= 2
		}
		tree = min(tree, net)
	}
	hop := func(p ncclProtocol) float64 {
		if c.Local != nil && c.Local.Kind == NVLink {
			return p.nvlink
		}
		return p.pcie
	}
	plateau := func(p ncclProtocol) float64 {
		switch {
		case c.Nodes == 1:
			return 1
		case c.Old:
			return p.plateau[0]
		}
		return p.plateau[1]
	}
	best := math.Inf(1)
	for _, p := range ncclRing {
		latency := p.base + 2*(n-nodes)*hop(p) + 2*(nodes-1)*p.net
		best = min(best, latency*plateau(p)+2*(n-1)/n*bytes/(ring*p.share))
	}
	for _, p := range ncclTree {
		latency := p.base + 2*((g-1)*hop(p)+math.Floor(math.Log2(nodes))*p.net)
		best = min(best, latency*plateau(p)+2*bytes/(tree*p.share))
	}
	return best
}

// backward is the share of a micro-batch's time spent in its backward half: two of three matmuls.
const backward = 2. / 3

// nccl returns an update in which cards sum their gradients after their last micro-batch, bucket by bucket.
// At best, all but the last bucket overlap with the backward half.
func (c Cluster) nccl(w Work, k conditions) UpdateTime {
	t := c.begin(w, k)
	var all, last float64
	for _, b := range w.Buckets {
		last = c.AllReduce(float64(b)*(w.Scatter+w.Gather)/2, k.net)
		all += last
	}
	t.Wire = w.share() * all
	if k.overlap && w.Inner == 0 {
		t.Wire = max(last, all-backward*w.Micro/k.compute)
	}
	return c.end(t, w, k)
}

// Engine predicts an update with one way to exchange gradients. The two ends differ in what is unknown: how
// fast a card computes, what share of a network's rate is reached, and how much of the exchange overlaps.
type Engine struct {
	Name string `json:"engine"`
	// Best and Least are the ends of the time range.
	Best  UpdateTime `json:"best"`
	Least UpdateTime `json:"least"`
	// EfficiencyLeast and EfficiencyBest are the ends of the efficiency range. The faster the cards, the more
	// the exchange weighs.
	EfficiencyLeast float64 `json:"efficiency_least"`
	EfficiencyBest  float64 `json:"efficiency_best"`
}

// ranged returns an engine with both ends.
func ranged(name string, w Work, at func(Work, conditions) UpdateTime) Engine {
	e := Engine{Name: name, Best: at(w, fastest), Least: at(w, slowest)}
	e.EfficiencyLeast, e.EfficiencyBest = e.Least.Efficiency, e.Best.Efficiency
	if w.Reached > 0 {
		slow, quick := slowest, fastest
		slow.compute, quick.compute = w.Reached, w.Reached
		e.Least = at(w, slow)
		e.EfficiencyBest = max(e.EfficiencyBest, at(w, quick).Efficiency)
	}
	return e
}

// Mesh predicts snug's own exchange.
func (c Cluster) Mesh(w Work) Engine { return ranged("snug (TCP, main memory)", w, c.mesh) }

// NCCL predicts the exchange from card to card, where each rank adds up its own micro-batches.
func (c Cluster) NCCL(w Work) Engine { return ranged("NCCL (fast sums)", w, c.nccl) }

// reached returns the speed at the slow end of a card's range as a share of the best.
func (r *Report) reached() float64 {
	if r.Time.Slow == nil {
		return 0
	}
	return CardReached(r.Run.Settings.Precision)
}

// Scaling predicts a plan with several processes.
type Scaling struct {
	Cluster
	GradientBytes int64 `json:"gradient_bytes"`
	Rounds        int   `json:"rounds"` // micro-batches of the busiest process
	Fast          bool  `json:"fast,omitempty"`
	Tree          bool  `json:"tree,omitempty"`
	Inner         int   `json:"inner_steps,omitempty"` // Work.Inner
	// Exchange is the memory that a process needs for the exchange, and Room the part of it on its card.
	// Sends is what a process sends in an update, and Carries what the link of a machine carries in each
	// direction.
	Exchange int64    `json:"gradient_exchange_bytes"`
	Room     int64    `json:"gradient_room_bytes,omitempty"`
	Sends    int64    `json:"rank_sends_bytes"`
	Carries  int64    `json:"link_carries_bytes,omitempty"`
	Engines  []Engine `json:"engines"`
	// Units is the number of tokens (examples) in an update.
	Units int64  `json:"units"`
	Unit  string `json:"unit"`
	// Waits says what processes wait for, and Helps what would reduce that.
	Waits string `json:"waits"`
	Helps []Help `json:"helps,omitempty"`
	Note  string `json:"note"`
}

// Help is a change and the efficiency that it would reach with snug's own exchange.
type Help struct {
	Change          string  `json:"change"`
	EfficiencyLeast float64 `json:"efficiency_least"`
	EfficiencyBest  float64 `json:"efficiency_best"`
}

// Scale predicts the plan r of a single process for the processes of a cluster.
func (r *Report) Scale(c Cluster, w Work, unit string) *Scaling {
	s := &Scaling{Cluster: c, GradientBytes: int64(total(w.Buckets)), Rounds: c.rounds(w), Fast: w.Fast, Tree: w.Tree, Inner: w.Inner, Exchange: r.Run.Exchange + r.Run.Room, Room: r.Run.Room,
		Sends: int64(c.Sends(w)), Unit: unit, Note: Unmeasured}
	s.Units = int64(w.MicroBatches) * int64(r.Run.Settings.MicroBatch)
	if r.Run.Tokens > 0 {
		s.Units = int64(w.MicroBatches) * r.Run.Tokens
	}
	if c.Net != nil {
		s.Carries = int64(c.Carries(w))
	}
	s.Engines = []Engine{c.Mesh(w)}
	if c.Local != nil && c.World() > 1 && !(w.Inner > 0 && w.Scatter < 1) { // 8 bits go through main memory
		s.Engines = append(s.Engines, c.NCCL(w))
	}
	s.Waits = s.Engines[0].waits()
	s.Helps = c.helps(w)
	return s
}

// Work returns the work of the plan when ranks processes share it. buckets are the units in which gradients
// are exchanged, and wire is the number of bytes sent per byte of gradients.
func (r *Report) Work(buckets []int64, wire float64, ranks int) Work {
	w := Work{Optimizer: r.Time.Optimizer, MicroBatches: max(1, r.Run.Settings.Accumulation), Buckets: buckets,
		Scatter: wire, Gather: wire, Memory: HostMemory, Reached: r.reached()}
	w.Micro = (r.Time.Update - r.Time.Optimizer) / float64((w.MicroBatches+ranks-1)/ranks)
	if r.Target.Card == nil {
		w.Memory = r.Speed.Bandwidth
	}
	return w
}

// causes lists what processes wait for.
var causes = []struct {
	text string
	of   func(UpdateTime) float64
}{
	{"bytes between processes", func(t UpdateTime) float64 { return t.Wire }},
	{"copying and adding gradients in main memory", func(t UpdateTime) float64 { return t.Copies }},
	{"processes that have one micro-batch more", func(t UpdateTime) float64 { return t.Uneven }},
}

// waits says what processes wait for most, and what share of an update that takes.
func (e Engine) waits() string {
	most := causes[0]
	for _, x := range causes[1:] {
		if x.of(e.Least) > most.of(e.Least) {
			most = x
		}
	}
	if most.of(e.Least) == 0 {
		return "nothing"
	}
	best, least := over(most.of(e.Best), e.Best.Update), over(most.of(e.Least), e.Least.Update)
	return fmt.Sprintf("most for %s: %s of an update", most.text, between(percent, min(best, least), max(best, least)))
}

// helps returns changes that make processes wait less.
func (c Cluster) helps(w Work) []Help {
	if c.World() < 2 {
		return nil
	}
	now := c.Mesh(w)
	var list []Help
	try := func(change string, c Cluster, w Work) {
		if e := c.Mesh(w); e.EfficiencyLeast > 1.01*now.EfficiencyLeast {
			list = append(list, Help{change, e.EfficiencyLeast, e.EfficiencyBest})
		}
	}
	if w.MicroBatches%c.World() != 0 {
		even := w
		even.MicroBatches = c.rounds(w) * c.World()
		try(fmt.Sprintf("--training.gradient_accumulation_steps %d, a multiple of the processes", even.MicroBatches), c, even)
	}
	more := w
	more.MicroBatches *= 2
	try(fmt.Sprintf("--training.gradient_accumulation_steps %d: a larger batch", more.MicroBatches), c, more)
	if w.MicroBatches%2 == 0 && w.MicroBatches/2 >= c.World() {
		larger := w
		larger.Micro, larger.MicroBatches = 2*w.Micro, w.MicroBatches/2
		try(fmt.Sprintf("micro-batches twice as large, and --training.gradient_accumulation_steps %d, where memory allows", larger.MicroBatches), c, larger)
	}
	if w.Scatter == 1 && w.Gather == 1 && w.Inner > 0 {
		coded := w
		coded.Scatter, coded.Gather = .25+1./256, .25+1./256
		try("--training.diloco.exchange int8, which rounds what is sent", c, coded)
	} else if w.Scatter == 1 && w.Gather == 1 {
		half := w
		half.Scatter, half.Gather = .5, .5
		try("--training.gradient_exchange bf16, which rounds what is sent", c, half)
	}
	if c.rounds(w) > 1 && !w.Fast && !w.Tree && w.Inner == 0 {
		once := w
		if n := c.World(); n&(n-1) == 0 && w.MicroBatches%n == 0 && w.Scatter == 1 {
			once.Tree = true
			try("--training.gradient_sums tree: other bits, the same for 1, 2, 4, 8, ... processes", c, once)
			once.Tree = false
		}
		once.Fast = true
		try("--training.gradient_sums fast: other bits for another number of processes", c, once)
	}
	if c.Net != nil {
		if f := c.Net.faster(); f != nil {
			quick := c
			quick.Net = f
			try(fmt.Sprintf("--link %s", f.Name), quick, w)
		}
	}
	return list
}
