package lm

import (
	"strings"

	"github.com/snug-ml/snug/data/token"
)

// stream turns tokens into text as they come. A token may end in the middle
// of a character; its text then waits for the tokens that complete it.
type stream struct {
	t   *token.Tokenizer
	ids []int32
	// ids[from:read] is text that was given out and that what follows may
	// depend on (a space between words, say).
	from, read int
}

// next is the text that id completes.
func (s *stream) next(id int32) string {
	s.ids = append(s.ids, id)
	text := s.t.Decode(s.ids[s.from:], true)
	if strings.HasSuffix(text, "\uFFFD") {
		return ""
	}
	return s.give(text)
}

// flush is what is left, complete or not.
func (s *stream) flush() string {
	if s.read == len(s.ids) {
		return ""
	}
	return s.give(s.t.Decode(s.ids[s.from:], true))
}

func (s *stream) give(text string) string {
	before := s.t.Decode(s.ids[s.from:s.read], true)
	s.from, s.read = s.read, len(s.ids)
	return strings.TrimPrefix(text, before)
}
