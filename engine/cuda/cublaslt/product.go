package cublaslt

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
)

// Product is D = op(A) op(B), Batch times: op(A) is [M, K], op(B) [K, N]. Only A's rows may have gaps between them.
// Bias and C are added before the result is rounded to its format.
type Product struct {
	In, Out        DataType // of both factors; of the result
	TransA, TransB bool
	// TF32 rounds float32 factors to TF32, in the library's own way.
	TF32           bool
	Batch, M, N, K int
	// PitchA is the distance in elements between rows of A as stored; 0: their length.
	PitchA int
	// Bias adds one element per column, in the result's format.
	Bias bool
	// Add adds a matrix C in the layout and format of D, which may be D itself.
	Add bool
	// AlignA, AlignB and AlignD are powers of two that divide the addresses, AlignD those of C and the bias too.
	AlignA, AlignB, AlignD int
}

// String names the product completely: equal texts mean equal products.
func (p Product) String() string {
	op := func(t bool) string { return map[bool]string{false: "n", true: "t"}[t] }
	in := p.In.String()
	if p.TF32 {
		in = "tf32"
	}
	text := fmt.Sprintf("%s %s%s %dx%dx%dx%d", in, op(p.TransA), op(p.TransB), p.Batch, p.M, p.N, p.K)
	if p.PitchA != 0 {
		text += fmt.Sprintf(" pitch %d", p.PitchA)
	}
	text += " to " + p.Out.String()
	for _, o := range []struct {
		on   bool
		name string
	}{{p.Bias, "bias"}, {p.Add, "add"}} {
		if o.on {
			text += " " + o.name
		}
	}
	return fmt.Sprintf("%s aligned %d/%d/%d", text, p.AlignA, p.AlignB, p.AlignD)
}

// String names a format as snug does.
func (d DataType) String() string {
	return map[DataType]string{R32F: "f32", R16F: "f16", R16BF: "bf16"}[d]
}

// Operands are the addresses of a product's operands on the card.
type Operands struct {
	A, B, Bias, C, D, Workspace uint64 // Bias and C: if the product has them
	WorkspaceBytes              int64
}

// Handle is the library's handle for the card whose context was current when it was made. That context must
// be current in all calls.
type Handle struct {
	library Library
	handle  uintptr
}

// New makes a handle.
func New(l Library) (*Handle, error) {
	h, s := l.Create()
	if err := failed("cublasLtCreate", s); err != nil {
		return nil, err
	}
	return &Handle{l, h}, nil
}

// Close frees the handle.
func (h *Handle) Close() error { return failed("cublasLtDestroy", h.library.Destroy(h.handle)) }

// described is a product as described to the library.
type described struct {
	library Library
	desc    uintptr
	Layouts
}

// describe describes p to the library. The library stores matrices by columns, so it computes the transpose,
// with B as its first factor.
func (h *Handle) describe(p Product, bias uint64) (d *described, err error) {
	l := h.library
	d = &described{library: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	var s Status
	compute := Compute32F
	if p.TF32 {
		compute = Compute32FFastTF32
	}
	if d.desc, s = l.DescCreate(compute, R32F); s != Success {
		return d, failed("cublasLtMatmulDescCreate", s)
	}
	op := func(t bool) []byte {
		return binary.LittleEndian.AppendUint32(nil, uint32(map[bool]int32{false: opN, true: opT}[t]))
	}
	attributes := []struct {
		a     DescAttribute
		value []byte
	}{{DescTransA, op(p.TransB)}, {DescTransB, op(p.TransA)}, {DescEpilogue, binary.LittleEndian.AppendUint32(nil, epilogueDefault)}}
	if p.Bias {
		attributes[2].value = binary.LittleEndian.AppendUint32(nil, epilogueBias)
		attributes = append(attributes, struct {
			a     DescAttribute
			value []byte
		}{DescBiasPointer, binary.LittleEndian.AppendUint64(nil, bias)})
	}
	for _, a := range attributes {
		if s := l.DescSet(d.desc, a.a, a.value); s != Success {
			return d, failed("cublasLtMatmulDescSetAttribute", s)
		}
	}
	rowsOf := func(rows, cols int, trans bool) (int, int) {
		if trans {
			return cols, rows
		}
		return rows, cols
	}
	ar, ac := rowsOf(p.M, p.K, p.TransA)
	br, bc := rowsOf(p.K, p.N, p.TransB)
	for _, m := range []struct {
		to                *uintptr
		d                 DataType
		rows, cols, pitch int
	}{{&d.A, p.In, br, bc, bc}, {&d.B, p.In, ar, ac, cmp.Or(p.PitchA, ac)}, {&d.C, p.Out, p.M, p.N, p.N}, {&d.D, p.Out, p.M, p.N, p.N}} {
		if err := d.layout(m.to, m.d, m.rows, m.cols, m.pitch, p.Batch); err != nil {
			return d, err
		}
	}
	return d, nil
}

// layout describes a matrix stored by rows, which the library sees as its transpose by columns.
func (d *described) layout(to *uintptr, t DataType, rows, cols, pitch, batch int) error {
	l, s := d.library.LayoutCreate(t, uint64(cols), uint64(rows), int64(pitch))
	if s != Success {
		return failed("cublasLtMatrixLayoutCreate", s)
	}
	*to = l
	if batch == 1 {
		return nil
	}
	if s := d.library.LayoutSet(l, LayoutBatchCount, binary.LittleEndian.AppendUint32(nil, uint32(batch))); s != Success {
		return failed("cublasLtMatrixLayoutSetAttribute", s)
	}
	return failed("cublasLtMatrixLayoutSetAttribute", d.library.LayoutSet(l, LayoutBatchStride, binary.LittleEndian.AppendUint64(nil, uint64(rows)*uint64(pitch))))
}

func (d *described) close() error {
	var errs []error
	for _, l := range []uintptr{d.A, d.B, d.C, d.D} {
		if l != 0 {
			errs = append(errs, failed("cublasLtMatrixLayoutDestroy", d.library.LayoutDestroy(l)))
		}
	}
	if d.desc != 0 {
		errs = append(errs, failed("cublasLtMatmulDescDestroy", d.library.DescDestroy(d.desc)))
	}
	return errors.Join(errs...)
}

// candidates is how many algorithms to ask for.
const candidates = 8

// Candidate is an algorithm for a product, with the workspace that it needs.
type Candidate struct {
	Algorithm Algorithm
	Workspace int64
}

// Candidates returns the library's algorithms for a product that sum in a fixed order and fit the workspace,
// best first by the library's estimate. Finding none is not an error.
func (h *Handle) Candidates(p Product, workspace int64) (found []Candidate, err error) {
	d, err := h.describe(p, uint64(p.AlignD))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	preference, s := h.library.PreferenceCreate()
	if s != Success {
		return nil, failed("cublasLtMatmulPreferenceCreate", s)
	}
	defer func() {
		err = errors.Join(err, failed("cublasLtMatmulPreferenceDestroy", h.library.PreferenceDestroy(preference)))
	}()
	u32 := func(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
	for _, a := range []struct {
		a     PreferenceAttribute
		value []byte
	}{
		{PreferWorkspace, binary.LittleEndian.AppendUint64(nil, uint64(workspace))},
		{PreferReductions, binary.LittleEndian.AppendUint32(nil, reductionComputeType)},
		{PreferAlignmentA, u32(p.AlignB)}, {PreferAlignmentB, u32(p.AlignA)}, {PreferAlignmentC, u32(p.AlignD)}, {PreferAlignmentD, u32(p.AlignD)},
	} {
		if s := h.library.PreferenceSet(preference, a.a, a.value); s != Success {
			return nil, failed("cublasLtMatmulPreferenceSetAttribute", s)
		}
	}
	results := make([]Result, candidates)
	n, s := h.library.Heuristic(h.handle, d.desc, d.Layouts, preference, results)
	if s == NotSupported || s == ArchMismatch {
		return nil, nil
	}
	if s != Success {
		return nil, failed("cublasLtMatmulAlgoGetHeuristic", s)
	}
	for _, r := range results[:min(max(n, 0), len(results))] {
		if r.State != Success || r.Workspace > uint64(workspace) {
			continue
		}
		fixed, err := h.fixedOrder(&r.Algorithm)
		if err != nil {
			return nil, err
		}
		if fixed {
			found = append(found, Candidate{r.Algorithm, int64(r.Workspace)})
		}
	}
	return found, nil
}

// fixedOrder reports whether an algorithm adds in an order that does not depend on timing: it does not split
// K, or adds the parts in a separate step.
func (h *Handle) fixedOrder(a *Algorithm) (bool, error) {
	var scheme [4]byte
	if s := h.library.AlgoGet(a, AlgoReduction, scheme[:]); s != Success {
		return false, failed("cublasLtMatmulAlgoConfigGetAttribute", s)
	}
	v := binary.LittleEndian.Uint32(scheme[:])
	return v == reductionNone || v == reductionComputeType, nil
}

// Check reports whether a stored algorithm can compute a product, in a fixed order, and returns the workspace
// that it needs.
func (h *Handle) Check(p Product, a Algorithm) (workspace int64, ok bool, err error) {
	d, err := h.describe(p, uint64(p.AlignD))
	if err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	r, s := h.library.Check(h.handle, d.desc, d.Layouts, &a)
	if s != Success || r.State != Success {
		return 0, false, nil
	}
	fixed, err := h.fixedOrder(&a)
	return int64(r.Workspace), fixed && err == nil, nil
}

// Run queues a product in a stream.
func (h *Handle) Run(p Product, a Algorithm, o Operands, stream uintptr) (err error) {
	d, err := h.describe(p, o.Bias)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	m := &Matmul{
		Alpha: 1, A: o.B, B: o.A, C: o.D, D: o.D, Algorithm: &a,
		Workspace: o.Workspace, WorkspaceBytes: o.WorkspaceBytes, Stream: stream,
	}
	if p.Add {
		m.C, m.Beta = o.C, 1
	}
	return failed("cublasLtMatmul", h.library.Matmul(h.handle, d.desc, d.Layouts, m))
}
