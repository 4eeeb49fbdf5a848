package dynamo

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
)

// textEncoder converts between texts and ids for the model.
type textEncoder struct {
	*token.Tokenizer
	first, last, pad int32 // markers before and after a text, and padding
	mask             int32 // replaces a token to be predicted; -1 if there is none
	pair             []int32
}

// newTextEncoder checks that a tokenizer has the markers that the model needs.
func newTextEncoder(t *token.Tokenizer, c *config.Config) (*textEncoder, error) {
	m := config.Of[Model](c)
	e := &textEncoder{Tokenizer: t, pad: int32(m.PadID), mask: -1}
	find := func(roles ...token.Role) (int32, bool) {
		for _, r := range roles {
			if id, ok := t.Special(r); ok {
				return id, true
			}
		}
		return 0, false
	}
	var ok bool
	if e.first, ok = find(token.CLS, token.BOS); !ok {
		return nil, fmt.Errorf("the tokenizer has no token for a whole text ([CLS], <s>)")
	}
	if e.last, ok = find(token.SEP, token.EOS); !ok {
		return nil, fmt.Errorf("the tokenizer has no token that ends a text ([SEP], </s>)")
	}
	if p, ok := find(token.PAD); ok && p != e.pad {
		return nil, fmt.Errorf("the tokenizer pads with %d, the model with %d: set model.pad_id", p, e.pad)
	}
	if id, ok := find(token.MASK); ok {
		e.mask = id
	}
	if v := t.VocabSize(); v > m.VocabSize {
		return nil, fmt.Errorf("the tokenizer has %d tokens, the model takes %d: set model.vocab_size to %d", v, m.VocabSize, v)
	}
	// RoBERTa separates two texts by two markers, BERT by one.
	e.pair = []int32{e.last}
	if m.Architecture == "roberta" {
		e.pair = []int32{e.last, e.last}
	}
	return e, nil
}

// ids returns at most most ids of a text and its markers.
func (e *textEncoder) ids(s string, most int) (ids []int32, cut bool) {
	ids = e.EncodeOrdinary([]int32{e.first}, []byte(s))
	if len(ids) > most-1 {
		ids, cut = ids[:most-1], true
	}
	return append(ids, e.last), cut
}

// question is a question together with the text that it is about.
type question struct {
	ids []int32
	// context is where the text's tokens start, and spans are the bytes of each of them.
	context int
	spans   []token.Span
	// start and end are the first and the last token of the answer. ok is false if it was cut off.
	start, end int
	ok, cut    bool
}

// question joins a question and its text, in at most most tokens. The question may take half of them, and the
// text is cut at its end.
func (e *textEncoder) question(x *text, most int) (question, error) {
	ids, _ := e.ids(x.Question, most/2)
	q := question{ids: append(ids, e.pair[1:]...)}
	q.context = len(q.ids)
	pieces, err := e.Prepare(x.Input)
	if err != nil {
		return q, fmt.Errorf("%s: %w", x.Where, err)
	}
	q.start, q.end = -1, -1
	// Spaces around an answer are in no token's span.
	answer := strings.TrimLeft(x.Output, " ")
	from := x.Start + len(x.Output) - len(answer)
	to := from + len(strings.TrimRight(answer, " "))
	for _, p := range pieces {
		if p.Added || e.IsSpecial(p.ID) {
			continue // markers written in a text are not special
		}
		if len(q.ids) == most-1 {
			q.cut = true
			break
		}
		if p.Span.Start < to && from < p.Span.End {
			if q.start < 0 {
				q.start = len(q.ids)
			}
			q.end = len(q.ids)
			q.ok = p.Span.End >= to
		}
		q.ids = append(q.ids, p.ID)
		q.spans = append(q.spans, p.Span)
	}
	q.ids = append(q.ids, e.last)
	return q, nil
}

// written returns a target text as tokens: what the decoder reads, and what comes after each of them.
func (e *textEncoder) written(s string, most int) (read, next []int32, cut bool) {
	ids := e.EncodeOrdinary(nil, []byte(s))
	if len(ids) > most-1 {
		ids, cut = ids[:most-1], true
	}
	read = append([]int32{e.first}, ids...)
	return read, append(ids, e.last), cut
}

// markers are the special tokens of a tokenizer trained here. The first three have the ids that RoBERTa uses.
var markers = []token.Special{
	{Content: "<s>", Roles: []token.Role{token.CLS, token.BOS}},
	{Content: "<pad>", Roles: []token.Role{token.PAD}},
	{Content: "</s>", Roles: []token.Role{token.SEP, token.EOS}},
	{Content: "<mask>", Roles: []token.Role{token.MASK}},
}

// tokenizer loads the configured tokenizer or the one of the model folder. Without either it trains one on
// the documents of phase 0, or reuses one trained earlier on the same documents. keep saves a newly trained
// tokenizer.
func tokenizer(ctx context.Context, c *config.Config, src data.Source, cache string, log func(string, ...any)) (t *token.Tokenizer, keep func() error, err error) {
	if dir := cmp.Or(c.Data.Tokenizer.Path, config.Of[Model](c).Folder); dir != "" {
		t, err = token.Load(dir)
		return t, func() error { return nil }, err
	}
	print, err := src.Fingerprint()
	if err != nil {
		return nil, nil, err
	}
	vocab := c.Data.Tokenizer.VocabSize
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %v", print, vocab, markers))
	dir := filepath.Join(cache, fmt.Sprintf("tokenizer-%x", sum[:8]))
	return token.LoadOrTrain(ctx, dir, data.Texts(src, 0), token.TrainOptions{VocabSize: vocab, Specials: markers}, log)
}
