package cuda

import (
	"math/bits"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// replaceable is a product of a program that cuBLASLt could compute instead of launches, as it supports the
// epilogue too.
type replaceable struct {
	*replaced
	a, b, bias, d address
	// free is where the workspace that is unused during the product begins.
	free address
}

// replaced is what equal products of a program share.
type replaced struct {
	cublaslt.Product
	// ours are the launches of the first of the products.
	ours []launch
	at   *replaceable // the first of the products
	// limit is the workspace in bytes that is free in all of the products. It was planned for snug's own
	// kernels, so that a plan does not depend on the library.
	limit int64
	// choice is the chosen algorithm; nil: snug's kernels compute the product.
	choice *cublaslt.Candidate
}

var dataTypes = map[graph.DType]cublaslt.DataType{graph.F32: cublaslt.R32F, graph.F16: cublaslt.R16F, graph.BF16: cublaslt.R16BF}

// replaceable marks the launches from first on as a product that cuBLASLt could compute, if it can. The
// product leaves the workspace from free on unused.
func (l *lowering) replaceable(p product, e *epilogue, first int, free int64) {
	if p.padded() { // the library does not support padding
		return
	}
	if l.sizesOnly {
		return
	}
	in, ok := dataTypes[p.a.dtype]
	out, bias, accumulate, known := e.ofLibrary()
	if !ok || !known {
		return
	}
	r := &replaceable{a: p.a.at, b: p.b.at, d: e.out[0].at, free: address{workspace, free}}
	q := cublaslt.Product{
		In: in, Out: out, TransA: p.a.trans, TransB: p.b.trans, Batch: p.batch, M: p.m, N: p.n, K: p.k,
		TF32: p.tf32, Bias: bias, Accumulate: accumulate, AlignA: r.a.alignment(), AlignB: r.b.alignment(), AlignD: r.d.alignment(),
	}
	if bias {
		r.bias = e.in[0].at
		q.AlignD = min(q.AlignD, r.bias.alignment())
	}
	for _, x := range l.products {
		if x.Product == q {
			r.replaced = x
		}
	}
	if r.replaced == nil {
		r.replaced = &replaced{Product: q, at: r, ours: l.launches[first:len(l.launches):len(l.launches)], limit: 1<<63 - 1}
		l.products = append(l.products, r.replaced)
	}
	// Until the size of the workspace is known, limit is minus the size of what precedes the free part.
	r.limit = min(r.limit, -free)
	for i := range l.launches[first:] {
		l.launches[first+i].product = r
	}
}

// limits sets how much workspace each product may use.
func (c *code) limits() {
	for _, r := range c.products {
		r.limit += c.workspace
	}
}

// alignment is the largest power of two, up to 256, that divides an address; regions begin at multiples of
// 256.
func (a address) alignment() int { return 1 << min(bits.TrailingZeros64(uint64(a.offset)|256), 8) }

// ofLibrary expresses an epilogue in cuBLASLt's terms; known says whether it is no more than a store, with a
// bias before it or a sum with what the result holds.
func (ep *epilogue) ofLibrary() (out cublaslt.DataType, bias, accumulate, known bool) {
	if len(ep.out) != 1 {
		return 0, false, false, false
	}
	d := ep.out[0].dtype
	out, known = dataTypes[d]
	b := ep.body
	switch {
	case !known:
	case len(b.Instrs) == 0:
		return out, false, false, b.Inputs == 1 && ep.first == d
	case len(b.Instrs) == 1 && b.Inputs == 2 && b.Results[0] == 2 && ep.first == d:
		op, ok := b.Instrs[0].Op.(graph.Elementwise)
		arg := b.Instrs[0].Arg
		if !ok || op.Fn != graph.FnAdd || arg[0]+arg[1] != 1 || b.Instrs[0].DType != d || ep.in[0].dtype != d {
			return out, false, false, false
		}
		accumulate = ep.in[0].extent == full && ep.in[0].at == ep.out[0].at
		bias = ep.in[0].extent == perColumn
		return out, bias, accumulate, bias || accumulate
	}
	return out, false, false, false
}

// operands are a product's addresses in a loaded program.
func (r *replaceable) operands(bases *[regions]driver.Ptr) cublaslt.Operands {
	at := func(a address) uint64 { return uint64(bases[a.region]) + uint64(a.offset) }
	o := cublaslt.Operands{A: at(r.a), B: at(r.b), D: at(r.d), Workspace: at(r.free), WorkspaceBytes: r.limit}
	if r.Bias {
		o.Bias = at(r.bias)
	}
	return o
}
