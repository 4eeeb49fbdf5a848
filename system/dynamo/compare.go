package dynamo

import (
	"context"
	"math/rand/v2"

	"github.com/snug-ml/snug/train/metric"
)

// score rates an answer from 0 to 1: by the right class, the F1 of the words of an answer, or ROUGE-L of a
// text.
func score(name string, x *text, a answer) float64 {
	switch kindOf(name) {
	case classify:
		if a.Label == x.Label {
			return 1
		}
		return 0
	case point:
		return metric.TokenF1(a.Text, x.right()...)
	}
	return metric.Rouge(a.Text, x.Output).RL
}

// meanScore returns the mean score of the answers.
func meanScore(name string, xs []text, as []answer) float64 {
	sum := 0.0
	for i := range as {
		sum += score(name, &xs[i], as[i])
	}
	return sum / float64(max(1, len(as)))
}

// written returns the metrics of texts generated for a task.
func written(xs []text, as []answer) map[string]float64 {
	var got, want []string
	same := 0.0
	for i := range as {
		got, want = append(got, as[i].Text), append(want, xs[i].Output)
		if as[i].Text == xs[i].Output {
			same++
		}
	}
	r := metric.MeanRouge(got, want)
	return map[string]float64{
		"rouge1": r.R1, "rouge2": r.R2, "rougeL": r.RL, "bleu": metric.BLEU(got, want), "exact_match": same / float64(max(1, len(as))),
	}
}

// constant answers every text with the most frequent answer in training, as a baseline.
func constant(name string, train, xs []text) []answer {
	counts, labels := map[string]int{}, [labels]int{}
	for i := range train {
		counts[train[i].Output]++
		labels[train[i].Label]++
	}
	var common answer
	if labels[1] > labels[0] {
		common.Label = 1
	}
	for s, n := range counts {
		if m := counts[common.Text]; n > m || n == m && s < common.Text {
			common.Text = s
		}
	}
	out := make([]answer, len(xs))
	for i := range out {
		out[i] = common
		if kindOf(name) == point {
			out[i].Text = xs[i].Input
		}
	}
	return out
}

// These are the compared ways to choose a text's adapter. If a router decides, a text that it assigns to
// another task counts as missed. The other ways are given the task and choose only the adapter.
const (
	wayOracle  = "oracle"           // the adapter of the true task
	wayHard    = "router, hard"     // the adapter of the most likely task
	waySoft    = "router, soft"     // all adapters, weighted by probability
	wayUniform = "uniform"          // all adapters, with equal weights
	wayRandom  = "random"           // a random adapter
	wayNone    = "no adapter"       // the plain encoder
	wayOnly    = "only the one of " // one task's adapter for all tasks
)

// way returns the gates for a text of task number i with routing p. missed means that the text goes to the
// wrong task.
type way struct {
	name  string
	gates func(i int, p []float32, rng *rand.Rand) (gates []float32, missed bool)
}

// ways returns the ways to compare among n tasks.
func ways(tasks []string) []way {
	n := len(tasks)
	one := func(i int) []float32 {
		g := make([]float32, n)
		g[i] = 1
		return g
	}
	out := []way{
		{wayOracle, func(i int, _ []float32, _ *rand.Rand) ([]float32, bool) { return one(i), false }},
		{wayHard, func(i int, p []float32, _ *rand.Rand) ([]float32, bool) { return one(argmax(p)), argmax(p) != i }},
		{waySoft, func(i int, p []float32, _ *rand.Rand) ([]float32, bool) { return p, argmax(p) != i }},
		{wayUniform, func(int, []float32, *rand.Rand) ([]float32, bool) {
			g := make([]float32, n)
			for k := range g {
				g[k] = 1 / float32(n)
			}
			return g, false
		}},
		{wayRandom, func(_ int, _ []float32, rng *rand.Rand) ([]float32, bool) { return one(rng.IntN(n)), false }},
		{wayNone, func(int, []float32, *rand.Rand) ([]float32, bool) { return make([]float32, n), false }},
	}
	for k, name := range tasks {
		out = append(out, way{wayOnly + name, func(int, []float32, *rand.Rand) ([]float32, bool) { return one(k), false }})
	}
	return out
}

func argmax(p []float32) int {
	top := 0
	for i, x := range p {
		if x > p[top] {
			top = i
		}
	}
	return top
}

// compared holds the scores of every way for every task, and the answers of the oracle.
type compared struct {
	scores  map[string]map[string]float64
	answers map[string][]answer
	routes  map[string][][]float32
}

// compare measures the ways on texts of every task. a must be able to mix and to route.
func compare(ctx context.Context, a *taskPredictor, xs map[string][]text, seed uint64) (*compared, error) {
	c := &compared{map[string]map[string]float64{}, map[string][]answer{}, map[string][][]float32{}}
	for i, name := range a.all {
		routes, err := a.routing(ctx, xs[name])
		if err != nil {
			return nil, err
		}
		c.routes[name] = routes
		for _, w := range ways(a.all) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			gates, missed := make([][]float32, len(routes)), make([]bool, len(routes))
			for k, p := range routes {
				gates[k], missed[k] = w.gates(i, p, rng)
			}
			answers, err := a.answers(ctx, name, xs[name], gates)
			if err != nil {
				return nil, err
			}
			sum := 0.0
			for k := range answers {
				if !missed[k] {
					sum += score(name, &xs[name][k], answers[k])
				}
			}
			if c.scores[w.name] == nil {
				c.scores[w.name] = map[string]float64{}
			}
			c.scores[w.name][name] = sum / float64(max(1, len(answers)))
			if w.name == wayOracle {
				c.answers[name] = answers
			}
		}
	}
	return c, nil
}
