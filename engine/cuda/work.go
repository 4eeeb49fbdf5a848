package cuda

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// work is what a launch does, from which a plan estimates its time: numbers of units, each counted by
// tools/counts in the interpreter. The code that makes a launch adds its work, as the numbers are known
// there.
type work struct {
	units []counts.Units
	bytes float64 // see [engine.Launch]
	rows  bool
	flops float64
}

// does adds n of a unit of the kernel's own.
func (x *launch) does(unit string, n int) *launch { return x.adds(x.kind+" "+unit, n) }

// adds adds n of a unit that other kernels share.
func (x *launch) adds(unit string, n int) *launch {
	if n != 0 {
		x.work.units = append(x.work.units, counts.Units{Of: unit, N: float64(n)})
	}
	return x
}

// moves adds the memory traffic that remains where caches serve the rest.
func (x *launch) moves(bytes ...int64) *launch {
	for _, b := range bytes {
		x.work.bytes += float64(b)
	}
	return x
}

// overRows says that the kernel goes over its rows more than once.
func (x *launch) overRows() { x.work.rows = true }

// multiplies adds the FLOPs of an m x n x k matmul.
func (x *launch) multiplies(m, n, k int) *launch {
	x.work.flops += 2 * float64(m) * float64(n) * float64(k)
	return x
}

// warps is how many warps n threads are.
func warps(n int) int { return ceil(n, 32) }

// stairs is the sum of ceil(i/step) for i from 1 to n.
func stairs(n, step int) int {
	whole := n / step
	return step*whole*(whole+1)/2 + n%step*(whole+1)
}

// bodyWork adds the work of a body's instructions for a number of warps, in which each lane has width
// neighbors. whole says that the first neighbor's index is always a multiple of four.
func (x *launch) bodyWork(b *graph.Body, width, warps int, whole bool) {
	for _, s := range b.Instrs {
		switch op := s.Op.(type) {
		case graph.Dropout:
			if whole { // four neighbors share a block of random numbers
				x.adds("step dropout_four", warps*ceil(width, 4))
			} else {
				x.adds("step dropout_one", warps*width)
			}
		case graph.Elementwise:
			x.adds("step "+op.Fn.String(), warps*width)
		}
		if s.DType.Half() {
			x.adds("step round_"+s.DType.String(), warps*width)
		}
	}
}

// reads adds the work of unpacking an operand of which each lane reads n neighbors.
func (x *launch) reads(d graph.DType, n, warps int) {
	if d.Half() {
		x.adds("step unpack_"+d.String(), warps*n)
	}
}

// writes adds the work of packing a result of which each lane writes n neighbors.
func (x *launch) writes(d graph.DType, n, warps int) {
	if d.Half() {
		x.adds("step pack_"+d.String(), warps*ceil(n, 2))
	}
}

// Launches are the launches of a program's function, with the symbols of their kernels.
func Launches(p *engine.Program, function string, capability, sms int) ([]engine.Launch, error) {
	c, err := compile(p, kernels.Target(capability), sms, false)
	if err != nil {
		return nil, err
	}
	return (&lowering{code: c, launches: c.funcs[function]}).described(), nil
}

// described lists the launches as a plan sees them.
func (l *lowering) described() []engine.Launch {
	var list []engine.Launch
	for i := range l.launches {
		x := &l.launches[i]
		if x.copy != nil {
			continue
		}
		list = append(list, engine.Launch{Node: x.node, Also: x.also, Kernel: &engine.Kernel{
			Name: x.kind, Symbol: x.kernel, Blocks: int(x.grid[0]) * int(x.grid[1]) * int(x.grid[2]), Threads: int(x.block[0]),
			Work: counts.Launched(x.kind, x.work.units), Bytes: x.work.bytes, Rows: x.work.rows, FLOPs: x.work.flops,
		}})
	}
	return list
}

// kindOf is a kernel's name, without the hash if it is generated.
func (l *lowering) kindOf(kernel string) string {
	const hash = len("_0123456789abcdef")
	if _, ok := l.generated[kernel]; ok {
		return kernel[:len(kernel)-hash]
	}
	return kernel
}

// traffic is the size of values in bytes.
func traffic(values ...*graph.Value) (bytes int64) {
	for _, v := range values {
		bytes += v.Type.Bytes()
	}
	return bytes
}
