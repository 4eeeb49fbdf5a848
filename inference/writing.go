package inference

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/snug-ml/snug/data/token"
)

// call is one request with its texts.
type call struct {
	ctx    context.Context
	events chan TextEvent
	open   int // texts that are not finished
	media  int64
	held   *atomic.Int64 // counts media until the last text is finished
}

// writing is a text that waits or is being written.
type writing struct {
	TextRequest
	l      *Language
	call   *call
	number int
	// pending are the tokens that the model has not run, at least one.
	pending []int32
	// prompt holds the prompt's scored pieces, with the probabilities of the first ones;
	// nil if nothing is scored.
	prompt  []Piece
	scored  int
	written int
	text    *token.Stream
	stopper stopper
	draw    *sampler
}

func newWriting(l *Language, c *call, number int, r TextRequest) *writing {
	w := &writing{TextRequest: r, l: l, call: c, number: number, pending: r.Prompt, stopper: stopper{stop: r.Stop}}
	w.text, w.draw = l.Tokenizer.Stream(true), newSampler(r.Sampling)
	if r.ScorePrompt {
		w.prompt, w.scored = l.Pieces(r.Prompt), 1
	}
	if first := l.opening(r.Prompt, r.Seen); first != nil {
		w.pending, w.scored = slices.Concat(first, r.Prompt), 0
	}
	return w
}

// scorer returns the function that receives the logits after each token of the prompt;
// nil: they are not needed.
func (w *writing) scorer() func(i int, logits []float32) {
	if w.prompt == nil {
		return nil
	}
	return func(_ int, logits []float32) {
		if w.scored < len(w.prompt) {
			w.prompt[w.scored].score(logits, *w.Logprobs)
		}
		w.scored++
	}
}

// take continues with the logits after the first of the pending tokens. It returns the
// last event of a text that is finished by them, otherwise nil.
func (w *writing) take(logits []float32) (last *TextEvent) {
	if score := w.scorer(); score != nil {
		score(0, logits)
	}
	if len(w.pending) > 1 {
		w.pending = w.pending[1:]
		return nil
	}
	if w.prompt != nil {
		w.call.events <- TextEvent{Text: w.number, Prompt: true, Pieces: w.prompt}
		w.prompt = nil
	}
	if w.written == w.Tokens {
		return w.finish(FinishLength)
	}
	next := w.draw.next(logits)
	if eos, ok := w.l.Tokenizer.Special(token.EOS); ok && next == eos {
		return w.finish(FinishStop)
	}
	w.written++
	w.pending = []int32{next}
	p := Piece{Token: next, Text: w.text.Next(next)}
	if w.Logprobs != nil {
		p.score(logits, *w.Logprobs)
	}
	w.stopper.add(p)
	if w.written == w.Tokens {
		return w.finish(FinishLength)
	}
	pieces, ended := w.stopper.certain(false)
	if ended {
		return &TextEvent{Pieces: pieces, Finish: FinishStop}
	}
	if len(pieces) > 0 {
		w.call.events <- TextEvent{Text: w.number, Pieces: pieces}
	}
	return nil
}

// finish ends the text for a reason, unless a stop string in the rest ends it before.
func (w *writing) finish(why Finish) *TextEvent {
	if rest := w.text.Flush(); rest != "" {
		w.stopper.add(Piece{Token: -1, Text: rest})
	}
	held := len(w.stopper.text)
	pieces, _ := w.stopper.certain(true)
	n := 0
	for _, p := range pieces {
		n += len(p.Text)
	}
	if n < held {
		why = FinishStop
	}
	return &TextEvent{Pieces: pieces, Finish: why}
}

// end sends the last event of the text, and ends the call with its last text.
func (w *writing) end(e *TextEvent) {
	e.Text, e.Written = w.number, w.written
	w.call.events <- *e
	if w.call.open--; w.call.open == 0 {
		w.call.held.Add(-w.call.media)
		close(w.call.events)
	}
}

// stopper cuts a text at the first of several strings. It holds back text that may be the
// beginning of one, and tokens until there is text after or with them.
type stopper struct {
	stop []string
	text string // of held
	held []Piece
}

// add takes the next piece.
func (s *stopper) add(p Piece) { s.held, s.text = append(s.held, p), s.text+p.Text }

// certain returns the pieces that are certain, and whether the text ends with them; last
// means that nothing follows.
func (s *stopper) certain(last bool) (out []Piece, ended bool) {
	first := -1
	for _, stop := range s.stop {
		if at := strings.Index(s.text, stop); at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	if first >= 0 {
		return s.cut(first), true
	}
	if last {
		return s.held, true
	}
	sure := len(s.text) - s.begun()
	for i, n := 0, 0; i < len(s.held); i++ {
		if n += len(s.held[i].Text); n > sure {
			break
		}
		if s.held[i].Text != "" {
			out = s.held[:i+1]
		}
	}
	for _, p := range out {
		s.text = s.text[len(p.Text):]
	}
	s.held = s.held[len(out):]
	return out, false
}

// begun returns how many bytes at the end of the text may begin a stop string.
func (s *stopper) begun() (most int) {
	for _, stop := range s.stop {
		for n := min(len(stop)-1, len(s.text)); n > most; n-- {
			if strings.HasSuffix(s.text, stop[:n]) {
				most = n
			}
		}
	}
	return most
}

// cut returns the pieces of the first n bytes.
func (s *stopper) cut(n int) (out []Piece) {
	for _, p := range s.held {
		if n <= 0 {
			break
		}
		p.Text = p.Text[:min(n, len(p.Text))]
		n -= len(p.Text)
		out = append(out, p)
	}
	return out
}
