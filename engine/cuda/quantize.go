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
	m, ok := v.Type.Quantized()
	if !ok {
		l.fail("operand %v, want a quantized matrix", v.Type)
		return
	}
	at, blocks := l.at(v), min(ceil(m.Elems(), 512), 1<<20)
	if m.Format == quant.Int8 {
		p := new(params).ptr(at).ptr(at.plus(int64(m.Codes()))).ptr(to).u64(uint64(m.Elems())).u32(m.Cols)
		l.run("dequantize_int8_"+d.String(), blocks, 256, p).does("line", warps(m.Elems()))
		return
	}
	nested, mean, scales := m.Parts()
	p := new(params).ptr(at).ptr(at.plus(int64(nested))).ptr(at.plus(int64(mean))).ptr(at.plus(int64(scales))).
		ptr(l.table(nf4Books())).ptr(to).u64(uint64(m.Elems()))
	l.run("dequantize_nf4_"+d.String(), blocks, 256, p).does("block", ceil(m.Elems(), 64)).moves(traffic(v), d.Size()*int64(m.Elems()))
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
