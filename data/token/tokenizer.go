package token

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// A model turns one word into symbols.
type model interface {
	// tokenize appends the symbols of word, which is not empty.
	tokenize(dst []symbol, word string) []symbol
}

// A normalizer rewrites text before it is split into words. Its input is UTF-8.
type normalizer interface {
	normalize(stretch) stretch
}

// A preTokenizer splits text into words.
type preTokenizer interface {
	// split appends the words of the stretch, none of them empty.
	split(dst []stretch, in stretch) []stretch
}

// A decoder rewrites tokens so that, written one after the other, they are the text.
type decoder interface {
	decode(tokens []string) []string
}

// A Tokenizer turns text into ids and back.
type Tokenizer struct {
	ids    map[string]int32 // every token of the model and every added token
	tokens []string         // id -> token; unused ids are "" and not in known
	known  []bool

	added      map[int32]*addedToken
	before     *addedSet // looked for in the original text
	after      *addedSet // looked for in the normalized text
	norm       normalizer
	pre        preTokenizer
	model      model
	post       postProcessor
	decoder    decoder
	truncation *truncation
	padding    *padding
	roles      map[Role]int32

	// lossless: bytes go to the model as they are, whether they are UTF-8 or not.
	lossless bool
	// scan, with prefixSpace, does what pre does when the model takes raw bytes; nil: go through pre.
	scan        scanner
	prefixSpace bool
	// tracked: a component needs to know where in the input a stretch begins.
	tracked bool

	cache   *wordCache
	workers sync.Pool // of *worker

	save func(dir string) error
}

// worker holds the buffers of one call.
type worker struct {
	symbols   []symbol
	stretches []stretch
	spare     []byte
}

// VocabSize is the number of rows an embedding needs: the highest id plus one.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// ID returns the id of a token by its spelling in the vocabulary, which for byte-level
// tokenizers is not its text.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns the spelling of an id in the vocabulary.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.tokens) || !t.known[id] {
		return "", false
	}
	return t.tokens[id], true
}

// IsSpecial reports whether the id is markup, such as the end of a document, and not text.
func (t *Tokenizer) IsSpecial(id int32) bool {
	a := t.added[id]
	return a != nil && a.special
}

// Encode appends the ids of text to dst. Added tokens that occur in the text, special ones too,
// become their ids; nothing is put around the text (see Prepare for that) and nothing is
// truncated. Byte-level tokenizers keep bytes that are not UTF-8; others see them as U+FFFD.
func (t *Tokenizer) Encode(dst []int32, text string) []int32 {
	return t.encode(dst, text, false)
}

// EncodeBytes is Encode for bytes.
func (t *Tokenizer) EncodeBytes(dst []int32, text []byte) []int32 {
	return t.encode(dst, unsafe.String(unsafe.SliceData(text), len(text)), false)
}

// EncodeOrdinary is EncodeBytes for text that comes from outside: special tokens written in it
// stay text, so that writing one cannot end a document or change a role.
func (t *Tokenizer) EncodeOrdinary(dst []int32, text []byte) []int32 {
	return t.encode(dst, unsafe.String(unsafe.SliceData(text), len(text)), true)
}

func (t *Tokenizer) encode(dst []int32, text string, ordinary bool) []int32 {
	w := t.worker()
	defer t.workers.Put(w)
	t.parts(newStretch(text, t.tracked), ordinary, func(part stretch) {
		switch {
		case part.tok != nil:
			dst = append(dst, part.tok.id)
		case t.scan != nil:
			dst = t.encodeScanned(dst, w, part.s)
		default:
			for _, word := range t.words(w, part) {
				dst = t.encodeWord(dst, w, word.s)
			}
		}
	})
	return dst
}

// worker returns the buffers for one call; they are returned to t.workers.
func (t *Tokenizer) worker() *worker {
	if w, ok := t.workers.Get().(*worker); ok {
		return w
	}
	return &worker{}
}

// encodeScanned encodes text with the scanner. Text that does not begin with a space may
// need one inserted before it.
func (t *Tokenizer) encodeScanned(dst []int32, w *worker, text string) []int32 {
	if t.prefixSpace && text[0] != ' ' {
		w.spare = append(append(w.spare[:0], ' '), text...)
		text = unsafe.String(unsafe.SliceData(w.spare), len(w.spare))
	}
	for i := 0; i < len(text); {
		end := t.scan(text, i)
		dst = t.encodeWord(dst, w, text[i:end])
		i = end
	}
	return dst
}

// encodeWord appends the ids of one word.
func (t *Tokenizer) encodeWord(dst []int32, w *worker, word string) []int32 {
	if len(word) > longestWord {
		w.symbols = t.model.tokenize(w.symbols[:0], word)
		for _, s := range w.symbols {
			dst = append(dst, s.id)
		}
		return dst
	}
	slot := t.cache.slot(word)
	if hit := slot.Load(); hit != nil && hit.word == word {
		return append(dst, hit.ids...)
	}
	w.symbols = t.model.tokenize(w.symbols[:0], word)
	n := len(dst)
	for _, s := range w.symbols {
		dst = append(dst, s.id)
	}
	t.cache.remember(slot, word, dst[n:])
	return dst
}

// parts calls each for the added tokens in the text and for the normalized text between them, in order.
func (t *Tokenizer) parts(text stretch, ordinary bool, each func(stretch)) {
	if !t.lossless {
		text = text.valid()
	}
	t.before.split(text.s, ordinary, func(start, end int, tok *addedToken) {
		part := text.cut(start, end)
		if tok != nil {
			part.tok = tok
			each(part)
			return
		}
		if t.norm != nil {
			part = t.norm.normalize(part)
		}
		t.after.split(part.s, ordinary, func(start, end int, tok *addedToken) {
			piece := part.cut(start, end)
			piece.tok = tok
			each(piece)
		})
	})
}

// words splits a part into words, which are valid until the next call.
func (t *Tokenizer) words(w *worker, part stretch) []stretch {
	w.stretches = w.stretches[:0]
	if t.pre == nil {
		w.stretches = append(w.stretches, part)
	} else {
		w.stretches = t.pre.split(w.stretches, part)
	}
	return w.stretches
}

// Decode returns the text of ids; with skipSpecial, without the special tokens. Ids without a token
// are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	tokens := make([]string, 0, len(ids))
	for _, id := range ids {
		if token, ok := t.Token(id); ok && !(skipSpecial && t.IsSpecial(id)) {
			tokens = append(tokens, token)
		}
	}
	if t.decoder == nil {
		return strings.Join(tokens, " ")
	}
	return strings.Join(t.decoder.decode(tokens), "")
}

// DecodeBytes appends the decoded bytes to dst. With a byte-level tokenizer these are exactly the
// bytes that were encoded; Decode replaces those that are not UTF-8 by U+FFFD.
func (t *Tokenizer) DecodeBytes(dst []byte, ids []int32) []byte {
	if !t.isByteLevel() {
		return append(dst, t.Decode(ids, false)...)
	}
	for _, id := range ids {
		if token, ok := t.Token(id); ok {
			dst = appendSpelled(dst, token)
		}
	}
	return dst
}

// Save writes the tokenizer to a folder: tokenizer.json, and tokenizer_config.json with
// the roles of its special tokens.
func (t *Tokenizer) Save(dir string) error {
	if err := t.save(dir); err != nil {
		return fmt.Errorf("save tokenizer: %w", err)
	}
	return nil
}

// Specials returns the special tokens in the order of their ids.
func (t *Tokenizer) Specials() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(t.added)) {
		if t.added[id].special {
			out = append(out, t.added[id].content)
		}
	}
	return out
}
