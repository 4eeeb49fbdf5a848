package plan

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
)

// crossing simulates functions whose states and activations cross between device and host during computation,
// by the rules by which engine/cuda queues them: a fetch starts at its place in the order, and its readers
// wait for it; a copy back starts once its operand is computed, and is waited for at its place.
type crossing struct {
	speed                    Speed
	used, exposed, optimizer float64 // seconds of an update in which the bus is in use, the device waits, and it waits in the optimizer's own function

	// State of the current function:
	at      operation
	now     float64
	in, out float64                 // when each direction of the bus becomes free
	done    map[*graph.Node]float64 // when each node is done
	busy    float64                 // seconds in which the device computes
	ways    [2]float64              // seconds in which each direction is in use
}

// begin starts a new function if l belongs to one.
func (c *crossing) begin(l operation) {
	if c.at.function != l.function {
		c.end()
		*c = crossing{speed: c.speed, used: c.used, exposed: c.exposed, optimizer: c.optimizer, at: l, done: map[*graph.Node]float64{}}
	}
}

// end adds up a function.
func (c *crossing) end() {
	if c.ways == [2]float64{} {
		return
	}
	waits := c.at.times * (c.now - c.busy)
	c.used += c.at.times * max(c.ways[0], c.ways[1])
	c.exposed += waits
	if c.at.function == engine.FuncUpdate {
		c.optimizer += waits
	}
	c.ways = [2]float64{}
}

// transfers handles an operation that is a copy, and reports whether it is one.
func (c *crossing) transfers(l operation) bool {
	c.begin(l)
	in, out := graph.Transferred(l.node)
	if in+out == 0 {
		return false
	}
	took := c.speed.Seconds(l.node)
	if in > 0 {
		c.in = max(c.in, c.now) + took
		c.done[l.node] = c.in
		c.ways[0] += took
	} else {
		c.out = max(c.out, c.done[l.node.In[1].Node]) + took
		c.now = max(c.now, c.out)
		c.ways[1] += took
	}
	return true
}

// compute handles an operation that computes for the given seconds.
func (c *crossing) compute(l operation, seconds float64) {
	for _, v := range l.node.In {
		if n := graph.Storage(v).Node; n != nil {
			if _, ok := n.Op.(graph.Fetch); ok {
				c.now = max(c.now, c.done[n])
			}
		}
	}
	c.now += seconds
	c.busy += seconds
	c.done[l.node] = c.now
}

// MainMemory is the main memory that a run on a card needs.
type MainMemory struct {
	Components []Component `json:"components"`
	Total      int64       `json:"planned_total_bytes"`
	Capacity   int64       `json:"capacity_bytes"` // 0 if unknown
	Fits       bool        `json:"fits"`
	has        string      // the capacity as messages print it
}

// driverHost is the assumed main memory that a card's driver takes in a process.
const driverHost = 256 << 20

// host plans main memory if anything is offloaded to it, and returns nil otherwise.
func (r *Report) host(p *engine.Program) *MainMemory {
	l := &p.Layout
	if l.Host.Bytes == 0 {
		return nil
	}
	h := &MainMemory{Capacity: r.Target.HostMemory, has: r.Target.hostText()}
	for _, c := range []Component{
		{Name: "optimizer states", Bytes: l.Host.Bytes - l.Activations, Note: "page-locked; exact: " + size.Thousands(l.Host.Bytes-l.Activations) + " bytes"},
		{Name: "activations", Bytes: l.Activations, Note: "page-locked; exact: " + size.Thousands(l.Activations) + " bytes"},
		{Name: "inputs and outputs", Bytes: l.Inputs.Bytes + l.Outputs.Bytes, Note: "page-locked copies of the card's"},
		{Name: "checkpoint staging", Bytes: r.Run.Staging},
		{Name: "gradient exchange", Bytes: r.Run.Exchange},
		{Name: "MPI", Bytes: r.mpi(), Estimate: true, Note: "stated allowance"},
		{Name: "Go runtime", Bytes: GoRuntime, Estimate: true, Note: "stated allowance"},
		{Name: dataInHeap, Bytes: r.Run.heap(), Note: forGarbage},
		{Name: "driver of the card", Bytes: driverHost, Estimate: true, Note: "stated allowance"},
	} {
		if c.Bytes > 0 {
			h.Components = append(h.Components, c)
			h.Total += c.Bytes
		}
	}
	h.Fits = h.Capacity == 0 || h.Total <= h.Capacity
	return h
}

// hostBytes returns the main memory that the plan needs because of offloading.
func (r *Report) hostBytes() int64 {
	if r.Host == nil {
		return 0
	}
	return r.Host.Total
}

// short returns how much more main memory the plan needs than there is.
func (h *MainMemory) short() int64 {
	if h == nil || h.Fits {
		return 0
	}
	return h.Total - h.Capacity
}

// write adds the table as text.
func (h *MainMemory) write(s *strings.Builder) {
	s.WriteString("\nmain memory of the card's machine\n")
	var rows [][]string
	for _, c := range h.Components {
		note := c.Note
		if c.Estimate {
			note = "estimate, " + note
		}
		rows = append(rows, []string{"  " + c.Name, size.Bytes(c.Bytes).String(), note})
	}
	verdict := "not compared: hardware.host_memory says what there is"
	switch d := h.Capacity - h.Total; {
	case h.Capacity == 0:
	case d < 0:
		verdict = fmt.Sprintf("does not fit, %s short: %s", size.Bytes(-d), h.has)
	default:
		verdict = fmt.Sprintf("fits, %s left: %s", size.Bytes(d), h.has)
	}
	rows = append(rows, []string{"needs", size.Bytes(h.Total).String(), verdict})
	indented(s, rows, 1)
}
