package dynamo

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
)

// labels is the number of classes of a task that classifies.
const labels = 2

// These are the inputs of a program. Each name is followed by "@" and the tag of the rows that it belongs to.
const (
	inputIDs     = "ids"     // I32 [B, T]
	inputLens    = "lens"    // I32 [B]
	inputLabel   = "label"   // I32 [B]: class
	inputStart   = "start"   // I32 [B]: first token of an answer
	inputEnd     = "end"     // I32 [B]: last token of an answer
	inputOutside = "outside" // F32 [B, T]: 0 where an answer may be, strongly negative elsewhere
	inputWritten = "written" // I32 [B, L]: target text after its first marker
	inputNext    = "next"    // I32 [B*L]: the token after each of these
	inputWeights = "weights" // F32 [B], or [B*L] for target texts
	inputTask    = "task"    // I32 [B]: number of the true task
)

// These are the outputs for the host, all F32.
const (
	outputLogits  = "logits"      // [B, 2]
	outputStart   = "start"       // [B, T]
	outputEnd     = "end"         // [B, T]
	outputRouting = "routing"     // [B, n]: probabilities
	outputTask    = "task_loss"   // sum of the tasks' losses
	outputRouter  = "router_loss" // sum of the router's cross-entropies
)

// at returns the name of an input for rows with a tag.
func at(input, tag string) string { return input + "@" + tag }

// head is what a task does with the encoder's states.
type head struct {
	task string
	kind kind
	bert hf.BERT
	decoder
	drop  float64
	chunk int // rows of logits at a time
}

func newHead(c *config.Config, name string, chunk int) head {
	m, e := config.Of[Model](c), encoder(c)
	act, err := nn.Activation(e.Activation)
	if err != nil {
		act = graph.FnGELU // Check has reported the error
	}
	d := decoder{
		layers: m.DecoderLayers, d: e.D, heads: e.Heads, ff: m.DecoderFF, length: taskOf(c, name).Target,
		act: act, eps: e.Eps, std: e.InitStd, drop: m.HeadDropout, seed: c.Training.Seed,
	}
	if d.ff == 0 {
		d.ff = e.FF
	}
	return head{name, kindOf(name), e, d, m.HeadDropout, chunk}
}

// scope runs f in the scope of the head's weights.
func (h head) scope(b *graph.Builder, f func()) {
	b.Scope("heads", func() { b.Scope(h.task, f) })
}

func (h head) dropped(b *graph.Builder, x *graph.Value, train bool) *graph.Value {
	if !train {
		return x
	}
	return b.Dropout(x, h.drop, h.seed)
}

// logits returns the logits of a classified text, [B, 2]: two layers on the state of its first token.
func (h head) logits(b *graph.Builder, x *graph.Value, train bool) (y *graph.Value) {
	h.scope(b, func() {
		d := h.bert.D
		first := b.Reshape(b.Slice(x, 1, 0, 1), x.Shape()[0], d)
		y = b.Relu(nn.Linear(b, "dense", h.dropped(b, first, train), max(1, d/2), true, graph.XavierUniform(d, d/2)))
		y = nn.Head(b, "out", h.dropped(b, y, train), labels, true, graph.XavierUniform(d/2, labels))
	})
	return y
}

// span returns the scores of each token as the first and the last of an answer, each [B, T].
func (h head) span(b *graph.Builder, x, outside *graph.Value, train bool) (start, end *graph.Value) {
	h.scope(b, func() {
		rows, t := x.Shape()[0], x.Shape()[1]
		both := nn.Head(b, "span", h.dropped(b, x, train), 2, true, graph.XavierUniform(h.bert.D, 2))
		part := func(i int) *graph.Value { return b.Add(b.Reshape(b.Slice(both, 2, i, 1), rows, t), outside) }
		start, end = part(0), part(1)
	})
	return start, end
}

// full returns x in float32, for the host.
func full(b *graph.Builder, x *graph.Value) *graph.Value {
	return b.Emit(graph.Elementwise{Fn: graph.FnCopy, Out: graph.F32}, x)[0]
}

// loss returns the weighted sum of a task's losses over states x [B, T, D] of rows with a tag, and the
// outputs for an evaluation.
func (h head) loss(b *graph.Builder, x, lens *graph.Value, tag string, train bool) (sum *graph.Value, out []graph.Output) {
	rows, t := x.Shape()[0], x.Shape()[1]
	switch h.kind {
	case classify:
		y := h.logits(b, x, train)
		sum = b.CrossEntropy(y, b.Input(at(inputLabel, tag), graph.T(graph.I32, rows)), b.Input(at(inputWeights, tag), graph.T(graph.F32, rows)))
		if !train {
			out = append(out, graph.Output{Name: outputLogits, Value: full(b, y)})
		}
	case point:
		start, end := h.span(b, x, b.Input(at(inputOutside, tag), graph.T(graph.F32, rows, t)), train)
		w := b.MulC(b.Input(at(inputWeights, tag), graph.T(graph.F32, rows)), .5)
		first := b.CrossEntropy(start, b.Input(at(inputStart, tag), graph.T(graph.I32, rows)), w)
		last := b.CrossEntropy(end, b.Input(at(inputEnd, tag), graph.T(graph.I32, rows)), w)
		sum = b.Add(first, last)
		if !train {
			out = append(out, graph.Output{Name: outputStart, Value: full(b, start)}, graph.Output{Name: outputEnd, Value: full(b, end)})
		}
	case write:
		n := rows * h.length
		table := tokenEmbedding(b, h.bert)
		h.scope(b, func() {
			y := h.hidden(b, table, b.Input(at(inputWritten, tag), graph.T(graph.I32, rows, h.length)), source{states: x, lens: lens, train: train})
			sum = b.LinearCrossEntropy(b.Reshape(y, n, h.bert.D), table,
				b.Input(at(inputNext, tag), graph.T(graph.I32, n)), b.Input(at(inputWeights, tag), graph.T(graph.F32, n)), h.chunk)
		})
	}
	return sum, out
}
