package moderation

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// labels is the number of classes: 0 is let through, 1 is flagged.
const labels = 2

// These are the inputs of the program. Each compiled shape has its own; see at.
const (
	inputIDs     = "ids"     // I32 [B, T]
	inputShares  = "shares"  // F32 [B, T]: 1/n for the n tokens of a text, for the mean
	inputGrams   = "grams"   // I32 [B, 2T]: rows of the wide table
	inputPresent = "present" // F32 [B, 2T]: factors of their scores
	inputLens    = "lens"    // I32 [B]
	inputLabels  = "labels"  // I32 [B]
	inputWeights = "weights" // F32 [B]
	outputLogits = "logits"  // F32 [B, 2]
)

// at returns the name of an input of a compiled shape.
func at(input, variant string) string { return input + "@" + variant }

// bert returns the configured architecture.
func bert(c *config.Config) hf.BERT {
	m := config.Of[Model](c)
	b := hf.BERT{
		RoBERTa: m.Architecture == "roberta",
		Vocab:   m.VocabSize, D: m.DModel, Layers: m.NLayers, Heads: m.NHeads, FF: m.DFF,
		MaxPositions: m.MaxSeqLen, Types: m.TokenTypes, Pad: m.PadID, Activation: m.Activation, Eps: m.LayerNormEps, Labels: labels,
		InitStd: m.InitStd, Dropout: m.Dropout, AttentionDropout: m.AttentionDropout, ClassifierDropout: m.ClassifierDropout, Seed: c.Training.Seed,
	}
	if b.RoBERTa {
		b.MaxPositions += m.PadID + 1
	}
	return b
}

// net is the classifier as a graph.
type net struct {
	hf.BERT
	mean bool
	wide int // number of rows of the wide table
}

func newNet(c *config.Config) net {
	m := config.Of[Model](c)
	return net{bert(c), m.Pooling == "mean", m.WideRows}
}

// logits returns the logits of a bucket's micro-batch: [rows, 2].
func (n net) logits(b *graph.Builder, variant string, rows, length int, training bool) *graph.Value {
	in := hf.Input{
		IDs:   b.Input(at(inputIDs, variant), graph.T(graph.I32, rows, length)),
		Lens:  b.Input(at(inputLens, variant), graph.T(graph.I32, rows)),
		Train: training,
	}
	h := n.Hidden(b, in)
	if n.mean {
		shares := b.Reshape(b.Input(at(inputShares, variant), graph.T(graph.F32, rows, length)), rows, 1, length)
		h = b.MatMul(shares, h, false, false)
	}
	y := n.Classify(b, in, h)
	if n.wide > 0 {
		y = b.Add(y, n.wideLogits(b, variant, rows, length))
	}
	return y
}

// wideGroup is the group of the wide table's weights, which has its own learning rate.
const wideGroup = "wide"

// wideLogits returns the sums of the scores of the words and word pairs of each text (Cheng et al. 2016,
// "Wide & Deep Learning"): [rows, 2]. They start at 0.
func (n net) wideLogits(b *graph.Builder, variant string, rows, length int) *graph.Value {
	grams := b.Input(at(inputGrams, variant), graph.T(graph.I32, rows, gramsPerToken*length))
	present := b.Input(at(inputPresent, variant), graph.T(graph.F32, rows, gramsPerToken*length))
	table := b.State(&graph.State{Name: wideTable, Type: graph.T(graph.F32, n.wide, labels), Role: graph.Weight, Decay: true, Group: wideGroup, Part: graph.Outer})
	scores := b.Embedding(table, grams) // [rows, 2T, 2]
	return b.Sum(b.Mul(scores, b.Reshape(present, rows, gramsPerToken*length, 1)), 1)
}

// wideTable is the name of the wide table in checkpoints.
const wideTable = "wide.weight"

// objective returns the weighted cross-entropy of a micro-batch.
func (n net) objective(b *graph.Builder, mode engine.Mode, rows, length int) engine.Objective {
	logits := n.logits(b, mode.Variant, rows, length, mode.Train)
	var o engine.Objective
	b.Scope("loss", func() {
		o.Sum = b.CrossEntropy(logits, b.Input(at(inputLabels, mode.Variant), graph.T(graph.I32, rows)), b.Input(at(inputWeights, mode.Variant), graph.T(graph.F32, rows)))
	})
	if !mode.Train {
		o.Outputs = []graph.Output{{Name: outputLogits, Value: logits}}
	}
	return o
}

// least returns the minimum that training on texts of length tokens needs; see [plan.Least].
func (n net) least(length int) plan.Least {
	tables, blocks := n.Sizes()
	return plan.Least{
		{Of: plan.Trained, Count: tables, Keys: "model.vocab_size, model.max_seq_len, model.token_types or model.d_model"},
		{Of: plan.Trained, Count: blocks, Keys: "model.n_layers, model.d_model or model.d_ff"},
		{Of: plan.Trained, Count: size.Float(n.wide, labels), Keys: "model.wide_rows"},
		plan.Tokens(length, n.D),
	}
}

func describe(c *config.Config) (*system.Model, error) {
	return describeAs(c, *config.Of[system.BaseWeights](c))
}

// smaller returns changes to formats of frozen weights with fewer bits than the configured one.
func smaller(c *config.Config) []system.Change {
	return config.Of[system.LoRA](c).Smaller(*config.Of[system.BaseWeights](c), func(w system.BaseWeights) (*system.Model, error) {
		return describeAs(c, w)
	})
}

func describeAs(c *config.Config, base system.BaseWeights) (*system.Model, error) {
	n, t, lora := newNet(c), &c.Training, config.Of[system.LoRA](c)
	lengths := map[string]int{}
	var variants []string
	for _, l := range buckets(c) {
		// The longest comes first, because a plan estimates the time of the first.
		variants = append([]string{variant(l)}, variants...)
		lengths[variant(l)] = l
	}
	return &system.Model{
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, EvalBatch: t.EvalBatchSize},
		Unit:  "examples", UnitsPerRow: 1,
		Training: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Eval, tr.Variants = true, variants
			tr.Optimizer.GroupLR = map[string]float64{wideGroup: config.Of[Model](c).WideLR}
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return n.objective(b, mode, s.Rows(mode.Train), lengths[mode.Variant])
			}
			return lora.Train(tr, t.Seed, base.DType())
		},
		Width: n.D, Least: lora.Least(n.least(c.Data.SeqLen), base.DType()), AllReached: lora.AllReached(),
		Summary: map[string]any{
			"architecture": config.Of[Model](c).Architecture, "d_model": n.D, "n_layers": n.Layers, "n_heads": n.Heads, "d_ff": n.FF,
			"vocab_size": n.Vocab, "max_seq_len": n.Positions(), "pooling": config.Of[Model](c).Pooling, "buckets": buckets(c),
		},
	}, nil
}
