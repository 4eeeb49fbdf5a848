package dynamo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/nn"
)

// taskPredictor performs the tasks, with a program without a backward half that routes and encodes texts, and
// generates answers.
type taskPredictor struct {
	config *config.Config
	tok    *textEncoder
	r      *engine.Executable
	rows   int      // texts at a time
	all    []string // the tasks by number
	tasks  []string // the tasks that it can perform
	// mixes means that adapters are mixed by gates. Otherwise each task uses its own.
	mixes bool
	cache decoderCache
}

// These are the functions of the program. Those for a task are followed by its name.
const (
	funcRoute   = "route"
	funcRead    = "read"    // the encoder, and a head's output for all tokens at once
	funcNext    = "next"    // generates one more token
	funcReorder = "reorder" // reorders rows of the cache
)

// These are the inputs that only a task predictor has.
const (
	inputGates   = "gates"   // F32 [B, n]
	inputToken   = "token"   // I32 [B, 1]
	inputAt      = "at"      // I32 [B]
	inputKnown   = "known"   // I32 [B]
	inputZero    = "zero"    // I32 [B]
	inputParents = "parents" // I32 [B]
	outputNext   = "next"    // F32 [B, V]
)

// newTaskPredictor compiles a predictor for some of the tasks.
func newTaskPredictor(c *config.Config, tok *textEncoder, tasks []string, routes, mixes bool, on engine.Backend) (*taskPredictor, error) {
	p := &taskPredictor{config: c, tok: tok, rows: c.Training.BatchSize, all: config.Of[Model](c).Tasks, tasks: tasks, mixes: mixes}
	p.cache = decoderCache{KVCache: nn.KVCache{Rows: p.rows, Name: cacheName}}
	for _, name := range tasks {
		if kindOf(name) == write {
			p.cache.source = max(p.cache.source, lengthOf(c, name))
			p.cache.Positions = max(p.cache.Positions, taskOf(c, name).Target)
		}
	}
	var funcs []*graph.Func
	add := func(name string, build func(b *graph.Builder)) {
		b := graph.NewBuilder(name)
		build(b)
		funcs = append(funcs, b.F)
	}
	err := graph.Catch(func() {
		if routes {
			add(funcRoute, p.route)
		}
		for _, name := range tasks {
			add(funcRead+"@"+name, func(b *graph.Builder) { p.read(b, name) })
			if kindOf(name) == write {
				add(funcNext+"@"+name, func(b *graph.Builder) { p.next(b, name) })
			}
		}
		if p.cache.Positions > 0 {
			add(funcReorder, p.reorder)
		}
	})
	if err != nil {
		return nil, err
	}
	// Weights are loaded later, from where each of them was trained.
	p.r, err = inference.Load(on, func(*engine.Executable) error { return nil }, funcs...)
	return p, err
}

// Close frees the program.
func (p *taskPredictor) Close() error { return p.r.Close() }

func (p *taskPredictor) route(b *graph.Builder) {
	ids, lens := texts(b, funcRoute, p.rows, p.config.Data.SeqLen)
	y := newRouter(p.config).scores(b, states(b, encoder(p.config), ids, lens, nil), false)
	b.Output(outputRouting, b.Softmax(y))
}

func (p *taskPredictor) read(b *graph.Builder, name string) {
	ids, lens := texts(b, name, p.rows, lengthOf(p.config, name))
	how := newAdapter(p.config, name).alone(false)
	if p.mixes {
		var as []adapter
		for _, t := range p.all {
			as = append(as, newAdapter(p.config, t))
		}
		how = mixed(as, b.Input(inputGates, graph.T(graph.F32, p.rows, len(p.all))), false)
	}
	x := states(b, encoder(p.config), ids, lens, how)
	h := newHead(p.config, name, 0)
	switch h.kind {
	case classify:
		b.Output(outputLogits, h.logits(b, x, false))
	case point:
		start, end := h.span(b, x, b.Input(at(inputOutside, name), graph.T(graph.F32, p.rows, lengthOf(p.config, name))), false)
		b.Output(outputStart, start)
		b.Output(outputEnd, end)
	case write:
		m := p.cache
		m.zero = b.Input(inputZero, graph.T(graph.I32, p.rows))
		h.scope(b, func() { h.remember(b, x, &m) })
	}
}

func (p *taskPredictor) next(b *graph.Builder, name string) {
	h := newHead(p.config, name, 0)
	row := graph.T(graph.I32, p.rows)
	m := p.cache
	m.At, m.Lens = b.Input(inputAt, row), b.Input(inputKnown, row)
	table := tokenEmbedding(b, h.bert)
	h.scope(b, func() {
		x := h.hidden(b, table, b.Input(inputToken, graph.T(graph.I32, p.rows, 1)), source{lens: b.Input(at(inputLens, name), row), cache: &m})
		b.Output(outputNext, b.Linear(b.Reshape(x, p.rows, h.bert.D), table, nil))
	})
}

func (p *taskPredictor) reorder(b *graph.Builder) {
	m := p.cache
	row := graph.T(graph.I32, p.rows)
	m.zero = b.Input(inputZero, row)
	newHead(p.config, p.tasks[0], 0).reorder(b, b.Input(inputParents, row), &m)
}

// parameters returns the states to load.
func (p *taskPredictor) parameters() []*graph.State {
	return slices.DeleteFunc(slices.Clone(p.r.Program().States), func(s *graph.State) bool { return !parameter(s) })
}

// from copies the parameters that a loaded training program has, and returns the others.
func (p *taskPredictor) from(r *engine.Executable) (missing []*graph.State, err error) {
	for _, s := range p.parameters() {
		if r.Program().State(s.Name) == nil {
			missing = append(missing, s)
			continue
		}
		t, err := r.State(s.Name)
		if err != nil {
			return nil, err
		}
		if err := p.r.SetState(t); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func (p *taskPredictor) ints(name string) []int32 {
	t, _ := p.r.Input(0, name)
	return t.I32()
}

func (p *taskPredictor) floats(name string) []float32 {
	t, _ := p.r.Input(0, name)
	return t.F32()
}

// encoded returns the ids of a text and, if it is a question, its structure.
func (p *taskPredictor) encoded(x *text, length int) (ids []int32, q question, err error) {
	defer token.Catch(&err)
	if x.Question != "" {
		q, err = p.tok.question(x, length)
		return q.ids, q, err
	}
	ids, _ = p.tok.ids(x.Input, length)
	return ids, q, nil
}

// put writes at most p.rows texts and their lengths to the inputs of a function.
func (p *taskPredictor) put(xs []text, tag string, length int) ([]question, error) {
	ids, lens := p.ints(at(inputIDs, tag)), p.ints(at(inputLens, tag))
	qs := make([]question, len(xs))
	for i := range p.rows {
		row := ids[i*length : (i+1)*length]
		for k := range row {
			row[k] = p.tok.pad
		}
		lens[i] = 1
		if i >= len(xs) {
			continue
		}
		own, q, err := p.encoded(&xs[i], length)
		if err != nil {
			return nil, err
		}
		copy(row, own)
		lens[i], qs[i] = int32(len(own)), q
	}
	return qs, nil
}

// batches calls each with parts of at most n texts.
func batches(ctx context.Context, xs []text, n int, each func(from int, part []text) error) error {
	for from := 0; from < len(xs); from += n {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := each(from, xs[from:min(len(xs), from+n)]); err != nil {
			return err
		}
	}
	return nil
}

// routing returns the probabilities of the tasks for each text.
func (p *taskPredictor) routing(ctx context.Context, xs []text) ([][]float32, error) {
	out := make([][]float32, 0, len(xs))
	n := len(p.all)
	err := batches(ctx, xs, p.rows, func(_ int, part []text) error {
		if _, err := p.put(part, funcRoute, p.config.Data.SeqLen); err != nil {
			return err
		}
		if err := p.r.Run(funcRoute, 0); err != nil {
			return err
		}
		shares, err := p.r.OutputF32(funcRoute, outputRouting)
		if err != nil {
			return err
		}
		for i := range part {
			out = append(out, slices.Clone(shares[i*n:(i+1)*n]))
		}
		return nil
	})
	return out, err
}

// answer is a task's result for a text.
type answer struct {
	// Text is the answer or the generated text; empty for a classification.
	Text string
	// Label is the class and Share its probability.
	Label int
	Share float64
}

// answers performs a task for each text. gates are the weights of each task's adapter for a text, and are
// used only if the predictor mixes.
func (p *taskPredictor) answers(ctx context.Context, name string, xs []text, gates [][]float32) ([]answer, error) {
	if !slices.Contains(p.tasks, name) {
		return nil, fmt.Errorf("the task %s was not loaded", name)
	}
	out := make([]answer, 0, len(xs))
	length, beams := lengthOf(p.config, name), 1
	if kindOf(name) == write {
		beams = taskOf(p.config, name).Beams
	}
	err := batches(ctx, xs, p.rows/beams, func(from int, part []text) error {
		part = repeated(part, beams)
		qs, err := p.put(part, name, length)
		if err != nil {
			return err
		}
		if p.mixes {
			n := len(p.all)
			dst := p.floats(inputGates)
			clear(dst)
			for i := range part {
				copy(dst[i*n:(i+1)*n], gates[from+i/beams])
			}
		}
		if kindOf(name) == point {
			p.outside(name, qs, length)
		}
		fn := funcRead + "@" + name
		if err := p.r.Run(fn, 0); err != nil {
			return err
		}
		switch kindOf(name) {
		case classify:
			y, err := p.r.OutputF32(fn, outputLogits)
			if err != nil {
				return err
			}
			for i := range part {
				out = append(out, class(y[labels*i:labels*(i+1)]))
			}
		case point:
			start, err := p.r.OutputF32(fn, outputStart)
			if err != nil {
				return err
			}
			end, err := p.r.OutputF32(fn, outputEnd)
			if err != nil {
				return err
			}
			for i := range part {
				f, t := best(start[i*length:(i+1)*length], end[i*length:(i+1)*length])
				out = append(out, answer{Text: qs[i].between(&part[i], f, t)})
			}
		case write:
			texts, err := p.write(ctx, name, len(part), beams)
			if err != nil {
				return err
			}
			for _, s := range texts {
				out = append(out, answer{Text: s})
			}
		}
		return nil
	})
	return out, err
}

// repeated returns each text n times.
func repeated(xs []text, n int) []text {
	out := make([]text, 0, n*len(xs))
	for _, x := range xs {
		for range n {
			out = append(out, x)
		}
	}
	return out
}

// outside marks where answers cannot be.
func (p *taskPredictor) outside(name string, qs []question, length int) {
	dst := p.floats(at(inputOutside, name))
	for i := range dst {
		dst[i] = unlikely
	}
	for i, q := range qs {
		clear(dst[i*length+q.context : i*length+q.context+len(q.spans)])
	}
}

// between returns the text from one token of a question to another.
func (q *question) between(x *text, from, to int) string {
	if from < q.context || to >= q.context+len(q.spans) {
		return ""
	}
	return strings.TrimSpace(x.Input[q.spans[from-q.context].Start:q.spans[to-q.context].End])
}
