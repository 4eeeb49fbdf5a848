package inference

import (
	"context"
	"fmt"
	"io"

	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
)

// Generator continues one text at a time, however long, with the keys and values of
// earlier positions kept. It is for one goroutine.
type Generator struct {
	l    *Language
	d    decoder
	seen Seen
}

// NewGenerator makes a language model ready to write on a device. The caller must close
// it.
func NewGenerator(l *Language, on engine.Backend) (*Generator, error) {
	return NewMediaGenerator(l, nil, on)
}

// NewMediaGenerator is NewGenerator for texts accompanied by what [Language.Decode]
// returned.
func NewMediaGenerator(l *Language, seen Seen, on engine.Backend) (*Generator, error) {
	d, err := newDecoder(l, 1, l.Positions(), false, l.variants(seen == nil, seen != nil), on, nil)
	if err != nil {
		return nil, err
	}
	d.show(0, seen)
	return &Generator{l, d, seen}, nil
}

// Close frees the model.
func (g *Generator) Close() error { return g.d.Close() }

// start returns the tokens of a prompt; for an empty one, the token that documents begin
// after.
func (l *Language) start(prompt string) ([]int32, error) {
	if l.Prompt != nil {
		var err error
		if prompt, err = l.Prompt(prompt); err != nil {
			return nil, err
		}
	}
	ids := l.Tokenizer.Encode(nil, prompt)
	if len(ids) > 0 {
		return ids, nil
	}
	eos, ok := l.Tokenizer.Special(token.EOS)
	if !ok {
		return nil, fmt.Errorf("the prompt is empty and the tokenizer has no end-of-text token to start a document with")
	}
	return []int32{eos}, nil
}

// Generate continues prompt, writing text to w as it is generated, prompt included. It
// ends after a number of tokens or at the end of a document.
func (g *Generator) Generate(ctx context.Context, prompt string, tokens int, how Sampling, w io.Writer) (written int, err error) {
	defer token.Catch(&err)
	ids, err := g.l.start(prompt)
	if err != nil {
		return 0, err
	}
	ids = append(g.l.opening(ids, g.seen), ids...)
	if _, err := io.WriteString(w, prompt); err != nil {
		return 0, err
	}
	defer g.d.hold()()
	g.d.forget(0)
	eos, hasEOS := g.l.Tokenizer.Special(token.EOS)
	text, draw := g.l.Tokenizer.Stream(true), newSampler(how)
	positions, fresh := g.l.Positions(), ids
	for ; written < tokens; written++ {
		logits, err := g.feed(ctx, fresh[max(0, len(fresh)-positions):])
		if err != nil {
			return written, err
		}
		next := draw.next(logits)
		if hasEOS && next == eos {
			break
		}
		if _, err := io.WriteString(w, text.Next(next)); err != nil {
			return written, err
		}
		ids = append(ids, next)
		fresh = ids[len(ids)-1:]
		if g.d.known(0) == positions {
			// The window is full: continue with its second half.
			g.d.forget(0)
			fresh = ids[len(ids)-max(1, positions/2):]
		}
	}
	_, err = io.WriteString(w, text.Flush())
	return written, err
}

// feed appends ids to the text and returns the logits after the last, valid until the
// next run.
func (g *Generator) feed(ctx context.Context, ids []int32) (logits []float32, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := g.d.prefill(0, ids, nil)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		ids = ids[n:]
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := g.d.step([]fed{{0, id}}, func(_ int, y []float32) error {
			logits = y
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return logits, nil
}
