package hf

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Input says what a model runs on and how.
type Input struct {
	IDs *graph.Value // I32 [B, T]
	// Embeds [B, T, D], when set, replace the embeddings of ids, which are then absent
	// (causal models). The model has no table of them.
	Embeds *graph.Value
	// Types I32 [B, T], when set, are the token types of BERT; otherwise all are 0.
	Types *graph.Value
	// Positions I32 [B, T], when set, are the rows of the position table that GPT2 and
	// BERT read; otherwise a row of ids is at positions 0, 1, 2, ... of the model (of
	// RoBERTa: see [BERT.Pad]). GPT-NeoX has no such table.
	Positions *graph.Value
	// Lens I32 [B], when set, is how many ids of each row are real. The others
	// are padding at its end, which no id attends to.
	Lens *graph.Value
	// Segments I32 [B, T], when set, keeps documents that share a row apart.
	Segments *graph.Value
	// Train enables dropout.
	Train bool
	// Cache, when set, is written and read (causal models).
	Cache *nn.KVCache
	// Frozen, when set, selects by name which weights of the model are not trained: they
	// get the role [graph.Frozen]. It never freezes what Adapt adds, nor a causal model's
	// own output weight ([Causal.Output]): set its role.
	Frozen func(name string) bool
	// Adapt, when set, is called for every linear layer (except the output over the
	// vocabulary) and returns what replaces its result y = W x + bias: y itself, or y
	// plus a low-rank update, say. It is called within the layer's scope, so
	// [graph.Builder.Layer] is the layer's full name
	// ("roberta.encoder.layer.3.attention.self.query") and weights that it declares are
	// named below it.
	Adapt func(b *graph.Builder, x, y *graph.Value) *graph.Value
}

// check refuses inputs that would be ignored.
func (in Input) check(b *graph.Builder) {
	switch {
	case (in.IDs == nil) == (in.Embeds == nil):
		b.Failf("want either ids or embeddings")
	case in.IDs != nil && len(in.IDs.Shape()) != 2:
		b.Failf("ids are %v, want [B, T]", in.IDs.Type)
	case in.Embeds != nil && len(in.Embeds.Shape()) != 3:
		b.Failf("embeddings are %v, want [B, T, D]", in.Embeds.Type)
	}
	if in.Cache != nil && (in.Lens != nil || in.Segments != nil || in.Positions != nil || in.Train) {
		b.Failf("generation on a cache excludes training, lengths, segments and positions: the cache has its own")
	}
}

// freeze gives weight the role that Frozen selects.
func (in Input) freeze(b *graph.Builder, weight string) {
	if v := b.StateValue(b.Path(weight)); v != nil && in.Frozen != nil && in.Frozen(v.Name) {
		v.State.Role = graph.Frozen
	}
}

// linear is [nn.Linear] with bias, frozen and adapted according to in.
func (in Input) linear(b *graph.Builder, name string, x *graph.Value, out int, init graph.Init) *graph.Value {
	return in.project(b, name, x, out, true, init)
}

// project is linear with bias or without.
func (in Input) project(b *graph.Builder, name string, x *graph.Value, out int, bias bool, init graph.Init) *graph.Value {
	return in.adapt(b, name, x, nn.Linear(b, name, x, out, bias, init))
}

// abreast computes linear layers over the same x as one matmul, their results side by
// side: in training three matmuls of a third of the width take longer than one, in each
// direction. Otherwise weights would be concatenated again for every short run; and
// freezing and adapting work layer by layer.
func (in Input) abreast(b *graph.Builder, x *graph.Value, out int, init graph.Init, names ...string) (y *graph.Value, ok bool) {
	if !in.Train || in.Frozen != nil || in.Adapt != nil || b.Adapts() {
		return nil, false
	}
	var weights, biases []*graph.Value
	for _, name := range names {
		b.Scope(name, func() {
			weights = append(weights, b.Param("weight", init, out, x.Shape().Last()))
			biases = append(biases, b.Param("bias", graph.Zeros(), out))
		})
	}
	return b.Linear(x, b.Concat(0, weights...), b.Concat(0, biases...)), true
}

// conv1d is a linear layer whose weight is stored [in, out], like GPT-2's.
func (in Input) conv1d(b *graph.Builder, name string, x *graph.Value, out int, init graph.Init) (y *graph.Value) {
	b.Scope(name, func() {
		w := b.Param("weight", init, x.Shape().Last(), out)
		y = b.LinearInOut(x, w, b.Param("bias", graph.Zeros(), out))
	})
	return in.adapt(b, name, x, y)
}

func (in Input) adapt(b *graph.Builder, name string, x, y *graph.Value) *graph.Value {
	b.Scope(name, func() {
		in.freeze(b, "weight")
		in.freeze(b, "bias")
		if in.Adapt != nil {
			y = in.Adapt(b, x, y)
		}
	})
	return y
}

func (in Input) norm(b *graph.Builder, name string, x *graph.Value, eps float64) *graph.Value {
	y := nn.LayerNorm(b, name, x, eps)
	in.freeze(b, name+".weight")
	in.freeze(b, name+".bias")
	return y
}

func (in Input) rmsNorm(b *graph.Builder, name string, x *graph.Value, eps float64) *graph.Value {
	y := nn.RMSNorm(b, name, x, eps)
	in.freeze(b, name+".weight")
	return y
}

// rotaryState is the table of all positions of a cache, which is computed once, not for
// each token.
func rotaryState(b *graph.Builder, c *nn.KVCache, table graph.RotaryTable) *graph.Value {
	return b.State(&graph.State{
		Name: "rotary_table", Type: graph.T(graph.F32, c.Positions, table.Dims), Role: graph.CacheRole,
		Init: graph.Init{Kind: graph.InitRotary, A: table.Base, Scaling: table.Scaling},
	})
}

func (in Input) table(b *graph.Builder, name string, rows, width int, init graph.Init) *graph.Value {
	t := nn.Embedding(b, name, rows, width, init)
	in.freeze(b, name+".weight")
	return t
}

// embed returns the embeddings of the ids, from the table "weight" in scope name, or
// their replacement.
func (in Input) embed(b *graph.Builder, name string, rows, width int, init graph.Init) *graph.Value {
	if in.Embeds == nil {
		return b.Embedding(in.table(b, name, rows, width, init), in.IDs)
	}
	if in.Embeds.Shape()[2] != width {
		b.Failf("embeddings are %v, the model is %d wide", in.Embeds.Type, width)
	}
	return in.Embeds
}

// drop is dropout while training.
func (in Input) drop(b *graph.Builder, x *graph.Value, p float64, seed uint64) *graph.Value {
	if !in.Train {
		return x
	}
	return b.Dropout(x, p, seed)
}

// attend computes op with the masks of in and, while training, dropout on the attention
// weights. qkv are the operands of op's layout; with a cache the new keys and values are
// first appended to those of earlier positions.
func (in Input) attend(b *graph.Builder, op graph.Attention, drop float64, seed uint64, qkv ...*graph.Value) *graph.Value {
	if in.Cache != nil {
		q, k, v := unpack(b, op, qkv)
		return in.Cache.Attend(b, op, q, k, v)
	}
	args := qkv
	if in.Lens != nil {
		op.Lens = true
		args = append(args, in.Lens)
	}
	if in.Segments != nil {
		op.Segments = true
		args = append(args, in.Segments)
	}
	if in.Train && drop > 0 {
		op.Drop, op.Seed, op.Stream = drop, seed, b.Stream()
		args = append(args, b.Input(graph.RunCounter, graph.T(graph.I32, 2)))
	}
	return b.Attention(op, args...)
}

// unpack returns the queries, keys and values [B, T, H*K] among op's operands.
func unpack(b *graph.Builder, op graph.Attention, qkv []*graph.Value) (q, k, v *graph.Value) {
	if op.Layout == graph.Separate {
		return qkv[0], qkv[1], qkv[2]
	}
	x := qkv[0]
	batch, t, width := x.Shape()[0], x.Shape()[1], x.Shape()[2]/3
	part := func(i int) *graph.Value { return b.Slice(x, 2, i*width, width) }
	if op.Layout == graph.PackedHeads {
		heads := b.Reshape(x, batch, t, op.Heads, 3, width/op.Heads)
		part = func(i int) *graph.Value { return b.Reshape(b.Slice(heads, 3, i, 1), batch, t, width) }
	}
	return part(0), part(1), part(2)
}

// positions adds the rows of a learned position table to x [B, T, D]; row first belongs
// to a sequence's first id, without in.Positions or a cache.
func (in Input) positions(b *graph.Builder, table, x *graph.Value, first int) *graph.Value {
	t, rows := x.Shape()[1], table.Shape()[0]
	switch {
	case in.Positions != nil:
		return b.Add(x, b.Embedding(table, in.Positions))
	case in.Cache != nil:
		return b.Add(x, in.rows(b, table, t))
	case first+t > rows:
		b.Failf("%d ids are too many: the model has %d positions", t, rows-first)
	}
	return b.Add(x, b.Slice(table, 0, first, t))
}

// rows returns the rows of a table at the positions of t new tokens on the cache, [B, t,
// D].
func (in Input) rows(b *graph.Builder, table *graph.Value, t int) *graph.Value {
	n, d, start := table.Shape()[0], table.Shape()[1], in.Cache.At
	batch := start.Shape()[0]
	if t == 1 {
		return b.Embedding(table, b.Reshape(start, batch, 1))
	}
	// There is no integer arithmetic in a graph: rows are picked by a matmul
	// with ones and zeros, which is exact.
	index := b.State(&graph.State{Name: b.Path("position_index"), Type: graph.T(graph.F32, n), Role: graph.Buffer, Init: graph.Init{Kind: graph.InitIota}})
	at := b.Add(b.Reshape(start, batch, 1, 1), b.Reshape(b.Slice(index, 0, 0, t), 1, t, 1))
	pick := b.Apply(graph.FnEqual, at, index)
	return b.Reshape(b.MatMul(b.Reshape(pick, batch*t, n), table, false, false), batch, t, d)
}
