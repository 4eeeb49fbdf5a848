package token

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// phobert is PhoBERT's BPE (Nguyen and Nguyen 2020), made with fastBPE: merges end
// words with "</w>", and the vocabulary marks the pieces that do not with "@@". Merges
// may make pieces that the vocabulary does not have; these are unknown. Text is
// expected to be cut into Vietnamese words by the caller, if at all: "phòng_trọ".
type phobert struct {
	ids   map[string]int32
	parts map[string]int32 // numbers of the symbols that occur in merges, with their "</w>"
	pairs pairTable        // of these numbers
	into  []int32
	unk   int32
}

const (
	wordEnd   = "</w>"
	wordGoes  = "@@"
	maxPieces = 1 << 24
)

// newPhoBERT makes the tokenizer of the contents of vocab.txt and bpe.codes.
func newPhoBERT(vocabName, vocab, codesName, codes string) (*Tokenizer, error) {
	m := &phobert{ids: map[string]int32{}, parts: map[string]int32{}, unk: 3}
	for i, token := range [...]string{"<s>", "<pad>", "</s>", "<unk>"} {
		m.ids[token] = int32(i)
	}
	err := eachLine(vocabName, vocab, func(line string) error {
		line = strings.TrimFunc(line, pythonSpace)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return fmt.Errorf("expected a token and its count, found %.40q", line)
		}
		if _, ok := m.ids[line[:i]]; ok {
			return fmt.Errorf("token %q is given twice", line[:i])
		}
		m.ids[line[:i]] = int32(len(m.ids))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, ok := m.ids["<mask>"]; !ok {
		m.ids["<mask>"] = int32(len(m.ids))
	}
	if err := m.readCodes(codesName, codes); err != nil {
		return nil, err
	}
	t := newTokenizer()
	r := &reader{name: vocabName}
	if t.setTokens(node{reader: r, path: "vocabulary"}, m.ids); r.err != nil {
		return nil, r.err
	}
	var added []addedToken
	for _, token := range [...]string{"<s>", "<pad>", "</s>", "<unk>", "<mask>"} {
		added = append(added, addedToken{id: m.ids[token], content: token, special: true})
	}
	t.setAdded(added)
	t.model = m
	t.pre = phobertWords{}
	t.decoder = phobertDecoder{}
	t.post = template{
		{put(0, 0), place(0, 0), put(2, 0)},
		{put(0, 0), place(0, 0), put(2, 0), put(2, 0), place(1, 0), put(2, 0)},
	}
	t.guessRoles()
	t.save = func(dir string) error {
		for _, f := range [...]struct{ name, content string }{{"vocab.txt", vocab}, {"bpe.codes", codes}} {
			if err := os.WriteFile(filepath.Join(dir, f.name), []byte(f.content), 0o644); err != nil {
				return err
			}
		}
		return t.saveConfig(dir, "PhobertTokenizer")
	}
	return t, nil
}

// readCodes reads the merges, the best ranked first: two symbols and how often they were seen.
func (m *phobert) readCodes(name, codes string) error {
	if codes != "" && !strings.HasSuffix(codes, "\n") {
		return fmt.Errorf("%s: the last line has no end, so the file may be cut off", name)
	}
	var merges [][2]string
	err := eachLine(name, codes, func(line string) error {
		f := strings.FieldsFunc(line, pythonSpace)
		if len(f) != 3 {
			return fmt.Errorf("expected two symbols and their count, found %.40q", line)
		}
		merges = append(merges, [2]string{f[0], f[1]})
		return nil
	})
	if err != nil {
		return err
	}
	number := func(s string) int32 {
		n, ok := m.parts[s]
		if !ok {
			n = int32(len(m.parts))
			m.parts[s] = n
		}
		return n
	}
	m.pairs = newPairTable(len(merges))
	for i, merge := range merges {
		m.pairs.set(number(merge[0]), number(merge[1]), uint32(i))
		m.into = append(m.into, number(merge[0]+merge[1]))
	}
	return nil
}

// eachLine calls f for each line, and adds the line to an error.
func eachLine(name, content string, f func(line string) error) error {
	if !utf8.ValidString(content) {
		return fmt.Errorf("%s: not UTF-8", name)
	}
	content = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(content)
	n := 0
	for line := range strings.Lines(content) {
		if n++; n > maxPieces {
			return fmt.Errorf("%s: more than %d lines", name, maxPieces)
		}
		if err := f(strings.TrimSuffix(line, "\n")); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	return nil
}

// pythonSpace reports white space as Python's str methods and regular expressions see it:
// with four more ASCII separators.
func pythonSpace(r rune) bool { return isSpace(r) || 0x1C <= r && r <= 0x1F }

// phobertWords cuts into \S+\n?.
type phobertWords struct{}

func (phobertWords) split(dst []stretch, in stretch) []stretch {
	for i := 0; i < len(in.s); {
		r, n := utf8.DecodeRuneInString(in.s[i:])
		if pythonSpace(r) {
			i += n
			continue
		}
		end := len(in.s)
		if n := strings.IndexFunc(in.s[i:], pythonSpace); n >= 0 {
			end = i + n
			if in.s[end] == '\n' {
				end++
			}
		}
		dst = append(dst, in.cut(i, end))
		i = end
	}
	return dst
}

// A phobertPart is a symbol of a word: its bytes, and its number if it occurs in merges.
type phobertPart struct{ start, end, number int32 }

func (m *phobert) tokenize(dst []symbol, word string) []symbol {
	// The last symbol is followed by wordEnd; a word of one character is looked up as it is, with
	// the same result.
	ended := word + wordEnd
	var parts []phobertPart
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		end := i + n
		if end == len(word) {
			end = len(ended)
		}
		number, ok := m.parts[ended[i:end]]
		if !ok {
			number = -1
		}
		parts = append(parts, phobertPart{int32(i), int32(end), number})
		i += n
	}
	for {
		// All occurrences of the best pair are merged before the next one is looked for.
		best, pair := uint32(noRank), [2]int32{}
		for i := range len(parts) - 1 {
			if r := m.pairs.rank(parts[i].number, parts[i+1].number); r < best {
				best, pair = r, [2]int32{parts[i].number, parts[i+1].number}
			}
		}
		if best == noRank {
			break
		}
		kept := parts[:0]
		for i := 0; i < len(parts); i++ {
			p := parts[i]
			if i+1 < len(parts) && p.number == pair[0] && parts[i+1].number == pair[1] {
				p.end, p.number = parts[i+1].end, m.into[best]
				i++
			}
			kept = append(kept, p)
		}
		parts = kept
	}
	for i, p := range parts {
		token := ended[p.start:p.end] + wordGoes
		size := p.end - p.start
		if i == len(parts)-1 {
			size -= int32(len(wordEnd))
			token = word[p.start:]
		}
		id, ok := m.ids[token]
		if !ok {
			id = m.unk
		}
		dst = append(dst, symbol{id, size})
	}
	return dst
}

// phobertDecoder joins the pieces of words again, with a space between words.
type phobertDecoder struct{}

func (phobertDecoder) decode(tokens []string) []string {
	s := strings.ReplaceAll(strings.Join(tokens, " "), wordGoes+" ", "")
	return []string{strings.TrimFunc(s, pythonSpace)}
}
