package token

import (
	"strings"
	"unicode/utf8"
)

// A Stream decodes ids one by one as a model writes them. Its outputs, put together, are
// what Decode returns for all ids; it never returns part of a character. With a
// byte-level tokenizer only unfinished characters wait; with others the text of a token
// waits for the next token, and that of byte tokens for the end of their run, since only
// then is it certain.
type Stream struct {
	t           *Tokenizer
	skipSpecial bool

	bytes []byte // of a byte-level tokenizer: an unfinished character

	// For other tokenizers: the last ids, and the length of their text given so far.
	window []int32
	given  int
}

// Stream starts a text. With skipSpecial, special tokens have no text.
func (t *Tokenizer) Stream(skipSpecial bool) *Stream {
	return &Stream{t: t, skipSpecial: skipSpecial}
}

// Next takes an id and returns the text that is now certain.
func (s *Stream) Next(id int32) string {
	token, ok := s.t.Token(id)
	if !ok || s.skipSpecial && s.t.IsSpecial(id) {
		return ""
	}
	if s.t.isByteLevel() {
		s.bytes = appendSpelled(s.bytes, token)
		return s.whole()
	}
	// A run of byte tokens is text only as a whole.
	said := len(s.window)
	for said > 0 && s.t.isFallback(id) && s.t.isFallback(s.window[said-1]) {
		said--
	}
	old := s.t.Decode(s.window[:said], false)
	if _, ok := s.t.decoder.(phobertDecoder); ok {
		old = strings.TrimSuffix(old, wordGoes) // the word continues
	}
	s.window = append(s.window, id)
	text := s.t.Decode(s.window, false)
	sure := commonPrefix(old, text)
	if sure <= s.given {
		return ""
	}
	out := text[s.given:sure]
	s.given = sure
	if n := len(s.window) - 1; n > 1 && n == said && sure == len(old) {
		// Everything before the new id has been returned. The id before it is enough context, if it
		// gives the same text with less before it.
		context := s.t.Decode(s.window[n-1:n], false)
		if short := s.t.Decode(s.window[n-1:], false); strings.HasPrefix(short, context) && short[len(context):] == text[sure:] {
			s.window = append(s.window[:0], s.window[n-1:]...)
			s.given = len(context)
		}
	}
	return out
}

// whole returns the characters that are complete, or can never be.
func (s *Stream) whole() string {
	n := 0
	for n < len(s.bytes) && utf8.FullRune(s.bytes[n:]) {
		_, size := utf8.DecodeRune(s.bytes[n:])
		n += size
	}
	out := lossy(string(s.bytes[:n]))
	s.bytes = append(s.bytes[:0], s.bytes[n:]...)
	return out
}

// Flush returns the text that is left when no id follows.
func (s *Stream) Flush() string {
	out := lossy(string(s.bytes)) + s.t.Decode(s.window, false)[s.given:]
	*s = Stream{t: s.t, skipSpecial: s.skipSpecial}
	return out
}

// commonPrefix returns the length of the longest start that two texts share, in whole
// characters.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) || n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

func (t *Tokenizer) isByteLevel() bool {
	_, ok := t.decoder.(byteLevelDecoder)
	return ok
}

// TokenBytes returns the bytes that an id adds to a text, if it does not begin the text.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	token, ok := t.Token(id)
	if !ok {
		return nil
	}
	if t.isByteLevel() {
		return appendSpelled(nil, token)
	}
	if t.isFallback(id) {
		b, _ := fallbackByte(token)
		return []byte{b}
	}
	once, twice := t.Decode([]int32{id}, false), t.Decode([]int32{id, id}, false)
	return []byte(twice[commonPrefix(once, twice):])
}

// isFallback reports whether the id belongs to a token <0x00> to <0xFF> that the decoder turns
// into a byte.
func (t *Tokenizer) isFallback(id int32) bool {
	token, _ := t.Token(id)
	if _, ok := fallbackByte(token); !ok {
		return false
	}
	all, ok := t.decoder.(decoders)
	if !ok {
		all = decoders{t.decoder}
	}
	for _, d := range all {
		if _, ok := d.(byteFallbackDecoder); ok {
			return true
		}
	}
	return false
}
