package fakegpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// CublasLt stands in for NVIDIA's cuBLASLt, for one driver: products are computed in float64 on the fake
// card's memory, every descriptor is checked, and any call can be made to fail.
type CublasLt struct {
	// Number is the version, as in [cublaslt.Library.Version]; 0: 12.9.3.
	Number int
	// Algorithms are what the heuristic returns, best first; nil: one that takes a tenth of a kernel's time.
	Algorithms []FakeAlgorithm
	// Fail, if set, may make any call fail: it is given the call's name and returns the status.
	Fail func(call string) cublaslt.Status
	// Calls counts calls by name.
	Calls map[string]int

	current *Context // current on the calling thread
	next    uintptr
	runs    int             // products computed so far
	objects map[uintptr]any // by handle
}

// FakeAlgorithm is a way to compute a product.
type FakeAlgorithm struct {
	Time      time.Duration
	Workspace int64
	// Reduction is the scheme for adding the parts of K.
	Reduction uint32
	// Wrong makes the last element of the product wrong, Unsteady makes every second run differ in its last
	// bit.
	Wrong, Unsteady bool
}

type (
	fakeHandle struct{ c *Context }
	fakeDesc   struct {
		tf32           bool
		transA, transB int32
		epilogue       uint32
		bias           uint64
	}
	fakeLayout struct {
		d          cublaslt.DataType
		rows, cols uint64
		ld         int64
		batch      int32
		stride     int64
	}
	fakePreference map[cublaslt.PreferenceAttribute]uint64
)

// algorithmMark begins the bytes of each algorithm.
const algorithmMark = 0x736e7567

// Left returns an error if objects were made and not freed.
func (l *CublasLt) Left() error {
	if len(l.objects) > 0 {
		return fmt.Errorf("%d objects of cuBLASLt are left", len(l.objects))
	}
	return nil
}

// call counts a call and may make it fail; needs says that a context must be current.
func (l *CublasLt) call(name string, needs bool) cublaslt.Status {
	if l.Calls == nil {
		l.Calls = map[string]int{}
	}
	l.Calls[name]++
	if l.Fail != nil {
		if s := l.Fail(name); s != cublaslt.Success {
			return s
		}
	}
	if needs && l.current == nil {
		return cublaslt.NotInitialized
	}
	return cublaslt.Success
}

func (l *CublasLt) add(o any) uintptr {
	if l.objects == nil {
		l.objects = map[uintptr]any{}
	}
	l.next++
	l.objects[l.next] = o
	return l.next
}

// remove frees an object of a type, even if the call fails.
func remove[T any](l *CublasLt, name string, handle uintptr) cublaslt.Status {
	if _, ok := l.objects[handle].(T); !ok {
		return cublaslt.InvalidValue
	}
	delete(l.objects, handle)
	return l.call(name, false)
}

// Version implements [cublaslt.Library].
func (l *CublasLt) Version() int {
	if l.Number == 0 {
		return 120903
	}
	return l.Number
}

// Path implements [cublaslt.Library].
func (l *CublasLt) Path() string { return "libcublasLt.so.12" }

// Create implements [cublaslt.Library].
func (l *CublasLt) Create() (uintptr, cublaslt.Status) {
	if s := l.call("cublasLtCreate", true); s != cublaslt.Success {
		return 0, s
	}
	return l.add(&fakeHandle{l.current}), cublaslt.Success
}

// Destroy implements [cublaslt.Library].
func (l *CublasLt) Destroy(handle uintptr) cublaslt.Status {
	return remove[*fakeHandle](l, "cublasLtDestroy", handle)
}

// DescCreate implements [cublaslt.Library].
func (l *CublasLt) DescCreate(compute cublaslt.ComputeType, scale cublaslt.DataType) (uintptr, cublaslt.Status) {
	if s := l.call("cublasLtMatmulDescCreate", false); s != cublaslt.Success {
		return 0, s
	}
	if scale != cublaslt.R32F || compute != cublaslt.Compute32F && compute != cublaslt.Compute32FFastTF32 {
		return 0, cublaslt.InvalidValue
	}
	return l.add(&fakeDesc{epilogue: 1, tf32: compute == cublaslt.Compute32FFastTF32}), cublaslt.Success
}

// DescSet implements [cublaslt.Library].
func (l *CublasLt) DescSet(desc uintptr, a cublaslt.DescAttribute, value []byte) cublaslt.Status {
	if s := l.call("cublasLtMatmulDescSetAttribute", false); s != cublaslt.Success {
		return s
	}
	d, ok := l.objects[desc].(*fakeDesc)
	size := map[cublaslt.DescAttribute]int{cublaslt.DescTransA: 4, cublaslt.DescTransB: 4, cublaslt.DescEpilogue: 4, cublaslt.DescBiasPointer: 8}[a]
	if !ok || len(value) != size {
		return cublaslt.InvalidValue
	}
	switch a {
	case cublaslt.DescTransA:
		d.transA = int32(binary.LittleEndian.Uint32(value))
	case cublaslt.DescTransB:
		d.transB = int32(binary.LittleEndian.Uint32(value))
	case cublaslt.DescEpilogue:
		d.epilogue = binary.LittleEndian.Uint32(value)
	case cublaslt.DescBiasPointer:
		d.bias = binary.LittleEndian.Uint64(value)
	}
	return cublaslt.Success
}

// DescDestroy implements [cublaslt.Library].
func (l *CublasLt) DescDestroy(desc uintptr) cublaslt.Status {
	return remove[*fakeDesc](l, "cublasLtMatmulDescDestroy", desc)
}

// LayoutCreate implements [cublaslt.Library].
func (l *CublasLt) LayoutCreate(d cublaslt.DataType, rows, cols uint64, ld int64) (uintptr, cublaslt.Status) {
	if s := l.call("cublasLtMatrixLayoutCreate", false); s != cublaslt.Success {
		return 0, s
	}
	if d.String() == "" || rows == 0 || cols == 0 || ld < int64(rows) {
		return 0, cublaslt.InvalidValue
	}
	return l.add(&fakeLayout{d: d, rows: rows, cols: cols, ld: ld, batch: 1}), cublaslt.Success
}

// LayoutSet implements [cublaslt.Library].
func (l *CublasLt) LayoutSet(layout uintptr, a cublaslt.LayoutAttribute, value []byte) cublaslt.Status {
	if s := l.call("cublasLtMatrixLayoutSetAttribute", false); s != cublaslt.Success {
		return s
	}
	m, ok := l.objects[layout].(*fakeLayout)
	switch {
	case ok && a == cublaslt.LayoutBatchCount && len(value) == 4:
		m.batch = int32(binary.LittleEndian.Uint32(value))
	case ok && a == cublaslt.LayoutBatchStride && len(value) == 8:
		m.stride = int64(binary.LittleEndian.Uint64(value))
	default:
		return cublaslt.InvalidValue
	}
	return cublaslt.Success
}

// LayoutDestroy implements [cublaslt.Library].
func (l *CublasLt) LayoutDestroy(layout uintptr) cublaslt.Status {
	return remove[*fakeLayout](l, "cublasLtMatrixLayoutDestroy", layout)
}

// PreferenceCreate implements [cublaslt.Library].
func (l *CublasLt) PreferenceCreate() (uintptr, cublaslt.Status) {
	if s := l.call("cublasLtMatmulPreferenceCreate", false); s != cublaslt.Success {
		return 0, s
	}
	return l.add(fakePreference{}), cublaslt.Success
}

// PreferenceSet implements [cublaslt.Library].
func (l *CublasLt) PreferenceSet(preference uintptr, a cublaslt.PreferenceAttribute, value []byte) cublaslt.Status {
	if s := l.call("cublasLtMatmulPreferenceSetAttribute", false); s != cublaslt.Success {
		return s
	}
	p, ok := l.objects[preference].(fakePreference)
	switch {
	case ok && a == cublaslt.PreferWorkspace && len(value) == 8:
		p[a] = binary.LittleEndian.Uint64(value)
	case ok && a != cublaslt.PreferWorkspace && len(value) == 4:
		p[a] = uint64(binary.LittleEndian.Uint32(value))
	default:
		return cublaslt.InvalidValue
	}
	return cublaslt.Success
}

// PreferenceDestroy implements [cublaslt.Library].
func (l *CublasLt) PreferenceDestroy(preference uintptr) cublaslt.Status {
	return remove[fakePreference](l, "cublasLtMatmulPreferenceDestroy", preference)
}

func (l *CublasLt) algorithms() []FakeAlgorithm {
	if l.Algorithms == nil {
		return []FakeAlgorithm{{Time: kernelTime / 10}}
	}
	return l.Algorithms
}

// Heuristic implements [cublaslt.Library]. It also returns algorithms that the workspace and the reduction
// schemes rule out, as a library might.
func (l *CublasLt) Heuristic(handle, desc uintptr, y cublaslt.Layouts, preference uintptr, results []cublaslt.Result) (int, cublaslt.Status) {
	if s := l.call("cublasLtMatmulAlgoGetHeuristic", true); s != cublaslt.Success {
		return 0, s
	}
	p, ok := l.objects[preference].(fakePreference)
	if !ok || p[cublaslt.PreferReductions] != 2 || p[cublaslt.PreferAlignmentA] == 0 || p[cublaslt.PreferAlignmentD] == 0 {
		return 0, cublaslt.InvalidValue
	}
	if _, s := l.product(handle, desc, y); s != cublaslt.Success {
		return 0, s
	}
	n := 0
	for i, a := range l.algorithms() {
		if n == len(results) {
			break
		}
		results[n] = cublaslt.Result{Workspace: uint64(a.Workspace)}
		binary.LittleEndian.PutUint32(results[n].Algorithm[:], algorithmMark)
		results[n].Algorithm[4] = byte(i)
		n++
	}
	return n, cublaslt.Success
}

func (l *CublasLt) algorithm(a *cublaslt.Algorithm) *FakeAlgorithm {
	all := l.algorithms()
	if binary.LittleEndian.Uint32(a[:]) != algorithmMark || int(a[4]) >= len(all) {
		return nil
	}
	return &all[a[4]]
}

// Check implements [cublaslt.Library].
func (l *CublasLt) Check(handle, desc uintptr, y cublaslt.Layouts, algo *cublaslt.Algorithm) (r cublaslt.Result, s cublaslt.Status) {
	if s := l.call("cublasLtMatmulAlgoCheck", true); s != cublaslt.Success {
		return r, s
	}
	if _, s := l.product(handle, desc, y); s != cublaslt.Success {
		return r, s
	}
	a := l.algorithm(algo)
	if a == nil {
		return r, cublaslt.InvalidValue
	}
	return cublaslt.Result{Algorithm: *algo, Workspace: uint64(a.Workspace)}, cublaslt.Success
}

// AlgoGet implements [cublaslt.Library].
func (l *CublasLt) AlgoGet(algo *cublaslt.Algorithm, what cublaslt.AlgoAttribute, value []byte) cublaslt.Status {
	if s := l.call("cublasLtMatmulAlgoConfigGetAttribute", false); s != cublaslt.Success {
		return s
	}
	a := l.algorithm(algo)
	if a == nil || what != cublaslt.AlgoReduction || len(value) != 4 {
		return cublaslt.InvalidValue
	}
	binary.LittleEndian.PutUint32(value, a.Reduction)
	return cublaslt.Success
}

// truncated is x cut off to TF32: the library need not round as snug does.
func truncated(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(math.Float32frombits(math.Float32bits(float32(v)) &^ (1<<13 - 1)))
	}
	return y
}

// fakeProduct is op(A) op(B) in column order.
type fakeProduct struct {
	desc    fakeDesc
	a, b, d fakeLayout
	m, n, k uint64
	batch   int
	inSize  int64
	outSize int64
}

// product checks the description of a product.
func (l *CublasLt) product(handle, desc uintptr, y cublaslt.Layouts) (p fakeProduct, s cublaslt.Status) {
	h, ok := l.objects[handle].(*fakeHandle)
	d, ok2 := l.objects[desc].(*fakeDesc)
	if !ok || !ok2 || h.c != l.current {
		return p, cublaslt.InvalidValue
	}
	p.desc = *d
	var c fakeLayout
	for _, m := range []struct {
		handle uintptr
		to     *fakeLayout
	}{{y.A, &p.a}, {y.B, &p.b}, {y.C, &c}, {y.D, &p.d}} {
		x, ok := l.objects[m.handle].(*fakeLayout)
		if !ok {
			return p, cublaslt.InvalidValue
		}
		*m.to = *x
	}
	p.m, p.k = p.a.rows, p.a.cols
	if d.transA == 1 {
		p.m, p.k = p.k, p.m
	}
	k, n := p.b.rows, p.b.cols
	if d.transB == 1 {
		k, n = n, k
	}
	p.n = n
	p.batch = int(p.d.batch)
	switch {
	case k != p.k, p.d.rows != p.m, p.d.cols != p.n, c != p.d, p.a.d != p.b.d,
		p.a.batch != p.d.batch, p.b.batch != p.d.batch, p.batch < 1,
		p.batch > 1 && (p.a.stride == 0 || p.b.stride == 0 || p.d.stride == 0),
		d.transA&^1 != 0, d.transB&^1 != 0, d.epilogue != 1 && d.epilogue != 4, d.epilogue == 4 && d.bias == 0:
		return p, cublaslt.InvalidValue
	case p.a.d == cublaslt.R32F && p.d.d != cublaslt.R32F, p.d.d != p.a.d && p.d.d != cublaslt.R32F,
		(p.a.d == cublaslt.R16BF || d.tf32) && l.current.card.Capability() < 80, d.tf32 && p.a.d != cublaslt.R32F:
		return p, cublaslt.NotSupported
	}
	p.inSize, p.outSize = dtypeOf(p.a.d).Size(), dtypeOf(p.d.d).Size()
	return p, cublaslt.Success
}

func dtypeOf(d cublaslt.DataType) graph.DType {
	return map[cublaslt.DataType]graph.DType{cublaslt.R32F: graph.F32, cublaslt.R16F: graph.F16, cublaslt.R16BF: graph.BF16}[d]
}

// Matmul implements [cublaslt.Library].
func (l *CublasLt) Matmul(handle, desc uintptr, y cublaslt.Layouts, m *cublaslt.Matmul) cublaslt.Status {
	const name = "cublasLtMatmul"
	if s := l.call(name, true); s != cublaslt.Success {
		return s
	}
	p, s := l.product(handle, desc, y)
	if s != cublaslt.Success {
		return s
	}
	a := l.algorithm(m.Algorithm)
	stream := l.current.streams[m.Stream]
	if a == nil || stream == nil || m.WorkspaceBytes < a.Workspace || m.Beta == 0 && m.C != m.D || m.Alpha != 1 {
		return cublaslt.InvalidValue
	}
	args := *m
	if err := stream.push(name, func() error {
		stream.c.clock += a.Time
		l.runs++
		return p.compute(stream.c, &args, a, l.runs)
	}); err != nil {
		return cublaslt.ExecutionFailed
	}
	return cublaslt.Success
}

// matrix reads all that a matrix's layout spans as numbers.
func matrix(c *Context, at uint64, l fakeLayout) (engine.Tensor, []float64, error) {
	d := dtypeOf(l.d)
	elems := int64(l.batch-1)*l.stride + int64(l.cols-1)*l.ld + int64(l.rows)
	bytes, err := c.device(driver.Ptr(at), elems*d.Size())
	if err != nil {
		return engine.Tensor{}, nil, err
	}
	t := engine.Tensor{Type: graph.T(d, int(elems)), Data: bytes}
	return t, t.Float64s(), nil
}

func (p *fakeProduct) compute(c *Context, m *cublaslt.Matmul, how *FakeAlgorithm, run int) error {
	_, a, err := matrix(c, m.A, p.a)
	if err != nil {
		return err
	}
	_, b, err := matrix(c, m.B, p.b)
	if err != nil {
		return err
	}
	out, d, err := matrix(c, m.D, p.d)
	if err != nil {
		return err
	}
	add := d
	if m.Beta != 0 && m.C != m.D {
		if _, add, err = matrix(c, m.C, p.d); err != nil {
			return err
		}
	}
	var bias []float64
	if p.desc.epilogue == 4 {
		if _, bias, err = matrix(c, p.desc.bias, fakeLayout{d: p.d.d, rows: p.m, cols: 1, ld: int64(p.m), batch: 1}); err != nil {
			return err
		}
	}
	if how.Workspace > 0 { // the workspace holds partial sums
		w, err := c.device(driver.Ptr(m.Workspace), how.Workspace)
		if err != nil {
			return err
		}
		for i := range w {
			w[i] = 0xff
		}
	}
	if p.desc.tf32 {
		a, b = truncated(a), truncated(b)
	}
	for z := range p.batch {
		for j := range int64(p.n) {
			for i := range int64(p.m) {
				var sum float64
				for k := range int64(p.k) {
					x, y := i+k*p.a.ld, k+j*p.b.ld
					if p.desc.transA == 1 {
						x = k + i*p.a.ld
					}
					if p.desc.transB == 1 {
						y = j + k*p.b.ld
					}
					sum += a[int64(z)*p.a.stride+x] * b[int64(z)*p.b.stride+y]
				}
				at := int64(z)*p.d.stride + i + j*p.d.ld
				if m.Beta != 0 {
					sum += float64(m.Beta) * add[at]
				}
				if bias != nil {
					sum += bias[i]
				}
				d[at] = sum
			}
		}
	}
	if last := len(d) - 1; how.Wrong {
		d[last] += 1000
	} else if how.Unsteady && run%2 == 0 {
		d[last] += math.Abs(d[last]) / 64
	}
	out.SetFloat64s(d)
	return nil
}
