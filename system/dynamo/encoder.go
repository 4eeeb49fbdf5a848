package dynamo

import (
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
)

// encoder returns the configured encoder.
func encoder(c *config.Config) hf.BERT {
	m := config.Of[Model](c)
	b := hf.BERT{
		RoBERTa: m.Architecture == "roberta",
		Vocab:   m.VocabSize, D: m.DModel, Layers: m.NLayers, Heads: m.NHeads, FF: m.DFF,
		MaxPositions: m.MaxSeqLen, Types: m.TokenTypes, Pad: m.PadID, Activation: m.Activation, Eps: m.LayerNormEps,
		InitStd: m.InitStd, Dropout: m.Dropout, AttentionDropout: m.AttentionDropout, Seed: c.Training.Seed,
	}
	if b.RoBERTa {
		b.MaxPositions += m.PadID + 1
	}
	return b
}

// base returns the scope of the encoder's weights.
func base(m hf.BERT) string {
	if m.RoBERTa {
		return "roberta"
	}
	return "bert"
}

// linears lists the linear layers of a block: the ends of their full names, and their names in the
// configuration.
var linears = [...]struct{ end, name string }{
	{".attention.self.query", "query"}, {".attention.self.key", "key"}, {".attention.self.value", "value"},
	{".attention.output.dense", "attention_output"}, {".intermediate.dense", "intermediate"}, {".output.dense", "output"},
}

// target returns the configuration's name for a linear layer of the encoder's blocks, or "" for other layers.
func target(layer string) string {
	if strings.Contains(layer, ".encoder.layer.") {
		for _, l := range linears {
			if strings.HasSuffix(layer, l.end) {
				return l.name
			}
		}
	}
	return ""
}

// tokenEmbedding returns the encoder's word embedding [V, D] in the function of b. Decoders use it to embed
// and score tokens.
func tokenEmbedding(b *graph.Builder, m hf.BERT) *graph.Value {
	return b.State(&graph.State{
		Name: base(m) + ".embeddings.word_embeddings.weight", Type: graph.T(graph.F32, m.Vocab, m.D),
		Role: graph.Frozen, Init: graph.Normal(m.InitStd),
	})
}

// adapt returns a replacement for the result y of a linear layer for x.
type adapt func(b *graph.Builder, x, y *graph.Value) *graph.Value

// states returns the frozen encoder's last hidden states [B, T, D] of ids [B, T]. The first lens [B] tokens
// of each row are real.
func states(b *graph.Builder, m hf.BERT, ids, lens *graph.Value, a adapt) *graph.Value {
	return m.Hidden(b, hf.Input{IDs: ids, Lens: lens, Frozen: func(string) bool { return true }, Adapt: a})
}

// adapter is the low-rank update of one task.
type adapter struct {
	nn.LoRA
	task    string
	targets map[string]bool
}

func newAdapter(c *config.Config, name string) adapter {
	a := adapter{loraOf(c, name), name, map[string]bool{}}
	for _, t := range taskOf(c, name).Targets {
		a.targets[t] = true
	}
	return a
}

// alone applies one task's update to every row.
func (a adapter) alone(train bool) adapt {
	return func(b *graph.Builder, x, y *graph.Value) *graph.Value {
		if !a.targets[target(b.Layer())] {
			return y
		}
		return nn.Adapt(b, x, y, train, nn.Gated{LoRA: a.LoRA})
	}
}

// mixed applies the updates of all tasks, each weighted by its column of gates F32 [B, n].
func mixed(as []adapter, gates *graph.Value, train bool) adapt {
	return func(b *graph.Builder, x, y *graph.Value) *graph.Value {
		var updates []nn.Gated
		for i, a := range as {
			if a.targets[target(b.Layer())] {
				gate := b.Reshape(b.Slice(gates, 1, i, 1), gates.Shape()[0], 1, 1)
				updates = append(updates, nn.Gated{LoRA: a.LoRA, Gate: gate})
			}
		}
		return nn.Adapt(b, x, y, train, updates...)
	}
}

// grouped applies the update of task i to the i-th group of rows rows.
func grouped(as []adapter, rows int, train bool) adapt {
	return func(b *graph.Builder, x, y *graph.Value) *graph.Value {
		kind := target(b.Layer())
		if kind == "" {
			return y
		}
		width := y.Shape().Last()
		updates := make([]*graph.Value, len(as))
		for i, a := range as {
			if part := b.Slice(x, 0, i*rows, rows); a.targets[kind] {
				updates[i] = a.Delta(b, part, width, train)
			} else {
				updates[i] = b.BroadcastTo(b.Scalar(0), rows, x.Shape()[1], width)
			}
		}
		return b.Add(y, b.Concat(0, updates...))
	}
}
