package moderation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
)

// textEncoder encodes texts as ids for the model.
type textEncoder struct {
	*token.Tokenizer
	first, last, pad int32 // markers before and after a text, and padding
	longest          int   // maximum number of ids of a text, including the markers
}

// newTextEncoder checks that a tokenizer has the markers that the model needs.
func newTextEncoder(t *token.Tokenizer, c *config.Config) (*textEncoder, error) {
	m := config.Of[Model](c)
	e := &textEncoder{Tokenizer: t, longest: c.Data.SeqLen, pad: int32(m.PadID)}
	var ok bool
	if e.first, ok = special(t, token.CLS, token.BOS); !ok {
		return nil, fmt.Errorf("the tokenizer has no token for a whole text ([CLS], <s>)")
	}
	if e.last, ok = special(t, token.SEP, token.EOS); !ok {
		return nil, fmt.Errorf("the tokenizer has no token that ends a text ([SEP], </s>)")
	}
	if p, ok := t.Special(token.PAD); ok && p != e.pad {
		return nil, fmt.Errorf("the tokenizer pads with %d, the model with %d: set model.pad_id", p, e.pad)
	}
	if v := t.VocabSize(); v > m.VocabSize {
		return nil, fmt.Errorf("the tokenizer has %d tokens, the model takes %d: set model.vocab_size to %d", v, m.VocabSize, v)
	}
	return e, nil
}

func special(t *token.Tokenizer, roles ...token.Role) (int32, bool) {
	for _, r := range roles {
		if id, ok := t.Special(r); ok {
			return id, true
		}
	}
	return 0, false
}

// ids appends the ids of a text between its markers. It cuts a longer text, and treats markers written in the
// text as text.
func (e *textEncoder) ids(dst []int32, text string) (ids []int32, cut bool) {
	dst = append(dst, e.first)
	start := len(dst)
	dst = e.EncodeOrdinary(dst, []byte(text))
	if most := start + e.longest - markers; len(dst) > most {
		dst, cut = dst[:most], true
	}
	return append(dst, e.last), cut
}

// ownMarkers are the special tokens of a tokenizer trained here, with the ids that RoBERTa uses.
var ownMarkers = []token.Special{
	{Content: "<s>", Roles: []token.Role{token.CLS, token.BOS}},
	{Content: "<pad>", Roles: []token.Role{token.PAD}},
	{Content: "</s>", Roles: []token.Role{token.SEP, token.EOS}},
}

// tokenizer loads the configured tokenizer or the one of the model folder. Without either it trains one on
// the training texts, or reuses one trained earlier on the same texts. keep saves a newly trained tokenizer.
func tokenizer(ctx context.Context, c *config.Config, train []sample, cache string, log func(string, ...any)) (own *token.Tokenizer, keep func() error, err error) {
	nothing := func() error { return nil }
	t := &c.Data.Tokenizer
	switch folder := config.Of[Model](c).Folder; {
	case t.Path != "":
		own, err = token.Load(t.Path)
		return own, nothing, err
	case folder != "":
		own, err = token.LoadFolder(folder)
		return own, nothing, err
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d\n", t.VocabSize) // a hash never fails to write
	for _, x := range train {
		_, _ = fmt.Fprintf(h, "%q\n", x.text)
	}
	dir := filepath.Join(cache, "tokenizer-"+hex.EncodeToString(h.Sum(nil)[:8]))
	return token.LoadOrTrain(ctx, dir, func(yield func([]byte, error) bool) {
		for _, x := range train {
			if !yield([]byte(x.text), nil) {
				return
			}
		}
	}, token.TrainOptions{VocabSize: t.VocabSize, Specials: ownMarkers}, log)
}
