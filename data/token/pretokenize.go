package token

import (
	"slices"
	"strings"
	"unicode/utf8"
)

func readPreTokenizer(n node) preTokenizer {
	if n.isNull() {
		return nil
	}
	o := n.object()
	var p preTokenizer
	switch kind := o.get("type"); kind.str() {
	case "Sequence":
		var all preTokenizers
		for _, item := range o.get("pretokenizers").parts() {
			all = append(all, readPreTokenizer(item))
		}
		p = all
	case "ByteLevel":
		p = &byteLevel{
			prefixSpace: o.get("add_prefix_space").boolOr(true),
			words:       o.get("use_regex").boolOr(true),
		}
		o.get("trim_offsets").boolOr(true) // only for the post-processor of the same name
	case "Whitespace":
		p = cutter{find: wordRuns{}, how: removed, invert: true}
	case "WhitespaceSplit":
		p = cutter{find: singles(space), how: removed}
	case "BertPreTokenizer":
		p = preTokenizers{cutter{find: singles(space), how: removed}, cutter{find: singles(punctuation), how: isolated}}
	case "Punctuation":
		p = cutter{find: singles(punctuation), how: readBehavior(o.get("behavior"), isolated)}
	case "Digits":
		how := contiguous
		if o.get("individual_digits").boolOr(false) {
			how = isolated
		}
		p = cutter{find: singles(digit), how: how}
	case "CharDelimiterSplit":
		p = cutter{find: literal(string(o.get("delimiter").char())), how: removed}
	case "Split":
		p = cutter{
			find:   readPattern(o.get("pattern")),
			how:    readBehavior(o.get("behavior"), ""),
			invert: o.get("invert").boolOr(false),
		}
	case "Metaspace":
		p = readMetaspace(o)
	default:
		kind.fail("pre-tokenizer %s is not supported", kind.shown())
	}
	o.done()
	return p
}

// A behavior is what happens to the text that a pattern matches.
type behavior string

const (
	removed        behavior = "Removed"            // it is dropped
	isolated       behavior = "Isolated"           // each match is a word
	contiguous     behavior = "Contiguous"         // matches that touch are one word
	mergedPrevious behavior = "MergedWithPrevious" // it is joined to the text before it
	mergedNext     behavior = "MergedWithNext"     // it is joined to the text after it
)

func readBehavior(n node, usual behavior) behavior {
	if n.isNull() && usual != "" {
		return usual
	}
	switch b := behavior(n.str()); b {
	case removed, isolated, contiguous, mergedPrevious, mergedNext:
		return b
	}
	n.fail("expected Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext, found %s", n.shown())
	return isolated
}

// preTokenizers cut one after the other, each the words of the previous one.
type preTokenizers []preTokenizer

func (p preTokenizers) split(dst []stretch, in stretch) []stretch {
	words := []stretch{in}
	for _, q := range p {
		var next []stretch
		for _, word := range words {
			next = q.split(next, word)
		}
		size := 0
		for _, word := range next {
			size += len(word.s)
		}
		allow(size, in.most)
		words = next
	}
	return append(dst, words...)
}

// cutter splits where a pattern matches or, inverted, where it does not.
type cutter struct {
	find   pattern
	how    behavior
	invert bool
}

// A section is a match or the text between two matches.
type section struct {
	Span
	match bool
}

func (p cutter) sections(s string) []section {
	found := p.find.find(s)
	out := make([]section, 0, 2*len(found)+1)
	done := 0
	for _, m := range found {
		if done < m.Start {
			out = append(out, section{Span{done, m.Start}, p.invert})
		}
		out = append(out, section{m, !p.invert})
		done = m.End
	}
	if done < len(s) {
		out = append(out, section{Span{done, len(s)}, p.invert})
	}
	return out
}

func (p cutter) split(dst []stretch, in stretch) []stretch {
	all := p.sections(in.s)
	if len(all) == 1 && !all[0].match {
		return append(dst, in)
	}
	kept := all[:0]
	previous := false // whether the section before was a match
	switch p.how {
	case removed:
		for _, sec := range all {
			if !sec.match {
				kept = append(kept, sec)
			}
		}
	case isolated:
		kept = all
	case contiguous:
		for _, sec := range all {
			if n := len(kept); n > 0 && sec.match == previous {
				kept[n-1].End = sec.End
			} else {
				kept = append(kept, sec)
			}
			previous = sec.match
		}
	case mergedPrevious:
		for _, sec := range all {
			if n := len(kept); n > 0 && sec.match && !previous {
				kept[n-1].End = sec.End
			} else {
				kept = append(kept, sec)
			}
			previous = sec.match
		}
	case mergedNext: // mergedPrevious from the other end
		slices.Reverse(all)
		for _, sec := range all {
			if n := len(kept); n > 0 && sec.match && !previous {
				kept[n-1].Start = sec.Start
			} else {
				kept = append(kept, sec)
			}
			previous = sec.match
		}
		slices.Reverse(kept)
	}
	for _, sec := range kept {
		if sec.Start < sec.End {
			dst = append(dst, in.cut(sec.Start, sec.End))
		}
	}
	return dst
}

// singles matches each character of a class.
type singles class

func (p singles) find(s string) (out []Span) {
	for i := 0; i < len(s); {
		c, n := classAt(s, i)
		if c&class(p) != 0 {
			out = append(out, Span{i, i + n})
		}
		i += n
	}
	return out
}

// wordRuns matches \w+|[^\w\s]+.
type wordRuns struct{}

func (wordRuns) find(s string) (out []Span) {
	for i := 0; i < len(s); {
		c, n := classAt(s, i)
		if c&(word|space) == space {
			i += n
			continue
		}
		end := i + n
		for end < len(s) {
			next, n := classAt(s, end)
			if next&word != c&word || next&(word|space) == space {
				break
			}
			end += n
		}
		out = append(out, Span{i, end})
		i = end
	}
	return out
}

// metaspace spells spaces as another character, puts one before the text, and cuts
// before each (SentencePiece).
type metaspace struct {
	mark   string
	scheme string // of the one before the text: always, first (only at the start of the input) or never
	words  bool   // cuts
}

func readMetaspace(o object) preTokenizer {
	p := metaspace{
		mark:   string(o.get("replacement").char()),
		scheme: readPrependScheme(o),
		words:  o.get("split").boolOr(true),
	}
	return p
}

// readPrependScheme reads prepend_scheme and the older add_prefix_space of a Metaspace.
func readPrependScheme(o object) string {
	n := o.get("prepend_scheme")
	scheme := n.strOr("always")
	switch scheme {
	case "always", "first", "never":
	default:
		n.fail("expected always, first or never, found %s", n.shown())
	}
	if old := o.get("add_prefix_space"); !old.boolOr(true) {
		if !n.isNull() && scheme != "never" {
			old.fail("says false, but prepend_scheme says %s", scheme)
		}
		scheme = "never"
	}
	o.get("str_rep").strOr("") // the replacement once more, in older files
	return scheme
}

func (p metaspace) split(dst []stretch, in stretch) []stretch {
	in = replace{literal(" "), p.mark}.normalize(in)
	if p.scheme == "always" || p.scheme == "first" && in.base == 0 {
		if !strings.HasPrefix(in.s, p.mark) {
			in = prepend(in, p.mark)
		}
	}
	if !p.words {
		return append(dst, in)
	}
	return cutter{find: literal(p.mark), how: mergedNext}.split(dst, in)
}

// byteLevel cuts by GPT-2's pattern and spells each byte as one character.
type byteLevel struct {
	prefixSpace bool // puts a space before text that begins with none
	words       bool // cuts; otherwise it only spells
	raw         bool // does not spell, for a model that takes bytes
}

func (p *byteLevel) split(dst []stretch, in stretch) []stretch {
	if p.prefixSpace && in.s[0] != ' ' {
		in = prepend(in, " ")
	}
	if !p.words {
		return append(dst, p.spell(in))
	}
	for i := 0; i < len(in.s); {
		end := scanGPT2(in.s, i)
		dst = append(dst, p.spell(in.cut(i, end)))
		i = end
	}
	return dst
}

func (p *byteLevel) spell(in stretch) stretch {
	if p.raw {
		return in
	}
	w := rewrite(in)
	for i := 0; i < len(in.s); {
		_, n := utf8.DecodeRuneInString(in.s[i:])
		for j := range n {
			w.putRune(byteRune[in.s[i+j]], i)
		}
		i += n
	}
	return w.done()
}

// prepend puts s, which counts as part of the first character, before the stretch.
func prepend(in stretch, s string) stretch {
	w := rewrite(in)
	w.put(s, 0)
	w.keep(0, len(in.s))
	return w.done()
}
