package dynamo

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// predictions holds the predictions for a micro-batch of a task.
type predictions struct {
	Task int // index among the held-out tasks
	// Loss and Router are sums of weight times loss, of the task and of the router.
	Loss, Router float64
	Rows         []prediction
}

// prediction is the prediction for one example.
type prediction struct {
	Example  int
	Weight   float64
	Margin   float64   // difference of the logits, for a task that classifies
	From, To int       // the most likely span, for a task that points
	Routes   []float32 // the router's probabilities
}

// evaluation measures the stage on all its held-out texts, within the configured number of micro-batches of
// each task.
func (j *job) evaluation() *train.Evaluation[predictions] {
	return &train.Evaluation[predictions]{
		Batches: func(ctx context.Context, x *engine.Executable) iter.Seq2[train.EvalBatch[predictions], error] {
			return func(yield func(train.EvalBatch[predictions], error) bool) {
				for i := range j.held {
					for b, err := range j.pass(i)(ctx, x) {
						if !yield(b, err) {
							return
						}
					}
				}
			}
		},
		Metrics: func(_ *engine.Executable, parts []predictions) (map[string]float64, error) {
			m, _ := j.figures(parts)
			return m, nil
		},
	}
}

// pass iterates over the held-out texts of a task.
func (j *job) pass(task int) train.Batches[predictions] {
	t, limit, variant := j.held[task], j.config.Training.EvalBatches, ""
	if j.stage == stageJoint {
		variant = t.task
	}
	open := func() (*data.ExampleLoader, error) {
		return data.NewExampleLoader(t, data.ExampleOptions{MicroBatches: 1, Buckets: []data.Bucket{{Rows: j.shape.MicroBatch}}, Shuffle: limit > 0, Seed: 1, Epochs: 1})
	}
	return train.Pass(open, limit, func(_ int, u *data.ExampleUpdate) train.EvalBatch[predictions] {
		b := &u.Micro[0]
		return train.EvalBatch[predictions]{
			Variant: variant,
			Fill:    func(in train.Inputs) error { return t.fill(b, in, variant, 0, variant) },
			Read:    func(out train.Outputs) (predictions, error) { return j.read(task, b, out) },
		}
	})
}

// read returns the predictions for a micro-batch of a task.
func (j *job) read(task int, b *data.ExampleBatch, out train.Outputs) (predictions, error) {
	t, s := j.held[task], predictions{Task: task}
	var failed error
	get := func(name string) []float32 {
		x, err := out.F32(name)
		failed = cmp.Or(failed, err)
		return x
	}
	loss, routed, headed := engine.OutputSum, j.stage == stageRouter || j.stage == stageJoint, j.stage != stageRouter
	var router, routes, logits, start, end []float32
	if j.stage == stageJoint {
		loss, router = outputTask, get(outputRouter)
	}
	sum := get(loss)
	if routed {
		routes = get(outputRouting)
	}
	switch {
	case headed && t.kind == classify:
		logits = get(outputLogits)
	case headed && t.kind == point:
		start, end = get(outputStart), get(outputEnd)
	}
	if failed != nil {
		return s, failed
	}
	s.Loss = float64(sum[0])
	if router != nil {
		s.Router = float64(router[0])
	}
	for k, i := range b.Index {
		if i < 0 {
			continue
		}
		r := prediction{Example: i, Weight: float64(b.Weights[k])}
		if logits != nil {
			r.Margin = float64(logits[k*labels+1]) - float64(logits[k*labels])
		}
		if start != nil {
			r.From, r.To = best(start[k*t.length:(k+1)*t.length], end[k*t.length:(k+1)*t.length])
		}
		if n := len(j.tasks); routed {
			r.Routes = slices.Clone(routes[k*n : (k+1)*n])
		}
		s.Rows = append(s.Rows, r)
	}
	return s, nil
}

// figures returns the metrics of a pass, including the metrics of the router if the stage has one.
func (j *job) figures(parts []predictions) (map[string]float64, *routerMetrics) {
	byTask := make([]*headMetrics, len(j.held))
	for i, t := range j.held {
		byTask[i] = &headMetrics{t: t}
	}
	routed, loss, guess := newRouterMetrics(j.tasks), 0.0, 0.0
	for i := range parts {
		p := &parts[i]
		loss, guess = loss+p.Loss, guess+p.Router
		switch j.stage {
		case stageRouter:
			routed.add(p)
		case stageJoint:
			routed.add(p)
			byTask[p.Task].add(p)
		default:
			byTask[p.Task].add(p)
		}
	}
	switch j.stage {
	case stageRouter:
		m := routed.metrics()
		m[lossName] = loss / float64(routed.n)
		return m, routed
	case stageJoint:
		// The monitored metric is the mean loss of the tasks plus the loss of the router.
		m, mean := routed.metrics(), 0.0
		for _, v := range byTask {
			for k, x := range v.metrics() {
				m[v.t.task+"_"+k] = x
			}
			mean += v.loss / v.weight / float64(len(j.held))
		}
		m["router_loss"] = guess / float64(routed.n)
		m[lossName] = mean + m["router_loss"]
		return m, routed
	}
	return byTask[0].metrics(), nil
}

// measure evaluates a loaded program.
func (j *job) measure(ctx context.Context, x *engine.Executable) (map[string]float64, *routerMetrics, error) {
	found, err := j.evaluation().Records(ctx, x, 0, train.Part{})
	if err != nil {
		return nil, nil, err
	}
	m, routed := j.figures(found.List())
	return m, routed, nil
}

// headMetrics accumulates the predictions of a task.
type headMetrics struct {
	t *table
	// loss and weight are sums.
	loss, weight float64
	counts       metric.Confusion
	match, f1    float64
	starts, ends int
	n            int
}

// add adds a micro-batch.
func (v *headMetrics) add(s *predictions) {
	v.loss += s.Loss
	for i := range s.Rows {
		r := &s.Rows[i]
		v.n++
		v.weight += r.Weight
		switch v.t.kind {
		case classify:
			v.counts = add(v.counts, metric.Count([]float64{r.Margin}, []bool{v.t.texts[r.Example].Label == 1}, 0))
		case point:
			v.pointed(r)
		}
	}
}

func add(a, b metric.Confusion) metric.Confusion {
	return metric.Confusion{TP: a.TP + b.TP, FP: a.FP + b.FP, TN: a.TN + b.TN, FN: a.FN + b.FN}
}

// pointed adds the answer to one question.
func (v *headMetrics) pointed(r *prediction) {
	q, x := &v.t.questions[r.Example], &v.t.texts[r.Example]
	answer, right := q.between(x, r.From, r.To), x.right()
	v.match += metric.ExactMatch(answer, right...)
	v.f1 += metric.TokenF1(answer, right...)
	if q.ok && r.From == q.start {
		v.starts++
	}
	if q.ok && r.To == q.end {
		v.ends++
	}
}

// longestAnswer is the maximum number of tokens of an answer.
const longestAnswer = 30

// best returns the most likely span: the first and the last token with the highest sum of scores.
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

// metrics returns the metrics of a task.
func (v *headMetrics) metrics() map[string]float64 {
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

// baseline returns the value of a task's monitored metric without learning from texts: by always choosing the
// more frequent label, the whole text as the answer, or token probabilities equal to their frequencies.
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
		return "most frequent label", right / n
	case point:
		f := 0.0
		for _, x := range held.texts {
			f += metric.TokenF1(x.Input, x.right()...)
		}
		return "the whole text", f / n
	}
	return "unigram", train.unigram(held)
}

// routerMetrics accumulates the choices of the router for texts whose task is known.
type routerMetrics struct {
	tasks  []string
	matrix *metric.Matrix
	usage  []float64 // mean probability of each task
	// entropy (in nats) and sure (the highest probability) are sums.
	entropy, sure float64
	n             int
}

func newRouterMetrics(tasks []string) *routerMetrics {
	return &routerMetrics{tasks: tasks, matrix: metric.NewMatrix(tasks...), usage: make([]float64, len(tasks))}
}

// see adds the probabilities for one text of task number task.
func (r *routerMetrics) see(task int, p []float32) {
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

// add adds a micro-batch.
func (r *routerMetrics) add(s *predictions) {
	for i := range s.Rows {
		r.see(s.Task, s.Rows[i].Routes)
	}
}

// metrics returns the metrics of the router. Load balance is the entropy of the mean routing, relative to its
// maximum: 1 if all tasks are used equally.
func (r *routerMetrics) metrics() map[string]float64 {
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
