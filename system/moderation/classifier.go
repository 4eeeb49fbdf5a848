package moderation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/metric"
)

// Classifier classifies texts with the weights of a checkpoint, in float32. It is for one goroutine, except
// for Encode, which may be called concurrently.
type Classifier struct {
	DecisionRule DecisionRule
	// Update is the update of the weights.
	Update  int64
	config  *config.Config
	encoder *textEncoder
	runner  *engine.Executable
	lengths []int
}

// batchRows lists the numbers of rows of the compiled shapes, ascending, so that a single text does not cost
// as much as sixteen.
var batchRows = [...]int{1, 4, 16}

// LoadClassifier compiles the model of a checkpoint folder for the lengths that it was trained with, and
// loads its weights. It takes the decision rule from the run around the folder, if the rule is for the same
// weights, or from an evaluation of this checkpoint. Otherwise logits are used uncalibrated, with a threshold
// of one half.
func LoadClassifier(c *config.Config, dir string, on engine.Backend) (_ *Classifier, err error) {
	tok, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	k := &Classifier{config: c, lengths: buckets(c), DecisionRule: undecided(c)}
	if k.encoder, err = newTextEncoder(tok, c); err != nil {
		return nil, err
	}
	ck, err := checkpoint.Load(dir) // verified, and pinned while it is in use
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	k.Update = ck.State.Update
	for _, at := range []string{checkpoint.RunOf(dir), checkpoint.Evaluated(dir)} {
		v, ok, err := ReadDecisionRule(at)
		if err != nil {
			return nil, err
		}
		if ok && v.Update == k.Update {
			k.DecisionRule = v
			break
		}
	}
	return k, k.load(dir, on)
}

// Decided reports whether a threshold was chosen for these weights.
func (k *Classifier) Decided() bool { return k.DecisionRule.Update == k.Update && k.Update > 0 }

// Remark returns a warning if no threshold was chosen for these weights.
func (k *Classifier) Remark() string {
	if k.Decided() {
		return ""
	}
	return fmt.Sprintf("no threshold is chosen for these weights: probabilities are not calibrated and the threshold is %v; run `snug eval` on this checkpoint", k.DecisionRule.Threshold)
}

func shapeName(length, rows int) string { return fmt.Sprintf("%dx%d", length, rows) }

func funcName(shape string) string { return "classify@" + shape }

func (k *Classifier) load(dir string, on engine.Backend) error {
	n := newNet(k.config)
	var funcs []*graph.Func
	err := graph.Catch(func() {
		for _, length := range k.lengths {
			for _, rows := range batchRows {
				shape := shapeName(length, rows)
				b := graph.NewBuilder(funcName(shape))
				b.Output(outputLogits, n.logits(b, shape, rows, length, false))
				funcs = append(funcs, b.F)
			}
		}
	})
	if err != nil {
		return err
	}
	k.runner, err = inference.Load(on, func(x *engine.Executable) error {
		return inference.FillWeights(x, func() (inference.Weights, error) {
			return openWeights(k.config, dir, config.Of[system.BaseWeights](k.config).DType())
		})
	}, funcs...)
	return err
}

// Close frees the model.
func (k *Classifier) Close() error { return k.runner.Close() }

// Encoded is a text encoded for the model.
type Encoded struct {
	in modelInput
	// Cut means that the text was longer than the model accepts.
	Cut bool
}

// Encode encodes a text.
func (k *Classifier) Encode(text string) (e *Encoded, err error) {
	defer token.Catch(&err)
	e = &Encoded{}
	e.in.set(k.encoder, config.Of[Model](k.config), text)
	e.Cut = e.in.cut
	return e, nil
}

// bucket returns the smallest length that fits the text.
func (k *Classifier) bucket(e *Encoded) int {
	i, _ := slices.BinarySearch(k.lengths, len(e.in.ids))
	return k.lengths[i]
}

// Probabilities returns the calibrated probabilities that texts are to be flagged. It computes texts of
// similar length together.
func (k *Classifier) Probabilities(ctx context.Context, texts []*Encoded) ([]float64, error) {
	order := make([]int, len(texts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(texts[a].in.ids), len(texts[b].in.ids)) })
	out := make([]float64, len(texts))
	for len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		length := k.bucket(texts[order[0]])
		n := 1
		for n < min(len(order), batchRows[len(batchRows)-1]) && k.bucket(texts[order[n]]) == length {
			n++
		}
		if err := k.run(texts, order[:n], length, out); err != nil {
			return nil, err
		}
		order = order[n:]
	}
	return out, nil
}

// run computes the texts with the given numbers in one micro-batch.
func (k *Classifier) run(texts []*Encoded, numbers []int, length int, out []float64) error {
	r, _ := slices.BinarySearch(batchRows[:], len(numbers))
	rows := batchRows[r]
	shape := shapeName(length, rows)
	in := train.Inputs{Runner: k.runner}
	ids, err := in.I32(at(inputIDs, shape))
	if err != nil {
		return err
	}
	lens, err := in.I32(at(inputLens, shape))
	if err != nil {
		return err
	}
	for i := range rows {
		row := ids[i*length : (i+1)*length]
		n := 0
		if i < len(numbers) {
			n = copy(row, texts[numbers[i]].in.ids)
		}
		for j := n; j < length; j++ {
			row[j] = k.encoder.pad
		}
		lens[i] = int32(max(1, n))
	}
	m := config.Of[Model](k.config)
	if m.Pooling == "mean" {
		if err := rowsOf(in.F32, at(inputShares, shape), rows, numbers, func(i int) []float32 { return texts[i].in.shares }); err != nil {
			return err
		}
	}
	if m.WideRows > 0 {
		if err := rowsOf(in.I32, at(inputGrams, shape), rows, numbers, func(i int) []int32 { return texts[i].in.grams }); err != nil {
			return err
		}
		if err := rowsOf(in.F32, at(inputPresent, shape), rows, numbers, func(i int) []float32 { return texts[i].in.present }); err != nil {
			return err
		}
	}
	if err := k.runner.Run(funcName(shape), 0); err != nil {
		return err
	}
	logits, err := k.runner.OutputF32(funcName(shape), outputLogits)
	if err != nil {
		return err
	}
	for i, number := range numbers {
		margin := float64(logits[labels*i+1]) - float64(logits[labels*i])
		out[number] = metric.Sigmoid(margin / k.DecisionRule.Temperature)
	}
	return nil
}

// rowsOf fills the rows of an input, and the remaining ones with zeros.
func rowsOf[T any](input func(name string) ([]T, error), name string, rows int, numbers []int, of func(number int) []T) error {
	dst, err := input(name)
	if err != nil {
		return err
	}
	clear(dst)
	width := len(dst) / rows
	for i, number := range numbers {
		copy(dst[i*width:(i+1)*width], of(number))
	}
	return nil
}

// Label returns the class of a probability at a threshold.
func (k *Classifier) Label(probability, threshold float64) string {
	if probability >= threshold {
		return k.DecisionRule.Positive
	}
	return k.DecisionRule.Negative
}
