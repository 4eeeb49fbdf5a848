package nn

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// ViT is the vision transformer of CLIP (Radford et al. 2021) with weights named as in
// its Hugging Face folders: square images with sides of Size pixels are cut into patches
// with sides of Patch pixels.
type ViT struct {
	D, Layers, Heads, FF int
	Size, Patch          int
	// Quick uses x sigmoid(1.702 x) for GELU, as OpenAI's weights need.
	Quick bool
	Eps   float64
}

// Check reports sizes that do not make a model.
func (v ViT) Check() error {
	switch {
	case min(v.D, v.Heads, v.FF, v.Size, v.Patch) < 1 || v.Layers < 0:
		return fmt.Errorf("a vision transformer has positive sizes, not width %d, %d layers, %d heads, %d hidden features, images of %d pixels and patches of %d",
			v.D, v.Layers, v.Heads, v.FF, v.Size, v.Patch)
	case v.D%v.Heads != 0:
		return fmt.Errorf("width %d does not divide into %d heads", v.D, v.Heads)
	case v.Size%v.Patch != 0:
		return fmt.Errorf("images of %d pixels a side do not divide into patches of %d", v.Size, v.Patch)
	}
	return nil
}

// Tokens is how many tokens an image gives: its class and its patches.
func (v ViT) Tokens() int { return 1 + (v.Size/v.Patch)*(v.Size/v.Patch) }

// Hidden returns the tokens [B, Tokens, D] of images x [B, Size, Size, 3], the class
// first: last_hidden_state of transformers' CLIPVisionModel.
func (v ViT) Hidden(b *graph.Builder, x *graph.Value) (y *graph.Value) {
	batch := x.Shape()[0]
	b.Scope("vision_model", func() {
		b.Scope("embeddings", func() {
			in := 3 * v.Patch * v.Patch
			w := b.State(&graph.State{
				Name: b.Path("patch_embedding.weight"), Type: graph.T(graph.F32, v.D, 3, v.Patch, v.Patch), Role: graph.Weight,
				Init: graph.XavierUniform(in, v.D), Decay: true,
			})
			patches := b.Conv2D(graph.Conv(v.Patch, 0), x, w, nil)
			class := b.Param("class_embedding", graph.Normal(0.02), v.D)
			places := Embedding(b, "position_embedding", v.Tokens(), v.D, graph.Normal(0.02))
			y = b.Concat(1, b.BroadcastTo(class, batch, 1, v.D), b.Reshape(patches, batch, v.Tokens()-1, v.D))
			y = b.Add(y, places)
		})
		y = LayerNorm(b, "pre_layrnorm", y, v.Eps) // spelled so in the folders
		b.Scope("encoder.layers", func() {
			for i := range v.Layers {
				b.Block(fmt.Sprint(i), func() { y = v.layer(b, y) })
			}
		})
	})
	return y
}

func (v ViT) layer(b *graph.Builder, x *graph.Value) *graph.Value {
	var y *graph.Value
	h := LayerNorm(b, "layer_norm1", x, v.Eps)
	b.Scope("self_attn", func() {
		part := func(name string) *graph.Value { return linear(b, name, h, v.D) }
		op := graph.Attention{Heads: v.Heads, Scale: AttentionScale(v.D, v.Heads)}
		y = linear(b, "out_proj", b.Attention(op, part("q_proj"), part("k_proj"), part("v_proj")), v.D)
	})
	x = b.Add(x, y)
	h = LayerNorm(b, "layer_norm2", x, v.Eps)
	b.Scope("mlp", func() {
		up := linear(b, "fc1", h, v.FF)
		if v.Quick {
			up = b.Mul(up, b.Sigmoid(b.MulC(up, 1.702)))
		} else {
			up = b.GELU(up)
		}
		y = linear(b, "fc2", up, v.D)
	})
	return b.Add(x, y)
}

// CrossAttention lets x [B, T, D] attend to all tokens of seen [B, P, D], without biases:
// weights "query", "key", "value" and "dense" in scope name.
func CrossAttention(b *graph.Builder, name string, x, seen *graph.Value, heads int) (y *graph.Value) {
	d := x.Shape()[2]
	b.Scope(name, func() {
		part := func(name string, v *graph.Value) *graph.Value {
			return Linear(b, name, v, d, false, graph.XavierUniform(v.Shape()[2], d))
		}
		op := graph.Attention{Heads: heads, Scale: AttentionScale(d, heads)}
		y = part("dense", b.Attention(op, part("query", x), part("key", seen), part("value", seen)))
	})
	return y
}
