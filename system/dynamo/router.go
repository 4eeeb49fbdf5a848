package dynamo

import (
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// coldest is the minimum temperature of the router.
const coldest = 0.1

// These inputs exist only for a router that draws.
const (
	inputNoise = "noise"      // F32 [B, n], tagged: standard Gumbel noise
	inputTau   = "gumbel_tau" // F32: temperature of the draw
)

// router determines the task of a text from the encoder's state of its first token.
type router struct {
	Router
	tasks int
	seed  uint64
}

func newRouter(c *config.Config) router {
	return router{*config.Of[Router](c), len(config.Of[Model](c).Tasks), c.Training.Seed}
}

// scores returns the logits [B, n] for states x [B, T, D], divided by the temperature.
func (r router) scores(b *graph.Builder, x *graph.Value, train bool) (y *graph.Value) {
	b.Scope("router", func() {
		y = b.Reshape(b.Slice(x, 1, 0, 1), x.Shape()[0], x.Shape()[2])
		for i, width := range r.Hidden {
			y = b.Relu(nn.Linear(b, fmt.Sprintf("hidden.%d", i), y, width, true, graph.KaimingNormal(y.Shape().Last())))
			if train {
				y = b.Dropout(y, r.Dropout, r.seed)
			}
		}
		y = nn.Head(b, "out", y, r.tasks, true, graph.XavierUniform(y.Shape().Last(), r.tasks))
		// What follows is small and needs float32 in any precision.
		y = b.Div(full(b, y), r.temperature(b))
	})
	return y
}

// temperature returns a scalar. Call it in the router's scope.
func (r router) temperature(b *graph.Builder) *graph.Value {
	t := b.Param("temperature", graph.Const(r.Temperature))
	if !r.LearnTemperature {
		t.State.Role = graph.Frozen
	}
	return b.MaxC(t, coldest)
}

// gates returns the weight of each task's adapter for a row, [B, n], given its scores: their softmax or, with
// Gumbel, a single adapter, which is drawn in training (Jang et al. 2017) and the most likely one in
// evaluations. The draw has the gradient of the softmax (straight-through).
func (r router) gates(b *graph.Builder, scores *graph.Value, tag string, train bool) *graph.Value {
	if !r.Gumbel {
		return b.Softmax(scores)
	}
	if train {
		scores = b.Add(scores, b.Input(at(inputNoise, tag), scores.Type))
		scores = b.Div(scores, b.Input(inputTau, graph.T(graph.F32)))
	}
	p := b.Softmax(scores)
	hard := b.Apply(graph.FnEqual, p, b.MaxKeep(p, -1))
	// No gradient flows through the equality or the floor, so the gradient comes from the last p alone, while
	// its value and the floor's cancel to 2^-24.
	const fine = 1 << 24
	known := b.MulC(b.Apply(graph.FnFloor, b.MulC(p, fine)), 1.0/fine)
	return b.Add(b.Sub(hard, known), p)
}

// losses returns the sum of the weighted cross-entropies with the true tasks and, for a batch of all tasks,
// the terms for the batch as a whole.
func (r router) losses(b *graph.Builder, scores, task, weights *graph.Value, whole bool) (sum, aux *graph.Value) {
	b.Scope("router", func() {
		sum = b.CrossEntropy(scores, task, weights)
		aux = b.Scalar(0)
		p := b.Softmax(scores)
		n := float64(r.tasks)
		if whole && r.Balance > 0 {
			off := b.AddC(b.Mean(p, 0), -1/n)
			aux = b.Add(aux, b.MulC(b.Mean(b.Square(off)), n*n*r.Balance))
		}
		if r.Entropy != 0 {
			h := b.Sum(b.Mul(p, b.Log(b.AddC(p, 1e-9))), -1)
			aux = b.Add(aux, b.MulC(b.Mean(h), r.Entropy))
		}
		if r.LearnTemperature && r.TemperaturePrior > 0 {
			aux = b.Add(aux, b.MulC(b.Square(b.AddC(r.temperature(b), -1)), r.TemperaturePrior))
		}
	})
	return sum, aux
}
