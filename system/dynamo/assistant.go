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

// assistant does the tasks: a program without a backward half that routes
// texts, reads them and writes.
type assistant struct {
	config *config.Config
	tok    *tokens
	r      *engine.Executable
	rows   int      // texts at a time
	all    []string // the tasks by number
	tasks  []string // those that it can do
	// mixes says that adapters are mixed by gates; else each task has its own.
	mixes bool
	cache decoderCache
}

// The functions of the program; those of a task are followed by its name.
const (
	funcRoute   = "route"
	funcRead    = "read"    // the encoder and what a head says at once
	funcNext    = "next"    // one more token
	funcReorder = "reorder" // rows of the cache
)

// The inputs that only an assistant has.
const (
	inputGates   = "gates"   // F32 [B, n]
	inputToken   = "token"   // I32 [B, 1]
	inputAt      = "at"      // I32 [B]
	inputKnown   = "known"   // I32 [B]
	inputZero    = "zero"    // I32 [B]
	inputParents = "parents" // I32 [B]
	outputNext   = "next"    // F32 [B, V]
)

// newAssistant compiles an assistant for some of the tasks.
func newAssistant(c *config.Config, tok *tokens, tasks []string, routes, mixes bool, on engine.Backend) (*assistant, error) {
	a := &assistant{config: c, tok: tok, rows: c.Training.BatchSize, all: config.Of[Model](c).Tasks, tasks: tasks, mixes: mixes}
	a.cache = decoderCache{KVCache: nn.KVCache{Rows: a.rows, Name: cacheName}}
	for _, name := range tasks {
		if kindOf(name) == write {
			a.cache.source = max(a.cache.source, lengthOf(c, name))
			a.cache.Positions = max(a.cache.Positions, taskOf(c, name).Target)
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
			add(funcRoute, a.route)
		}
		for _, name := range tasks {
			add(funcRead+"@"+name, func(b *graph.Builder) { a.read(b, name) })
			if kindOf(name) == write {
				add(funcNext+"@"+name, func(b *graph.Builder) { a.next(b, name) })
			}
		}
		if a.cache.Positions > 0 {
			add(funcReorder, a.reorder)
		}
	})
	if err != nil {
		return nil, err
	}
	// Weights come later, from where each of them was trained.
	a.r, err = inference.Load(on, func(*engine.Executable) error { return nil }, funcs...)
	return a, err
}

// Close frees the program.
func (a *assistant) Close() error { return a.r.Close() }

func (a *assistant) route(b *graph.Builder) {
	ids, lens := texts(b, funcRoute, a.rows, a.config.Data.SeqLen)
	y := newRouter(a.config).scores(b, states(b, encoder(a.config), ids, lens, nil), false)
	b.Output(outputRouting, b.Softmax(y))
}

func (a *assistant) read(b *graph.Builder, name string) {
	ids, lens := texts(b, name, a.rows, lengthOf(a.config, name))
	how := newAdapter(a.config, name).alone(false)
	if a.mixes {
		var as []adapter
		for _, t := range a.all {
			as = append(as, newAdapter(a.config, t))
		}
		how = mixed(as, b.Input(inputGates, graph.T(graph.F32, a.rows, len(a.all))), false)
	}
	x := states(b, encoder(a.config), ids, lens, how)
	h := newHead(a.config, name, 0)
	switch h.kind {
	case classify:
		b.Output(outputLogits, h.logits(b, x, false))
	case point:
		start, end := h.span(b, x, b.Input(at(inputOutside, name), graph.T(graph.F32, a.rows, lengthOf(a.config, name))), false)
		b.Output(outputStart, start)
		b.Output(outputEnd, end)
	case write:
		m := a.cache
		m.zero = b.Input(inputZero, graph.T(graph.I32, a.rows))
		h.scope(b, func() { h.remember(b, x, &m) })
	}
}

func (a *assistant) next(b *graph.Builder, name string) {
	h := newHead(a.config, name, 0)
	row := graph.T(graph.I32, a.rows)
	m := a.cache
	m.At, m.Lens = b.Input(inputAt, row), b.Input(inputKnown, row)
	table := tokenEmbedding(b, h.bert)
	h.scope(b, func() {
		x := h.hidden(b, table, b.Input(inputToken, graph.T(graph.I32, a.rows, 1)), source{lens: b.Input(at(inputLens, name), row), cache: &m})
		b.Output(outputNext, b.Linear(b.Reshape(x, a.rows, h.bert.D), table, nil))
	})
}

func (a *assistant) reorder(b *graph.Builder) {
	m := a.cache
	row := graph.T(graph.I32, a.rows)
	m.zero = b.Input(inputZero, row)
	newHead(a.config, a.tasks[0], 0).reorder(b, b.Input(inputParents, row), &m)
}

// parameters are the states to be loaded.
func (a *assistant) parameters() []*graph.State {
	return slices.DeleteFunc(slices.Clone(a.r.Program().States), func(s *graph.State) bool { return !parameter(s) })
}

// from copies the parameters that a loaded training program has, and returns
// the others.
func (a *assistant) from(r *engine.Executable) (missing []*graph.State, err error) {
	for _, s := range a.parameters() {
		if r.Program().State(s.Name) == nil {
			missing = append(missing, s)
			continue
		}
		t, err := r.State(s.Name)
		if err != nil {
			return nil, err
		}
		if err := a.r.SetState(t); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func (a *assistant) ints(name string) []int32 {
	t, _ := a.r.Input(0, name)
	return t.I32()
}

func (a *assistant) floats(name string) []float32 {
	t, _ := a.r.Input(0, name)
	return t.F32()
}

// encoded is a text as ids, and as a question where it is one.
func (a *assistant) encoded(x *text, length int) (ids []int32, q question, err error) {
	defer token.Catch(&err)
	if x.Question != "" {
		q, err = a.tok.question(x, length)
		return q.ids, q, err
	}
	ids, _ = a.tok.ids(x.Input, length)
	return ids, q, nil
}

// put writes at most a.rows texts to the inputs of a function, and their
// lengths.
func (a *assistant) put(xs []text, tag string, length int) ([]question, error) {
	ids, lens := a.ints(at(inputIDs, tag)), a.ints(at(inputLens, tag))
	qs := make([]question, len(xs))
	for i := range a.rows {
		row := ids[i*length : (i+1)*length]
		for k := range row {
			row[k] = a.tok.pad
		}
		lens[i] = 1
		if i >= len(xs) {
			continue
		}
		own, q, err := a.encoded(&xs[i], length)
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

// routing gives the probabilities of the tasks for each text.
func (a *assistant) routing(ctx context.Context, xs []text) ([][]float32, error) {
	out := make([][]float32, 0, len(xs))
	n := len(a.all)
	err := batches(ctx, xs, a.rows, func(_ int, part []text) error {
		if _, err := a.put(part, funcRoute, a.config.Data.SeqLen); err != nil {
			return err
		}
		if err := a.r.Run(funcRoute, 0); err != nil {
			return err
		}
		p, err := a.r.OutputF32(funcRoute, outputRouting)
		if err != nil {
			return err
		}
		for i := range part {
			out = append(out, slices.Clone(p[i*n:(i+1)*n]))
		}
		return nil
	})
	return out, err
}

// answer is what a task makes of a text.
type answer struct {
	// Text is the answer, or what was written; of a classification empty.
	Text string
	// Label is the class and Share its probability.
	Label int
	Share float64
}

// answers does a task for each text. gates say how much of each task's adapter
// a text gets; they are read if the assistant mixes.
func (a *assistant) answers(ctx context.Context, name string, xs []text, gates [][]float32) ([]answer, error) {
	if !slices.Contains(a.tasks, name) {
		return nil, fmt.Errorf("the task %s was not loaded", name)
	}
	out := make([]answer, 0, len(xs))
	length, beams := lengthOf(a.config, name), 1
	if kindOf(name) == write {
		beams = taskOf(a.config, name).Beams
	}
	err := batches(ctx, xs, a.rows/beams, func(from int, part []text) error {
		part = repeated(part, beams)
		qs, err := a.put(part, name, length)
		if err != nil {
			return err
		}
		if a.mixes {
			n := len(a.all)
			dst := a.floats(inputGates)
			clear(dst)
			for i := range part {
				copy(dst[i*n:(i+1)*n], gates[from+i/beams])
			}
		}
		if kindOf(name) == point {
			a.outside(name, qs, length)
		}
		fn := funcRead + "@" + name
		if err := a.r.Run(fn, 0); err != nil {
			return err
		}
		switch kindOf(name) {
		case classify:
			y, err := a.r.OutputF32(fn, outputLogits)
			if err != nil {
				return err
			}
			for i := range part {
				out = append(out, class(y[labels*i:labels*(i+1)]))
			}
		case point:
			start, err := a.r.OutputF32(fn, outputStart)
			if err != nil {
				return err
			}
			end, err := a.r.OutputF32(fn, outputEnd)
			if err != nil {
				return err
			}
			for i := range part {
				f, t := best(start[i*length:(i+1)*length], end[i*length:(i+1)*length])
				out = append(out, answer{Text: qs[i].between(&part[i], f, t)})
			}
		case write:
			texts, err := a.write(ctx, name, len(part), beams)
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

// repeated has each text n times.
func repeated(xs []text, n int) []text {
	out := make([]text, 0, n*len(xs))
	for _, x := range xs {
		for range n {
			out = append(out, x)
		}
	}
	return out
}

// outside marks where answers cannot lie.
func (a *assistant) outside(name string, qs []question, length int) {
	dst := a.floats(at(inputOutside, name))
	for i := range dst {
		dst[i] = unlikely
	}
	for i, q := range qs {
		clear(dst[i*length+q.context : i*length+q.context+len(q.spans)])
	}
}

// between is the text from one token of a question to another.
func (q *question) between(x *text, from, to int) string {
	if from < q.context || to >= q.context+len(q.spans) {
		return ""
	}
	return strings.TrimSpace(x.Input[q.spans[from-q.context].Start:q.spans[to-q.context].End])
}
