package dynamo

import (
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// These are the stages that are not a task; see Phases.Stage.
const (
	stageEncoder = "encoder"
	stageRouter  = "router"
	stageJoint   = "joint"
)

// variantMixed is the shape of phase 3's batches with all tasks. Shapes with one task have the name of the
// task.
const variantMixed = "mixed"

// groupAdapters is the optimizer group of the weights trained in phase 1.
const groupAdapters = "adapters"

// stage returns what a configuration trains, or the largest stage if that is not specified.
func stage(c *config.Config) string {
	if s := config.Of[Phases](c).Stage; s != "" {
		return s
	}
	return stageJoint
}

func describe(c *config.Config) (*system.Model, error) {
	t, s := &c.Training, stage(c)
	m := &system.Model{
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, CEChunk: t.CEChunk},
		Unit:  "tokens", UnitsPerRow: int64(c.Data.SeqLen),
		Width: encoder(c).D, Least: least(c),
		Summary: map[string]any{
			"architecture": config.Of[Model](c).Architecture, "d_model": encoder(c).D, "n_layers": encoder(c).Layers, "n_heads": encoder(c).Heads,
			"d_ff": encoder(c).FF, "vocab_size": encoder(c).Vocab, "max_seq_len": encoder(c).Positions(), "tasks": config.Of[Model](c).Tasks, "stage": s,
		},
	}
	switch {
	case isTask(s):
		m.UnitsPerRow = int64(lengthOf(c, s))
		m.AllReached = system.AdaptersReached
	case s == stageJoint:
		m.AllReached = allTasks
	}
	if s == stageJoint || isTask(s) && kindOf(s) == write {
		m.Classes = encoder(c).Vocab
	}
	m.Training = func(sh system.Shape) engine.Training {
		tr := system.Training(c, sh)
		tr.Eval = true
		if s == stageJoint {
			tr.Variants = append([]string{variantMixed}, config.Of[Model](c).Tasks...)
			tr.Optimizer.GroupLR = map[string]float64{groupAdapters: config.Of[Phases](c).JointAdapters}
		}
		tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
			switch {
			case s == stageEncoder:
				return masked(b, c, sh.MicroBatch, mode.Train)
			case s == stageRouter:
				return routing(b, c, sh.MicroBatch, mode.Train)
			case isTask(s):
				return single(b, c, s, sh, mode.Train)
			}
			return joint(b, c, sh, mode)
		}
		return tr
	}
	return m, nil
}

// allTasks is an update of phase 3 by which all but one in a thousand runs have had a batch of all tasks, if
// batches of one task have a share of 0.8.
const allTasks = 32

// texts declares the inputs for rows of texts with a tag.
func texts(b *graph.Builder, tag string, rows, length int) (ids, lens *graph.Value) {
	return b.Input(at(inputIDs, tag), graph.T(graph.I32, rows, length)), b.Input(at(inputLens, tag), graph.T(graph.I32, rows))
}

// maskedCount returns the number of tokens of a micro-batch that phase 0 masks.
func maskedCount(c *config.Config, rows int) int {
	return max(1, int(config.Of[Phases](c).MaskShare*float64(rows*c.Data.SeqLen)))
}

// These are the inputs of phase 0.
const (
	inputMasked   = "masked_positions" // I32 [N]: positions in the batch, row by row
	inputOriginal = "original"         // I32 [N]: the masked tokens
)

// masked is phase 0, which predicts masked tokens from those around them (Devlin et al. 2019).
func masked(b *graph.Builder, c *config.Config, rows int, train bool) engine.Objective {
	e, length, n := encoder(c), c.Data.SeqLen, maskedCount(c, rows)
	ids, lens := texts(b, "", rows, length)
	in := hf.Input{IDs: ids, Lens: lens, Train: train}
	h := b.Reshape(e.Hidden(b, in), rows*length, e.D)
	h = b.Embedding(h, b.Input(at(inputMasked, ""), graph.T(graph.I32, n)))
	y := e.MaskedLogits(b, in, h)
	var o engine.Objective
	b.Scope("loss", func() {
		o.Sum = b.CrossEntropy(y, b.Input(at(inputOriginal, ""), graph.T(graph.I32, n)), b.Input(at(inputWeights, ""), graph.T(graph.F32, n)))
	})
	return o
}

// single is phase 1 for one task.
func single(b *graph.Builder, c *config.Config, name string, s system.Shape, train bool) engine.Objective {
	ids, lens := texts(b, "", s.MicroBatch, lengthOf(c, name))
	x := states(b, encoder(c), ids, lens, newAdapter(c, name).alone(train))
	sum, out := newHead(c, name, s.CEChunk).loss(b, x, lens, "", train)
	return engine.Objective{Sum: sum, Outputs: out}
}

// routing is phase 2: the router alone, on the states of the plain encoder.
func routing(b *graph.Builder, c *config.Config, rows int, train bool) engine.Objective {
	r := newRouter(c)
	ids, lens := texts(b, "", rows, c.Data.SeqLen)
	y := r.scores(b, states(b, encoder(c), ids, lens, nil), train)
	sum, aux := r.losses(b, y, b.Input(at(inputTask, ""), graph.T(graph.I32, rows)), b.Input(at(inputWeights, ""), graph.T(graph.F32, rows)), true)
	o := engine.Objective{Sum: sum, Aux: aux}
	if r.Supervised != 1 {
		o.Sum = b.MulC(sum, r.Supervised)
	}
	if !train {
		o.Outputs = []graph.Output{{Name: outputRouting, Value: b.Softmax(y)}}
	}
	return o
}

// joint is phase 3: router, adapters and heads together, on batches of one task or of all tasks.
func joint(b *graph.Builder, c *config.Config, s system.Shape, mode engine.Mode) engine.Objective {
	e, r := encoder(c), newRouter(c)
	tasks := config.Of[Model](c).Tasks
	var as []adapter
	for _, name := range tasks {
		as = append(as, newAdapter(c, name))
	}
	v, rows, length := mode.Variant, s.MicroBatch, c.Data.SeqLen
	if v == variantMixed {
		rows = group(c, s.MicroBatch) * len(tasks)
	} else {
		length = lengthOf(c, v)
	}
	ids, lens := texts(b, v, rows, length)
	scores := r.scores(b, states(b, e, ids, lens, nil), mode.Train)
	guess, aux := r.losses(b, scores, b.Input(at(inputTask, v), graph.T(graph.I32, rows)), b.Input(at(inputShare, v), graph.T(graph.F32, rows)), v == variantMixed)

	var a adapt
	switch {
	case r.Dispatch == "soft":
		a = mixed(as, r.gates(b, scores, v, mode.Train), mode.Train)
	case v == variantMixed:
		a = grouped(as, rows/len(tasks), mode.Train)
	default:
		a = newAdapter(c, v).alone(mode.Train)
	}
	x := states(b, e, ids, lens, a)
	var sum *graph.Value
	var out []graph.Output
	if v != variantMixed {
		sum, out = newHead(c, v, s.CEChunk).loss(b, x, lens, v, mode.Train)
	} else {
		n := rows / len(tasks)
		for i, name := range tasks {
			h := newHead(c, name, s.CEChunk)
			part, _ := h.loss(b, b.Slice(x, 0, i*n, n), b.Slice(lens, 0, i*n, n), groupTag(name), mode.Train)
			if sum == nil {
				sum = part
			} else {
				sum = b.Add(sum, part)
			}
		}
	}
	o := engine.Objective{Sum: b.Add(sum, b.MulC(guess, r.Supervised)), Aux: aux}
	if !mode.Train {
		out = append(out, graph.Output{Name: outputTask, Value: sum}, graph.Output{Name: outputRouter, Value: guess},
			graph.Output{Name: outputRouting, Value: b.Softmax(scores)})
		o.Outputs = out
	}
	for _, v := range b.F.States {
		if v.State.Role == graph.Weight && !strings.HasPrefix(v.Name, "router.") {
			v.State.Group = groupAdapters
		}
	}
	return o
}

// inputShare F32 [B] holds the weights of the rows of phase 3 in the router's loss, as opposed to those of a
// text's tokens in the loss of its task.
const inputShare = "share"

// group returns the number of rows of each task in a batch of all tasks.
func group(c *config.Config, rows int) int { return max(1, rows/len(config.Of[Model](c).Tasks)) }

// groupTag returns the tag of the inputs of a task's rows in a batch of all tasks.
func groupTag(name string) string { return variantMixed + "." + name }
