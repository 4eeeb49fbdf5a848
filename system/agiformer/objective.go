package agiformer

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
)

// These are the outputs of an evaluation besides the loss, all F32, for L layers, E experts and N tokens.
// Sums over tokens are weighted like the loss.
const (
	outWanted  = "wanted"  // [L*E] number of choices of each expert
	outTaken   = "taken"   // [L*E] number of choices that were not dropped
	outEntropy = "entropy" // [L] sums of the routers' entropies
	outGates   = "gates"   // [4] sums of the working, bank and written gates, and the mean strength of the writes
	outLosses  = "losses"  // [N] loss of each token
	outErrors  = "errors"  // [N] introspection's estimates of the losses
	outConf    = "confidence"
	outRight   = "right" // [N] 1 if the most likely token was right
)

// objective returns the loss of a micro-batch of windows of length tokens.
func (m Net) objective(b *graph.Builder, s system.Shape, length int, balance, heads float64, train, examine bool) engine.Objective {
	rows := s.Rows(train)
	n := rows * length
	ids := b.Input(corpus.InputIDs, graph.T(graph.I32, rows, length))
	labels := b.Input(corpus.InputLabels, graph.T(graph.I32, n))
	weights := b.Input(corpus.InputWeights, graph.T(graph.F32, n))
	out := m.Forward(b, Input{IDs: ids, Train: train, Seen: m.Senses.inputs(b, rows)})
	var o engine.Objective
	aux := func(v *graph.Value, weight float64) {
		if v = b.MulC(v, weight); o.Aux != nil {
			v = b.Add(o.Aux, v)
		}
		o.Aux = v
	}
	for _, r := range out.Layers {
		if r.Balance != nil && balance > 0 {
			aux(r.Balance, balance)
		}
	}
	give := func(name string, v *graph.Value) { o.Outputs = append(o.Outputs, graph.Output{Name: name, Value: v}) }
	w := m.output(b)
	b.Scope("loss", func() {
		ce := b.Emit(graph.LinearCrossEntropy{Chunk: chunk(s.CEChunk, n)}, out.Hidden, w, labels, weights)
		if o.Sum = ce[0]; examine {
			o.Outputs = append(o.Outputs, corpus.Examine(b, out.Hidden, w, labels, ce[1], chunk(s.CEChunk, n))...)
		}
		if out.Self == nil {
			return
		}
		truth, best := corpus.LabelScores(b, out.Hidden, w, labels, chunk(s.CEChunk, n))
		right := b.Apply(graph.FnEqual, truth, best)
		losses := b.Detach(b.Sub(ce[1], truth))
		aux(out.Self.study(b, losses, right, weights), heads)
		if !train {
			give(outLosses, losses)
			give(outRight, right)
			give(outErrors, out.Self.Errors[len(out.Self.Errors)-1])
			give(outConf, b.Sigmoid(out.Self.Confidence))
		}
	})
	if train {
		return o
	}
	o.Aux = nil // not used in evaluations
	b.Scope("account", func() { m.account(b, out, weights, give) })
	return o
}

// chunk returns how many of n rows of logits may exist at a time; asked is the setting, and 0 means all.
func chunk(asked, n int) int {
	if asked == 0 {
		return n
	}
	return min(asked, n)
}

// account outputs the statistics of experts and memory.
func (m Net) account(b *graph.Builder, out Output, weights *graph.Value, give func(string, *graph.Value)) {
	n := weights.Shape()[0]
	var wanted, taken, entropy []*graph.Value
	w := b.Reshape(weights, n, 1, 1)
	for _, r := range out.Layers {
		if r.Entropy == nil {
			continue
		}
		wanted = append(wanted, b.Sum(b.Mul(r.Wanted, w), 0, 1))
		taken = append(taken, b.Sum(b.Mul(r.Taken, w), 0, 1))
		entropy = append(entropy, b.Reshape(b.Sum(b.Mul(r.Entropy, weights)), 1))
	}
	if wanted != nil {
		give(outWanted, b.Concat(0, wanted...))
		give(outTaken, b.Concat(0, taken...))
		give(outEntropy, b.Concat(0, entropy...))
	}
	if m.Memory == nil {
		return
	}
	var gates []*graph.Value
	for _, g := range []*graph.Value{out.Memory.Working, out.Memory.Bank, out.Memory.Written} {
		gates = append(gates, b.Reshape(b.Sum(b.Mul(g, weights)), 1))
	}
	strength := b.BroadcastTo(b.Scalar(0), 1)
	if out.Memory.Strength != nil {
		strength = b.Reshape(b.Mean(out.Memory.Strength), 1)
	}
	give(outGates, b.Concat(0, append(gates, strength)...))
}
