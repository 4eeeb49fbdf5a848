package agiformer

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// Language is the language model that language experts read. It runs once over
// the text, on states that a learned layer projects to its width, and all
// experts of all blocks read its result: what the guide's model computes anew in
// every block. Gradients pass through it.
type Language struct {
	Width, Layers, Heads, FF int
}

// read gives what the model makes of x [B, T, D]: [B, T, Width].
func (l *Language) read(p *forward, x *graph.Value) (y *graph.Value) {
	y = p.linear("in", p.norm("in_norm", x), l.Width, true)
	q := *p
	q.D, q.Heads, q.FF = l.Width, l.Heads, l.FF
	if p.table != nil {
		q.table = p.RotaryTable(p.time, l.Width/l.Heads, p.RotaryBase)
	}
	p.Scope("layers", func() {
		for i := range l.Layers {
			p.Block(fmt.Sprint(i), func() { y = q.layer(y) })
		}
	})
	return p.norm("norm", y)
}

// layer is a plain transformer layer.
func (p *forward) layer(x *graph.Value) *graph.Value {
	x = p.Add(x, p.drop(p.attention("attention", p.norm("attention_norm", x))))
	h := p.GELU(p.linear("up", p.norm("mlp_norm", x), p.FF, true))
	return p.Add(x, p.drop(p.linear("down", h, p.D, true)))
}
