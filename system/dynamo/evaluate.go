package dynamo

import (
	"context"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// sweep runs the "eval" function of a variant over a table, at most batches
// micro-batches of rows (0: all), and calls see after each.
func sweep(ctx context.Context, r *engine.Executable, slot int, variant string, t *table, rows, batches int, see func(fn string, b *data.ExampleBatch) error) error {
	l, err := data.NewExampleLoader(t, data.ExampleOptions{MicroBatches: 1, Buckets: []data.Bucket{{Rows: rows}}, Shuffle: batches > 0, Seed: 1, Epochs: 1})
	if err != nil {
		return err
	}
	fn := engine.Variant(engine.FuncEval, variant)
	for u, err := range data.Pass(ctx, l, batches) {
		if err != nil {
			return err
		}
		if err := t.fill(&u.Micro[0], train.Inputs{Runner: r, Slot: slot}, variant, 0, variant); err != nil {
			return err
		}
		if err := r.Run(fn, slot); err != nil {
			return err
		}
		if err := see(fn, &u.Micro[0]); err != nil {
			return err
		}
	}
	return nil
}

// verdicts collects what a head says of the rows of a task.
type verdicts struct {
	t *table
	// loss and weight add up the losses.
	loss, weight float64
	counts       metric.Confusion
	match, f1    float64
	starts, ends int
	n            int
}

// classified takes one text's logits.
func (v *verdicts) classified(i int, logits []float32) {
	v.n++
	v.counts = add(v.counts, metric.Count([]float64{float64(logits[1]) - float64(logits[0])}, []bool{v.t.texts[i].Label == 1}, 0))
}

func add(a, b metric.Confusion) metric.Confusion {
	return metric.Confusion{TP: a.TP + b.TP, FP: a.FP + b.FP, TN: a.TN + b.TN, FN: a.FN + b.FN}
}

// pointed takes one question's scores.
func (v *verdicts) pointed(i int, start, end []float32) {
	v.n++
	q, x := &v.t.questions[i], &v.t.texts[i]
	from, to := best(start, end)
	answer, right := q.between(x, from, to), x.right()
	v.match += metric.ExactMatch(answer, right...)
	v.f1 += metric.TokenF1(answer, right...)
	if q.ok && from == q.start {
		v.starts++
	}
	if q.ok && to == q.end {
		v.ends++
	}
}

// longestAnswer is how many tokens an answer may have.
const longestAnswer = 30

// best is the likeliest span: the first and the last token with the greatest
// sum of scores.
func best(start, end []float32) (from, to int) {
	top := float32(math.Inf(-1))
	for i := range start {
		for j := i; j < min(len(end), i+longestAnswer); j++ {
			if s := start[i] + end[j]; s > top {
				from, to, top = i, j, s
			}
		}
	}
	return from, to
}

// see takes the outputs of an eval function.
func (v *verdicts) see(r *engine.Executable, fn string, b *data.ExampleBatch, lossName string) error {
	loss, err := r.OutputF32(fn, lossName)
	if err != nil {
		return err
	}
	v.loss += float64(loss[0])
	var logits, start, end []float32
	switch v.t.kind {
	case classify:
		logits, err = r.OutputF32(fn, outputLogits)
	case point:
		if start, err = r.OutputF32(fn, outputStart); err == nil {
			end, err = r.OutputF32(fn, outputEnd)
		}
	}
	if err != nil {
		return err
	}
	for row, i := range b.Index {
		if i < 0 {
			continue
		}
		v.weight += float64(b.Weights[row])
		switch v.t.kind {
		case classify:
			v.classified(i, logits[row*labels:(row+1)*labels])
		case point:
			t := v.t.length
			v.pointed(i, start[row*t:(row+1)*t], end[row*t:(row+1)*t])
		case write:
			v.n++
		}
	}
	return nil
}

// metrics are the figures of a task.
func (v *verdicts) metrics() map[string]float64 {
	loss, n := v.loss/v.weight, float64(v.n)
	m := map[string]float64{lossName: loss}
	switch v.t.kind {
	case classify:
		m["accuracy"], m["precision"], m["recall"], m["f1"] = v.counts.Accuracy(), v.counts.Precision(), v.counts.Recall(), v.counts.F1()
	case point:
		m["exact_match"], m["token_f1"], m["start_accuracy"], m["end_accuracy"] = v.match/n, v.f1/n, float64(v.starts)/n, float64(v.ends)/n
	case write:
		m["perplexity"] = math.Exp(loss)
	}
	return m
}

// baseline is the value of a task's goal that takes no learning from texts:
// always the commoner label, the whole text as the answer, or tokens guessed
// from how often they come.
func baseline(train, held *table) (name string, value float64) {
	n := float64(len(held.texts))
	switch held.kind {
	case classify:
		ones := 0.0
		for _, x := range train.texts {
			ones += float64(x.Label)
		}
		common, right := 0, 0.0
		if 2*ones > float64(len(train.texts)) {
			common = 1
		}
		for _, x := range held.texts {
			if x.Label == common {
				right++
			}
		}
		return "commoner label", right / n
	case point:
		f := 0.0
		for _, x := range held.texts {
			f += metric.TokenF1(x.Input, x.right()...)
		}
		return "the whole text", f / n
	}
	return "unigram", train.unigram(held)
}

// routings collects what the router says of texts whose task is known.
type routings struct {
	tasks  []string
	matrix *metric.Matrix
	usage  []float64 // mean probability of each task
	// entropy in nats and greatest probability, summed.
	entropy, sure float64
	n             int
}

func newRoutings(tasks []string) *routings {
	return &routings{tasks: tasks, matrix: metric.NewMatrix(tasks...), usage: make([]float64, len(tasks))}
}

// see takes the probabilities of one text of the task with a number.
func (r *routings) see(task int, p []float32) {
	top := argmax(p)
	for i, x := range p {
		r.usage[i] += float64(x)
		if x > 0 {
			r.entropy -= float64(x) * math.Log(float64(x))
		}
	}
	r.sure += float64(p[top])
	r.matrix.Counts[task][top]++
	r.n++
}

// batch takes the output of an eval function for texts of one task.
func (r *routings) batch(task int, run *engine.Executable, fn string, b *data.ExampleBatch) error {
	p, err := run.OutputF32(fn, outputRouting)
	if err != nil {
		return err
	}
	n := len(r.tasks)
	for row, i := range b.Index {
		if i >= 0 {
			r.see(task, p[row*n:(row+1)*n])
		}
	}
	return nil
}

// metrics are the figures of the router. Load balance is the entropy of the
// mean routing over its greatest value: 1 where all tasks are used alike.
func (r *routings) metrics() map[string]float64 {
	n, right, balance := float64(r.n), 0, 0.0
	m := map[string]float64{"routing_entropy": r.entropy / n, "routing_confidence": r.sure / n}
	for i, row := range r.matrix.Counts {
		right += row[i]
		total := 0
		for _, c := range row {
			total += c
		}
		if total > 0 {
			m["routing_recall_"+r.tasks[i]] = float64(row[i]) / float64(total)
		}
		u := r.usage[i] / n
		m["usage_"+r.tasks[i]] = u
		if u > 0 {
			balance -= u * math.Log(u)
		}
	}
	m["routing_accuracy"] = float64(right) / n
	m["load_balance"] = 1
	if len(r.tasks) > 1 {
		m["load_balance"] = balance / math.Log(float64(len(r.tasks)))
	}
	return m
}
