package cuda

import (
	"encoding/binary"
	"math"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// These regions follow the arena: what kernels may use within a node, and data for them that is known when
// the program is loaded.
const (
	workspace = engine.Regions + iota
	tables
	regions
)

// address is a place in a region; an address in the inputs moves with the slot.
type address struct {
	region engine.Region
	offset int64
}

// plus is the address a number of bytes further on.
func (a address) plus(bytes int64) address { return address{a.region, a.offset + bytes} }

// launch is one kernel of a program.
type launch struct {
	node   *graph.Node
	also   []*graph.Node // nodes that it computes too
	kernel string
	kind   string // the kernel's name without the hash of a generated one
	work   work
	grid   [3]uint32
	block  [3]uint32
	params params
	// copy replaces the kernel; nil: there is a kernel.
	copy *transfer
	// product is what cuBLASLt could compute instead of this launch and its neighbors with the same product;
	// nil: nothing.
	product *replaceable
}

// params are the parameters of a kernel, packed as the driver takes them.
type params struct {
	bytes []byte
	// pointers say where addresses go; these are known when the program is loaded.
	pointers []pointer
}

type pointer struct {
	at int
	to address
}

func (p *params) align(n int) {
	for len(p.bytes)%n != 0 {
		p.bytes = append(p.bytes, 0)
	}
}

// ptr appends an address; the others append numbers.
func (p *params) ptr(to address) *params {
	p.align(8)
	p.pointers = append(p.pointers, pointer{len(p.bytes), to})
	p.bytes = append(p.bytes, make([]byte, 8)...)
	return p
}

// null appends a null address.
func (p *params) null() *params { return p.u64(0) }

func (p *params) u32(v ...int) *params {
	p.align(4)
	for _, x := range v {
		p.bytes = binary.LittleEndian.AppendUint32(p.bytes, uint32(x))
	}
	return p
}

func (p *params) u64(v uint64) *params {
	p.align(8)
	p.bytes = binary.LittleEndian.AppendUint64(p.bytes, v)
	return p
}

func (p *params) f32(v ...float64) *params {
	p.align(4)
	for _, x := range v {
		p.bytes = binary.LittleEndian.AppendUint32(p.bytes, math.Float32bits(float32(x)))
	}
	return p
}

// bind returns the parameters with a loaded program's addresses; bases are the addresses of the regions.
func (p *params) bind(bases *[regions]driver.Ptr) []byte {
	out := append([]byte(nil), p.bytes...)
	for _, q := range p.pointers {
		binary.LittleEndian.PutUint64(out[q.at:], uint64(bases[q.to.region])+uint64(q.to.offset))
	}
	return out
}

// ceil is a/b rounded up.
func ceil[T int | int64](a, b T) T { return (a + b - 1) / b }
