package gemm

import (
	"fmt"
	"runtime"

	"github.com/snug-ml/snug/internal/isa"
)

// Library multiplies float32 matrices instead of the kernels: C (= or +=) op(A)·op(B),
// only on the calling thread. scratch is CallBytes, 8-byte aligned.
type Library interface {
	Sgemm(m, n, k int, a, b, c Matrix, accumulate bool, scratch []byte)
	CallBytes() int
}

// Options adjust a [Plan]; the zero value is right for most uses. Only Compute,
// ISA, Library and KC change results.
type Options struct {
	ISA isa.Level
	// Compute is the type the operands are multiplied in. The zero value, F32, converts
	// bfloat16 operands in packing, unless both operands are BF16: those are multiplied
	// as they are if the hardware can. BF16 rounds float32 operands to bfloat16 first
	// where the hardware multiplies that (and is ignored where it does not, and for F16
	// operands).
	Compute DType
	// Accumulate adds the product to C.
	Accumulate bool
	// MapA and MapB, if not nil, are applied to the elements of A and B as they are read,
	// which are then rounded to the type of their operand. Such an operand is not
	// transposed.
	MapA, MapB Map
	// ReadB, if not nil, returns the elements of a B that is stored in none of this
	// package's types: they are rounded to the type b. B is packed, so that no more than
	// a panel's rows exist decoded.
	ReadB Reader
	// Library, if not nil, multiplies what it can: see [Served].
	Library Library
	// Workers is the number of workers the tasks are meant for; 0 is GOMAXPROCS.
	Workers int
	// SharedLimit bounds SharedBytes, but not below one block of one panel; 0 leaves it
	// to the plan: 4 MiB per worker, between 8 and 64 MiB.
	SharedLimit int
	// KC overrides how many words of K one block holds.
	KC int
	// MB and NB override the rows and columns of C one task computes.
	MB, NB int
}

// Plan is the decomposition of one matmul into phases of independent tasks. It is
// immutable and may be shared by concurrent runs.
type Plan struct {
	m          *machine
	rows, cols int // of C
	k          int
	a, b, c    DType
	transA     bool
	accumulate bool
	direct     bool // B is read in place
	source     sourceA
	mapA, mapB Map
	readB      Reader
	lib        Library  // computes the matmul; or nil
	wide       *machine // of the same instruction set, for float32 words

	packing   packing
	packer    *packer
	workers   int
	groups    panelGroups
	grid      grid // of the tasks of a full group
	scratchC  int  // offset in the worker's scratch
	workerLen int
}

// NewPlan plans C[m,n] (= or +=) op(A)[m,k] * op(B)[k,n] for operands of types
// a, b and c. It panics on sizes below 1: the caller has checked shapes.
func NewPlan(m, n, k int, a, b, c DType, transA, transB bool, opts Options) *Plan {
	if m < 1 || n < 1 || k < 1 {
		panic(fmt.Sprintf("gemm: sizes must be at least 1, got m=%d n=%d k=%d", m, n, k))
	}
	word := F32
	if (a == BF16 && b == BF16 || opts.Compute == BF16) && a != F16 && b != F16 {
		word = BF16
	}
	level := opts.ISA.Resolve()
	if opts.ReadB != nil && opts.MapB != nil {
		panic("gemm: an operand that a reader gives cannot be mapped")
	}
	if opts.MapA != nil && transA || opts.MapB != nil && transB {
		panic("gemm: an operand that is transposed cannot be mapped")
	}
	p := &Plan{
		m: machineFor(level, word), rows: m, cols: n, k: k, a: a, b: b, c: c,
		transA: transA, accumulate: opts.Accumulate,
		mapA: opts.MapA, mapB: opts.MapB, readB: opts.ReadB, wide: machineFor(level, F32),
	}
	if q := p.m.byQuads; q != nil && k%q.elems() == 0 {
		p.m = q
	}
	workers := opts.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	p.workers = workers
	if opts.Library != nil {
		if !Served(a, b, c, opts) {
			panic("gemm: a library multiplies float32 operands as they are stored")
		}
		p.lib, p.workerLen = opts.Library, roundUp(opts.Library.CallBytes(), 64)
		return p
	}
	p.source = p.m.sourceOf(a, transA, k)
	switch {
	case p.mapA != nil:
		p.source = rowsA
	case p.m.quads && !transA:
		p.source = rowTilesA
	}
	p.direct = p.mapB == nil && p.readB == nil && !transB && b == F32 && p.m.word == F32 && m <= directRows &&
		n%p.m.nr <= p.m.exact
	p.packing = layout(p.m, k, n, b, transB, opts.KC)
	p.packer = &p.m.own
	if workers > 1 {
		p.packer = &p.m.shared
	}
	p.groups = panelGroups{blocks: p.packing.blocks, cols: n, alongK: 1, alongN: 1}
	if p.packs() {
		limit := opts.SharedLimit / 2
		if limit <= 0 {
			limit = groupLimit(workers)
		}
		p.groups = p.cut(limit)
	}
	p.grid = p.chooseGrid(workers, opts)
	p.layoutWorker()
	return p
}

// packs reports whether packing B is part of the plan.
func (p *Plan) packs() bool { return !p.direct && p.lib == nil }

// Blocks returns the number of blocks that K is cut into.
func (p *Plan) Blocks() int { return p.packing.blocks }

// Phases returns the number of phases; each starts when the one before is done. Phase 0
// packs the first group of B, phase i packs group i and multiplies by the previous one.
func (p *Plan) Phases() int {
	if p.lib != nil {
		return 1
	}
	return p.groups.count() + btoi(p.packs())
}

// groupOf returns which group a phase multiplies by; -1 for none.
func (p *Plan) groupOf(phase int) int { return phase - btoi(p.packs()) }

// Tasks returns the number of tasks of a phase.
func (p *Plan) Tasks(phase int) int {
	if p.lib != nil {
		return p.libraryTasks()
	}
	i := p.groupOf(phase)
	return p.mulTasks(i) + p.packTasks(i+1)
}

// SharedBytes returns the size of the buffer, 64-byte aligned, that all
// workers of a run share.
func (p *Plan) SharedBytes() int {
	if !p.packs() {
		return 0
	}
	return min(2, p.groups.count()) * p.groups.groupBytes(p)
}

// WorkerBytes returns the size of the scratch, 64-byte aligned, of each worker.
func (p *Plan) WorkerBytes() int { return p.workerLen }

// layoutWorker places the parts of a worker's scratch: the block of A or what
// packing B needs, then the block of C when it is not summed in place.
func (p *Plan) layoutWorker() {
	n := p.m.blockBytes(p.source, p.grid.mb, p.packing.kc)
	if p.mapA != nil {
		n += mapBytes(p.packing.kc * p.m.elems())
	}
	if p.packs() {
		n = max(n, p.packing.scratch())
	}
	if p.mapB != nil {
		n = max(n, mapBytes(mapRows*p.m.nr))
	}
	if p.readB != nil {
		n = max(n, p.readScratch())
	}
	p.scratchC = roundUp(n, 64)
	p.workerLen = p.scratchC
	if p.c != F32 {
		p.workerLen += roundUp(p.grid.mb*p.pitchC(), 64)
	}
}

// pitchC is the bytes of a row of the float32 block that a C of another type
// is summed in.
func (p *Plan) pitchC() int { return oddLines(4 * p.grid.nb) }
