package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// canary fills memory that a kernel must not write.
const canary = 0xa5

// guarded returns n bytes, 64-byte aligned, between two runs of canaries.
type guarded struct{ all, data []byte }

func newGuarded(n int) guarded {
	const margin = 192
	all := make([]byte, n+2*margin+64)
	for i := range all {
		all[i] = canary
	}
	at := margin + int(-uintptr(unsafe.Pointer(&all[margin]))&63)
	return guarded{all, all[at : at+n]}
}

func (g guarded) check(t tester, what string) {
	t.Helper()
	lo := int(uintptr(unsafe.Pointer(unsafe.SliceData(g.data))) - uintptr(unsafe.Pointer(&g.all[0])))
	for i, v := range g.all {
		if (i < lo || i >= lo+len(g.data)) && v != canary {
			t.Fatalf("%s: byte %d outside the %d of the buffer was written", what, i-lo, len(g.data))
		}
	}
}

// operand is a stored matrix with canaries around it and NaN in the columns
// between the row length and the stride, so that a stray read shows as well.
type operand struct {
	Matrix
	rows, cols int
	mem        guarded
}

func newOperand(rows, cols, stride int, typ DType, trans bool, fill func(i, j int) float64) *operand {
	if trans {
		rows, cols = cols, rows
		inner := fill
		fill = func(i, j int) float64 { return inner(j, i) }
	}
	stride += cols
	// The last row ends with its last column: reading its stride is reading too far.
	o := &operand{rows: rows, cols: cols, mem: newGuarded(((rows-1)*stride + cols) * typ.Size())}
	o.Matrix = Matrix{Data: unsafe.Pointer(&o.mem.data[0]), Type: typ, Stride: stride, Trans: trans}
	for i := range rows {
		for j := range stride {
			if j < cols {
				o.set(i, j, float32(fill(i, j)))
			} else if i < rows-1 {
				o.set(i, j, float32(math.NaN()))
			}
		}
	}
	return o
}

func (o *operand) set(i, j int, v float32) { store((*byte)(o.at(i, j)), o.Type, 0, v) }

// get returns element (i, j) of the operand of the product.
func (o *operand) get(i, j int) float64 {
	if o.Trans {
		i, j = j, i
	}
	return float64(load((*byte)(o.at(i, j)), o.Type, 0))
}

// team is a set of workers that spin between phases, as the executor's do.
type team struct {
	size    int
	phase   atomic.Int64
	done    atomic.Int64
	next    atomic.Int64
	tasks   int64
	run     func(task int, worker []byte)
	stop    atomic.Bool
	scratch [][]byte
	wait    sync.WaitGroup
}

func newTeam(size, workerBytes int) *team {
	t := &team{size: size}
	for range size {
		t.scratch = append(t.scratch, newGuarded(workerBytes).data)
	}
	for w := 1; w < size; w++ {
		t.wait.Go(func() {
			for seen := int64(0); ; {
				for t.phase.Load() == seen {
					if t.stop.Load() {
						return
					}
					if t.size > 2 { // more than there may be processors
						runtime.Gosched()
					}
				}
				seen++
				t.work(w)
				t.done.Add(1)
			}
		})
	}
	return t
}

func (t *team) work(w int) {
	for {
		task := t.next.Add(1) - 1
		if task >= t.tasks {
			return
		}
		t.run(int(task), t.scratch[w])
	}
}

// parallel runs the tasks of one phase on all workers.
func (t *team) parallel(tasks int, run func(task int, worker []byte)) {
	t.tasks, t.run = int64(tasks), run
	t.next.Store(0)
	t.done.Store(0)
	t.phase.Add(1)
	t.work(0)
	for t.done.Load() < int64(t.size-1) {
		if t.size > 2 {
			runtime.Gosched()
		}
	}
}

func (t *team) close() {
	t.stop.Store(true)
	t.wait.Wait()
}

func (t *team) multiply(p *Plan, args *Args, shared []byte) {
	for phase := range p.Phases() {
		t.parallel(p.Tasks(phase), func(task int, worker []byte) { p.Run(phase, task, args, shared, worker) })
	}
}

// sequential runs a whole plan on the calling goroutine, tasks in random order.
func sequential(t tester, p *Plan, args *Args, rng *rand.Rand) {
	shared, worker := newGuarded(p.SharedBytes()), newGuarded(p.WorkerBytes())
	for phase := range p.Phases() {
		for _, task := range rng.Perm(p.Tasks(phase)) {
			p.Run(phase, task, args, shared.data, worker.data)
		}
	}
	shared.check(t, "shared scratch")
	worker.check(t, "worker scratch")
}

// reference computes C in float64 and, for each element, the sum of the
// absolute values of its terms, which scales the error bound.
func reference(m, n, k int, a, b, c *operand, accumulate bool) (want, scale []float64) {
	want, scale = make([]float64, m*n), make([]float64, m*n)
	fa, fb := make([]float64, m*k), make([]float64, n*k) // rows of A, columns of B
	for x := range k {
		for i := range m {
			fa[i*k+x] = a.get(i, x)
		}
		for j := range n {
			fb[j*k+x] = b.get(x, j)
		}
	}
	for i := range m {
		for j := range n {
			s, abs := 0.0, 0.0
			if accumulate {
				s = c.get(i, j)
				abs = math.Abs(s)
			}
			row, col := fa[i*k:][:k], fb[j*k:][:k]
			for x, v := range row {
				v *= col[x]
				s += v
				abs += math.Abs(v)
			}
			want[i*n+j], scale[i*n+j] = s, abs
		}
	}
	return want, scale
}

// unit is the relative rounding error of a type.
func unit(t DType) float64 {
	switch t {
	case BF16:
		return 0x1p-8
	case F16:
		return 0x1p-11
	}
	return 0x1p-24
}

// compare checks C against the reference: k roundings of float32 at most, the
// rounding of C and, for operands rounded to bfloat16 first, theirs.
func compare(t tester, m, n, k int, c *operand, want, scale []float64, rounded bool) {
	t.Helper()
	for i := range m {
		for j := range n {
			got, w := c.get(i, j), want[i*n+j]
			tol := float64(k+2)*0x1p-24*scale[i*n+j] + unit(c.Type)*math.Abs(w) + 1e-7
			if rounded {
				tol += 2 * 0x1p-8 * scale[i*n+j]
			}
			if !(math.Abs(got-w) <= tol) {
				t.Fatalf("C[%d][%d] = %v, want %v (difference %.3g, tolerance %.3g)", i, j, got, w, got-w, tol)
			}
		}
	}
	for i := range c.rows - 1 {
		for j := c.cols; j < c.Stride; j++ {
			if v := load((*byte)(c.at(i, j)), c.Type, 0); v == v {
				t.Fatalf("element [%d][%d] between the rows of C was written: %v", i, j, v)
			}
		}
	}
	c.mem.check(t, "C")
}

func uniform(rng *rand.Rand) func(i, j int) float64 {
	return func(int, int) float64 { return 2*rng.Float64() - 1 }
}

func name(m, k, n int, ta, tb bool) string {
	return fmt.Sprintf("%dx%dx%d%c%c", m, k, n, "NT"[btoi(ta)], "NT"[btoi(tb)])
}

// tester is what *testing.T, *testing.B and *rapid.T have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}
