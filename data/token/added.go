package token

import (
	"strings"
	"unicode/utf8"
)

// An added token is found in the text before the model sees it.
type addedToken struct {
	id         int32
	content    string
	special    bool // markup, not text, such as the end of a document
	normalized bool // looked for in the normalized text, not in the original
	lstrip     bool // takes the white space to its left
	rstrip     bool // takes the white space to its right
	singleWord bool // only where it touches no word character
}

// addedSet finds added tokens: of all that begin leftmost, the longest.
type addedSet struct {
	trie   trie
	tokens []addedToken // by value in the trie
	lead   string       // the one byte that every token begins with, if there is one
}

func newAddedSet(tokens []addedToken, contents []string) *addedSet {
	if len(tokens) == 0 {
		return nil
	}
	s := &addedSet{tokens: tokens, trie: newTrie(), lead: contents[0][:1]}
	for i, content := range contents {
		s.trie.insert(content, int32(i))
		if content[0] != contents[0][0] {
			s.lead = ""
		}
	}
	return s
}

// next returns the first match in text[from:]; tok is nil if there is none.
func (s *addedSet) next(text string, from int) (start, end int, tok *addedToken) {
	for i := from; i < len(text); i++ {
		if s.lead != "" {
			n := strings.IndexByte(text[i:], s.lead[0])
			if n < 0 {
				break
			}
			i += n
		} else if !s.trie.first[text[i]] {
			continue
		}
		if v, n := s.trie.longest(text[i:]); n > 0 {
			return i, i + n, &s.tokens[v]
		}
	}
	return 0, 0, nil
}

// split calls each for the parts of text, in order: a part with a token is that token, a
// part without one is text.
func (s *addedSet) split(text string, ordinary bool, each func(start, end int, tok *addedToken)) {
	done := 0
	if s != nil {
		for from := 0; from < len(text); {
			start, end, tok := s.next(text, from)
			if tok == nil {
				break
			}
			from = end
			if ordinary && tok.special || tok.singleWord && (wordBefore(text[:start]) || wordAfter(text[end:])) {
				continue
			}
			if tok.lstrip {
				start = max(len(strings.TrimRightFunc(text[:start], isSpace)), done)
			}
			if tok.rstrip {
				end = len(text) - len(strings.TrimLeftFunc(text[end:], isSpace))
			}
			if done < start {
				each(done, start, nil)
			}
			each(start, end, tok)
			done = end
		}
	}
	if done < len(text) {
		each(done, len(text), nil)
	}
}

func wordBefore(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && classOf(r)&word != 0
}

func wordAfter(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && classOf(r)&word != 0
}
