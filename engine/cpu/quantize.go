package cpu

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/quant"
)

// quantize encodes rows.
func (c *compiler) quantize(n *graph.Node) ([]phase, error) {
	m, err := quantized(n.Out[0])
	if err != nil {
		return nil, err
	}
	x, y := c.ref(n.In[0]), c.ref(n.Out[0])
	d, width, code := n.In[0].DType(), m.Cols, c.code
	c.need(0, 4*width)
	tasks, per := chunks(m.Rows, max(1, grain/width))
	return []phase{{tasks, func(task, w int) {
		for i := task * per; i < min((task+1)*per, m.Rows); i++ {
			m.EncodeRow(y.bytes(0, m.Bytes()), i, row(x, d, i, width, floats(code.worker(w), 0, width)))
		}
	}}}, nil
}

// dequantize decodes a quantized tensor.
func (c *compiler) dequantize(n *graph.Node) ([]phase, error) {
	m, err := quantized(n.In[0])
	if err != nil {
		return nil, err
	}
	x, y := c.ref(n.In[0]), c.ref(n.Out[0])
	d, code := n.Out[0].DType(), c.code
	tasks, per := chunks(y.n, grain)
	scratch := per
	if d == graph.F32 {
		scratch = 0
	}
	c.need(0, 4*scratch)
	return []phase{{tasks, func(task, w int) {
		from, to := task*per, min((task+1)*per, y.n)
		part := directPart(y, d, from, to, floats(code.worker(w), 0, scratch))
		m.Decode(part, x.bytes(0, m.Bytes()), from)
		putPart(y, d, from, part)
	}}}, nil
}

func quantized(v *graph.Value) (quant.Matrix, error) {
	m, ok := v.Type.Quantized()
	if !ok {
		return m, fmt.Errorf("a value is %v, want a quantized tensor", v.Type)
	}
	return m, nil
}
