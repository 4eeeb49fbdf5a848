package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// replaceable is a product of a program that cuBLASLt could compute instead of snug's launches.
type replaceable struct {
	*replaced
	a, b, bias, c, d address
	factors          graph.DType // the format of A and B
	// free is where the workspace that the library may use begins.
	free     address
	epilogue *epilogue
	// before rounds a bias to the format that the library takes; after does what the library lacks of the
	// epilogue. Either may be empty.
	before, after []launch
}

// replaced is what equal products of a program share.
type replaced struct {
	cublaslt.Product
	// extra describes the launches before and after the library's; empty: there are none.
	extra string
	// ours are the launches of the first of the products.
	ours []launch
	at   *replaceable // the first of the products
	// limit is the workspace in bytes that is free in all of the products. It was planned for snug's own
	// kernels, so that a plan does not depend on the library.
	limit int64
	// choice is the chosen algorithm; nil: snug's kernels compute the product.
	choice *cublaslt.Candidate
}

// name identifies the product and its epilogue.
func (r *replaced) name() string { return r.Product.String() + r.extra }

var dataTypes = map[graph.DType]cublaslt.DataType{graph.F32: cublaslt.R32F, graph.F16: cublaslt.R16F, graph.BF16: cublaslt.R16BF}

// replaceable marks the launches from first on as a product that cuBLASLt could compute, if it can. The
// product leaves the workspace from free on unused.
func (l *lowering) replaceable(p product, e *epilogue, first int, free int64) {
	f := e.sums()
	var rounded address // the bias
	if f.bias != nil && f.bias.dtype != e.first {
		rounded = address{workspace, free}
		free += ceil(int64(p.n)*e.first.Size(), 256) * 256
		l.workspace = max(l.workspace, free) // without the library too, so that a plan does not depend on it
	}
	in, ok := dataTypes[p.a.dtype]
	if !l.library || !ok || !f.complete(e) {
		return
	}
	r := &replaceable{a: p.a.at, b: p.b.at, d: f.d, factors: p.a.dtype, epilogue: e}
	q := cublaslt.Product{
		In: in, Out: dataTypes[e.first], TransA: p.a.trans, TransB: p.b.trans, Batch: p.batch, M: p.m, N: p.n, K: p.k,
		TF32: p.tf32, Bias: f.bias != nil, Add: f.c != nil, AlignA: r.a.alignment(), AlignB: r.b.alignment(), AlignD: r.d.alignment(),
	}
	if p.pitch != p.rowA() {
		q.PitchA = p.pitch
	}
	// apart returns the launches that f appends, which do not stay where they are.
	apart := func(f func()) []launch {
		end := len(l.launches)
		f()
		list := slices.Clone(l.launches[end:])
		l.launches = l.launches[:end]
		return list
	}
	extra := ""
	if f.bias != nil {
		r.bias = f.bias.at
		if d := f.bias.dtype; d != e.first {
			r.bias = rounded
			r.before = apart(func() {
				l.copyLoop(graph.Shape{p.n}, strided{dtype: d, at: f.bias.at, stride: []int{1}}, strided{dtype: e.first, at: rounded, stride: []int{1}})
			})
			extra += fmt.Sprintf(", bias of %v", d)
		}
		q.AlignD = min(q.AlignD, r.bias.alignment())
	}
	if f.c != nil {
		r.c = f.c.at
		q.AlignD = min(q.AlignD, r.c.alignment())
	}
	if f.rest != nil {
		r.after = apart(func() {
			l.bodyLoop(f.rest.body, f.rest, graph.Type{DType: e.first, Shape: graph.Shape{p.batch * p.m, p.n}}, f.d)
		})
		extra += ", then " + f.rest.String()
	}
	r.free = address{workspace, free}
	for _, x := range l.products {
		if x.Product == q && x.extra == extra {
			r.replaced = x
		}
	}
	if r.replaced == nil {
		r.replaced = &replaced{Product: q, extra: extra, at: r, ours: l.launches[first:len(l.launches):len(l.launches)], limit: math.MaxInt64}
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

// libraryForm is an epilogue in cuBLASLt's terms: D = op(A) op(B) + bias + C, and what is left to do with D.
type libraryForm struct {
	bias, c   *placed // nil: not added
	sum, done int     // the register that D holds, and how many instructions the library replaces
	d         address
	rest      *epilogue // its product is D; nil: D is the result
}

// sums finds the sums with which an epilogue begins.
func (ep *epilogue) sums() (f libraryForm) {
	for ; f.done < len(ep.body.Instrs); f.done++ {
		o := ep.addend(f.done, f.sum)
		if o == nil {
			break
		}
		to := &f.c
		if o.extent == perColumn {
			to = &f.bias
		}
		if *to != nil {
			break
		}
		*to, f.sum = o, ep.body.Inputs+f.done
	}
	return f
}

// complete finds what is left to do, and a place for D: that of one of the results, which must be in the
// product's format, and where no operand is that is still needed. It returns false if there is none.
func (f *libraryForm) complete(ep *epilogue) bool {
	b := ep.body
	rest := &epilogue{first: ep.first, cols: ep.cols, out: slices.Clone(ep.out)}
	var inputs []int
	rest.body, inputs = b.After(f.done, f.sum)
	for _, i := range inputs {
		rest.in = append(rest.in, ep.in[i-1])
	}
	holds := -1 // the result whose place D takes
	for i, o := range ep.out {
		if _, ok := dataTypes[o.dtype]; !ok {
			return false
		}
		// Operands and results that overlap are the same memory: otherwise blocks would race.
		if o.dtype != ep.first || slices.ContainsFunc(rest.in, func(in placed) bool { return in.at == o.at }) {
			continue
		}
		if holds < 0 || b.Results[holds] != f.sum && b.Results[i] == f.sum {
			holds = i
		}
	}
	if _, ok := dataTypes[ep.first]; !ok || holds < 0 {
		return false
	}
	f.d = ep.out[holds].at
	if b.Results[holds] == f.sum { // is there already
		rest.out = slices.Delete(rest.out, holds, holds+1)
		rest.body.Results = slices.Delete(rest.body.Results, holds, holds+1)
	}
	if len(rest.out) > 0 {
		f.rest = rest
	}
	return true
}

// addend is the operand that instruction i adds to register sum; nil if it does something else, if more is done
// with the register, or if a format is not the product's. A bias may be float32: it is rounded for the library.
func (ep *epilogue) addend(i, sum int) *placed {
	q, ok := ep.body.Addend(i, sum)
	if !ok || ep.body.Instrs[i].DType != ep.first || q < 1 || q >= ep.body.Inputs {
		return nil
	}
	switch o := &ep.in[q-1]; {
	case o.extent == full && o.dtype == ep.first, o.extent == perColumn && (o.dtype == ep.first || o.dtype == graph.F32):
		return o
	}
	return nil
}

// elems is the number of elements of an operand of a product of rows and columns.
func (o placed) elems(rows, cols int) int64 {
	switch o.extent {
	case full:
		return int64(rows) * int64(cols)
	case perColumn:
		return int64(cols)
	case perRow:
		return int64(rows)
	}
	return 1
}

// String describes what is computed, and from which formats to which.
func (ep *epilogue) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "{%v}", ep.body)
	for i, o := range ep.in {
		text.WriteString(map[bool]string{false: ", ", true: " of "}[i == 0] + o.String())
	}
	for i, o := range ep.out {
		text.WriteString(map[bool]string{false: ", ", true: " to "}[i == 0] + o.dtype.String())
	}
	return text.String()
}

func (o placed) String() string {
	return o.dtype.String() + [...]string{full: "", perColumn: " per column", perRow: " per row", scalar: " for all", counter: " of runs", perGroup: " per group"}[o.extent]
}

// operands are a product's addresses in a loaded program.
func (r *replaceable) operands(bases *[regions]driver.Ptr) cublaslt.Operands {
	at := func(a address) uint64 { return uint64(bases[a.region]) + uint64(a.offset) }
	o := cublaslt.Operands{A: at(r.a), B: at(r.b), D: at(r.d), Workspace: at(r.free), WorkspaceBytes: r.limit}
	if r.Bias {
		o.Bias = at(r.bias)
	}
	if r.Add {
		o.C = at(r.c)
	}
	return o
}
