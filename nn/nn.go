// Package nn contains the layers of models, as functions that add to a graph. A
// layer names its weights by the builder's scope, so a model whose scopes follow a
// published layout loads and saves that layout's files.
package nn

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// Linear is x W^T + bias with weights "weight" [out, in] and, if bias is set,
// "bias" [out] in scope name: torch.nn.Linear. Biases start at 0.
func Linear(b *graph.Builder, name string, x *graph.Value, out int, bias bool, init graph.Init) (y *graph.Value) {
	b.Scope(name, func() {
		w := b.Param("weight", init, out, x.Shape().Last())
		var c *graph.Value
		if bias {
			c = b.Param("bias", graph.Zeros(), out)
		}
		y = b.Linear(x, w, c)
	})
	return y
}

// LayerNorm normalizes the rows of x with weights "weight" and "bias" in scope name.
func LayerNorm(b *graph.Builder, name string, x *graph.Value, eps float64) (y *graph.Value) {
	b.Scope(name, func() {
		d := x.Shape().Last()
		y = b.LayerNorm(x, b.Param("weight", graph.Ones(), d), b.Param("bias", graph.Zeros(), d), eps)
	})
	return y
}

// RMSNorm scales the rows of x to unit mean square, with weights "weight" in scope name.
func RMSNorm(b *graph.Builder, name string, x *graph.Value, eps float64) (y *graph.Value) {
	b.Scope(name, func() {
		y = b.RMSNorm(x, b.Param("weight", graph.Ones(), x.Shape().Last()), eps)
	})
	return y
}

// Head is a Linear that computes results of the model.
func Head(b *graph.Builder, name string, x *graph.Value, out int, bias bool, init graph.Init) (y *graph.Value) {
	b.As(graph.Outer, func() { y = Linear(b, name, x, out, bias, init) })
	return y
}

// Embedding declares the table "weight" [rows, width] in scope name.
func Embedding(b *graph.Builder, name string, rows, width int, init graph.Init) (table *graph.Value) {
	b.Scope(name, func() { table = Table(b, "weight", rows, width, init) })
	return table
}

// Table declares a table of vectors called name.
func Table(b *graph.Builder, name string, rows, width int, init graph.Init) (table *graph.Value) {
	b.As(graph.Outer, func() { table = b.Param(name, init, rows, width) })
	return table
}

// activations are the activation functions by their names in model configurations.
var activations = map[string]graph.Fn{
	"gelu":              graph.FnGELU,
	"gelu_new":          graph.FnGELUTanh,
	"gelu_pytorch_tanh": graph.FnGELUTanh,
	"gelu_fast":         graph.FnGELUTanh,
	"gelu_tanh":         graph.FnGELUTanh,
	"relu":              graph.FnRelu,
	"silu":              graph.FnSiLU,
	"swish":             graph.FnSiLU,
	"tanh":              graph.FnTanh,
}

// Activation returns the function called name.
func Activation(name string) (graph.Fn, error) {
	f, ok := activations[name]
	if !ok {
		return 0, fmt.Errorf("unknown activation %q: expected gelu, gelu_tanh, relu, silu or tanh", name)
	}
	return f, nil
}

// MLP is down(act(up(x))) with hidden width ff; up and down name the two layers.
func MLP(b *graph.Builder, x *graph.Value, up, down string, ff int, act graph.Fn, initUp, initDown graph.Init) *graph.Value {
	h := b.Apply(act, Linear(b, up, x, ff, true, initUp))
	return Linear(b, down, h, x.Shape().Last(), true, initDown)
}

// AttentionScale is 1/sqrt(head size).
func AttentionScale(width, heads int) float64 { return 1 / math.Sqrt(float64(width/heads)) }
