package cuda

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/codebook"
	"github.com/snug-ml/snug/internal/quant"
)

func (l *lowering) quantize(n *graph.Node) {
	m, ok := n.Out[0].Type.Quantized()
	if !ok {
		l.fail("result %v, want a quantized tensor", n.Out[0].Type)
		return
	}
	y := l.at(n.Out[0])
	p := new(params).ptr(l.at(n.In[0])).ptr(y).ptr(y.plus(int64(m.Codes()))).u32(m.Rows).u32(m.Cols)
	l.run("quantize_int8_"+n.In[0].DType().String(), ceil(m.Rows, 8), 256, p).
		does("row", m.Rows).does("line", m.Rows*warps(m.Cols)).moves(traffic(n.In[0], n.Out[0]))
}

func (l *lowering) dequantize(n *graph.Node) {
	l.decode(n.In[0], n.Out[0].DType(), l.at(n.Out[0]))
}

// decoded is a quantized operand of a product, decoded to format d in the workspace.
func (l *lowering) decoded(v *graph.Value, d graph.DType, trans bool) factor {
	at := l.take(d.Size() * v.Shape().Elems())
	l.decode(v, d, at)
	return factor{d, at, trans}
}

// decode writes the elements of a quantized matrix, rounded to format d.
func (l *lowering) decode(v *graph.Value, d graph.DType, to address) {
	q := l.quantized(v)
	elems, p := q.Elems(), new(params)
	q.pass(l, p)
	p.ptr(to).u64(uint64(elems))
	if q.Format == quant.Int8 {
		p.u32(q.Cols)
	}
	x := l.run("dequantize_"+q.format()+"_"+d.String(), min(ceil(elems, 512), 1<<20), 256, p)
	if q.Format == quant.Int8 {
		x.does("line", warps(elems))
		return
	}
	x.does("block", ceil(elems, 64)).moves(traffic(v), d.Size()*int64(elems))
}

// quantized is a quantized matrix in memory.
type quantized struct {
	quant.Matrix
	at address
}

func (l *lowering) quantized(v *graph.Value) quantized {
	m, ok := v.Type.Quantized()
	if !ok {
		l.fail("operand %v, want a quantized matrix", v.Type)
	}
	return quantized{m, l.at(v)}
}

// format is the format's name in the names of kernels.
func (q quantized) format() string {
	if q.Format == quant.Int8 {
		return "int8"
	}
	return "nf4"
}

// pass appends the parts of the matrix.
func (q quantized) pass(l *lowering, p *params) {
	if q.Format == quant.Int8 {
		p.ptr(q.at).ptr(q.at.plus(int64(q.Codes())))
		return
	}
	nested, mean, scales := q.Parts()
	p.ptr(q.at).ptr(q.at.plus(int64(nested))).ptr(q.at.plus(int64(mean))).ptr(q.at.plus(int64(scales))).ptr(l.table(nf4Books()))
}

// decodesInMatmul reports whether the kernel that multiplies decodes B: see kernels/gemm_quantized.cu.
func (l *lowering) decodesInMatmul(p product, b quantized) bool {
	return l.target < 80 && p.batch == 1 && p.a.dtype == graph.F16 && !p.a.trans && aligned(p.a, p.rowA()) && b.Cols%8 == 0
}

// nf4Books are the values of NF4 scales, then those of NF4 elements.
func nf4Books() *params {
	p := new(params)
	for _, x := range codebook.Signed.Values {
		p.f32(float64(x))
	}
	for _, x := range quant.Numbers() {
		p.f32(float64(x))
	}
	return p
}
