package inference

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

// EngineOptions bound how much an engine does at once.
type EngineOptions struct {
	// Rows is how many texts are written at once; 0: as many as fit, up to 8.
	Rows int
	// Context is the maximum length of a text in tokens, prompt included; 0: as long as
	// the model was made for.
	Context int
	// Waiting is how many texts may wait for a row.
	Waiting int
	// Target is the memory that the engine is planned for.
	Target plan.Target
}

// Plan is what an engine needs, exact to the byte except for the process's allowance.
type Plan struct {
	Rows    int   `json:"rows"`
	Context int   `json:"context"`
	Cache   int64 `json:"cache_bytes"`
	Total   int64 `json:"planned_total_bytes"`
	// Capacity is the memory available; 0: unknown.
	Capacity int64 `json:"capacity_bytes"`
}

// DoesNotFit refuses an engine that needs more memory than is available.
type DoesNotFit struct{ Plan }

// ExitCode is 3: does not fit.
func (*DoesNotFit) ExitCode() int { return 3 }

func (e *DoesNotFit) Error() string {
	return fmt.Sprintf("does not fit: %s are needed for %s of %d tokens, %s of them for the key-value cache; %s are available: lower the rows or the context",
		size.Bytes(e.Total), size.Of(e.Rows, "row"), e.Context, size.Bytes(e.Cache), size.Bytes(e.Capacity))
}

// TextRequest asks for a text.
type TextRequest struct {
	Prompt []int32 // at least one token
	Seen   Seen    // what accompanies it, from [Language.Decode]
	Tokens int     // maximum to write
	Sampling
	// Stop ends the text before the first of these strings.
	Stop []string
	// Logprobs, when set, requests probabilities, with that many alternatives.
	Logprobs *int
	// ScorePrompt requests those of the prompt's tokens too.
	ScorePrompt bool
}

// TextEvent is something that happened to one of the texts of a request.
type TextEvent struct {
	Text int // its number
	// Prompt means that the pieces belong to the prompt.
	Prompt bool
	Pieces []Piece
	// Finish is why the text is complete, empty before; Written is how many tokens
	// were drawn for it.
	Finish  Finish
	Written int
	// Err ends the text.
	Err error
}

// Finish is why a text is complete.
type Finish string

// The reasons.
const (
	FinishStop   Finish = "stop"   // the end of the document, or a stop string
	FinishLength Finish = "length" // the requested number of tokens
)

// Engine writes many texts at once: each takes a row of the cache when one is free and
// frees it when it ends, while others continue.
//
// A text depends only on its request.
type Engine struct {
	Language *Language
	Plan     Plan

	d    decoder
	opt  EngineOptions
	rows []*writing // nil: free
	done chan struct{}

	mu       sync.Mutex
	changed  *sync.Cond
	waiting  []*writing
	stopping bool

	counts struct{ texts, tokens, steps int64 } // under mu
	// media is the memory of what accompanies unfinished texts.
	media atomic.Int64
}

// mostMedia bounds the memory of what accompanies texts, over all requests.
const mostMedia = 256 << 20

// mostRows is how many rows an engine has unless the options say otherwise.
const mostRows = 8

// NewEngine plans an engine and starts it. A plan that does not fit is refused with a
// *[DoesNotFit] before anything is allocated. The caller must close the engine.
func NewEngine(l *Language, opt EngineOptions, on engine.Backend) (*Engine, error) {
	switch positions := l.Positions(); {
	case opt.Context == 0:
		opt.Context = positions
	case opt.Context > positions:
		return nil, fmt.Errorf("a context of %d tokens: the model was made for %d", opt.Context, positions)
	}
	e := &Engine{Language: l, opt: opt, done: make(chan struct{})}
	e.changed = sync.NewCond(&e.mu)
	rows := opt.Rows
	if rows == 0 {
		rows = mostRows
	}
	for ; ; rows /= 2 {
		var err error
		if e.d, err = newDecoder(l, rows, opt.Context, true, l.variants(true, true), on, func(p *engine.Program) error { return e.plan(p, rows, on) }); err == nil {
			break
		}
		var large *DoesNotFit
		if !errors.As(err, &large) || opt.Rows > 0 || rows == 1 {
			return nil, err
		}
	}
	e.rows = make([]*writing, rows)
	go e.loop()
	return e, nil
}

// plan counts what the program needs and refuses a plan that does not fit.
func (e *Engine) plan(p *engine.Program, rows int, on engine.Backend) error {
	workspace, err := on.Workspace(p)
	if err != nil {
		return err
	}
	r := plan.New(p, e.opt.Target, plan.Run{Workspace: workspace})
	e.Plan = Plan{Rows: rows, Context: e.opt.Context, Total: r.Total, Capacity: r.Capacity}
	for _, s := range p.States {
		if s.Role == graph.CacheRole {
			e.Plan.Cache += p.Align(s.Type.Bytes())
		}
	}
	if !r.Fits {
		return &DoesNotFit{e.Plan}
	}
	return nil
}

// Close finishes accepted texts, ends and frees the model.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.stopping = true
	e.changed.Signal()
	e.mu.Unlock()
	<-e.done
	return e.d.Close()
}

// Counts returns how many texts were written, how many tokens were drawn for them and in
// how many steps, and how many texts are currently being written or waiting.
func (e *Engine) Counts() (texts, tokens, steps int64, running, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.rows {
		if w != nil {
			running++
		}
	}
	return e.counts.texts, e.counts.tokens, e.counts.steps, running, len(e.waiting)
}

// Write requests texts, all of them or none. Each text's events come in order until it is
// finished; the channel is closed after the last. A text whose ctx ends leaves its row at
// once. The error is [ErrBusy] if too many texts wait, [ErrStopping] after Close.
func (e *Engine) Write(ctx context.Context, texts []TextRequest) (<-chan TextEvent, error) {
	room := 0
	for i := range texts {
		r := &texts[i]
		if r.Seen != nil && e.Language.Media == nil {
			return nil, fmt.Errorf("text %d: the model reads text only", i+1)
		}
		if n := e.Language.Length(r.Prompt, r.Seen); n == 0 || n+r.Tokens > e.opt.Context {
			return nil, fmt.Errorf("text %d: a prompt of %d tokens with %d to generate, want at least 1 and at most %d together", i+1, n, r.Tokens, e.opt.Context)
		}
		room += r.Tokens + 3
	}
	// There is room for every possible event, so the engine never waits.
	c := &call{ctx: ctx, events: make(chan TextEvent, room), open: len(texts), held: &e.media}
	if len(texts) > 0 {
		c.media = texts[0].Seen.bytes() // the texts of a request share it
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopping:
		return nil, ErrStopping
	case len(e.waiting)+len(texts) > e.opt.Waiting+e.free():
		return nil, ErrBusy
	case c.media > 0 && e.media.Load() > 0 && e.media.Load()+c.media > mostMedia:
		return nil, ErrBusy
	}
	e.media.Add(c.media)
	for i := range texts {
		e.waiting = append(e.waiting, newWriting(e.Language, c, i, texts[i]))
	}
	e.changed.Signal()
	return c.events, nil
}

// free returns how many rows are free.
func (e *Engine) free() (n int) {
	for _, w := range e.rows {
		if w == nil {
			n++
		}
	}
	return n
}

func (e *Engine) loop() {
	defer close(e.done)
	release := func() {}
	defer func() { release() }()
	held := false
	for {
		e.mu.Lock()
		for e.admit(); e.free() == len(e.rows); e.admit() {
			if e.stopping {
				e.mu.Unlock()
				return
			}
			if held {
				release()
				release, held = func() {}, false
			}
			e.changed.Wait()
		}
		e.mu.Unlock()
		if !held {
			release, held = e.d.hold(), true
		}
		if err := e.turn(); err != nil {
			for row, w := range e.rows {
				if w != nil {
					e.leave(row, &TextEvent{Err: err})
				}
			}
		}
	}
}

// admit drops the texts whose callers no longer wait, and gives free rows to the others
// in order of arrival. It is called with the lock held.
func (e *Engine) admit() {
	e.waiting = slices.DeleteFunc(e.waiting, func(w *writing) bool {
		err := w.call.ctx.Err()
		if err != nil {
			w.end(&TextEvent{Err: err})
		}
		return err != nil
	})
	for row := range e.rows {
		if e.rows[row] == nil && len(e.waiting) > 0 {
			e.d.forget(row)
			e.d.show(row, e.waiting[0].Seen)
			e.rows[row] = e.waiting[0]
			e.waiting = e.waiting[1:]
		}
	}
}

// leave frees a row and then ends its text with an event.
func (e *Engine) leave(row int, last *TextEvent) {
	e.mu.Lock()
	w := e.rows[row]
	e.counts.texts++
	e.counts.tokens += int64(w.written)
	e.rows[row] = nil
	e.mu.Unlock()
	w.end(last)
}

// turn advances every text by one step: a part of its prompt, or a token.
func (e *Engine) turn() error {
	var list []fed
	for row, w := range e.rows {
		if w == nil {
			continue
		}
		if err := w.call.ctx.Err(); err != nil {
			e.leave(row, &TextEvent{Err: err})
			continue
		}
		n, err := e.d.prefill(row, w.pending, w.scorer())
		if err != nil {
			return err
		}
		if w.pending = w.pending[n:]; n == 0 || len(w.pending) == 1 {
			list = append(list, fed{row, w.pending[0]})
		}
	}
	if len(list) == 0 {
		return nil
	}
	e.mu.Lock()
	e.counts.steps++
	e.mu.Unlock()
	return e.d.step(list, func(i int, logits []float32) error {
		row := list[i].row
		if last := e.rows[row].take(logits); last != nil {
			e.leave(row, last)
		}
		return nil
	})
}
