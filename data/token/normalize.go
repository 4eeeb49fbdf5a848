package token

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

func readNormalizer(n node) normalizer {
	if n.isNull() {
		return nil
	}
	o := n.object()
	var f normalizer
	switch kind := o.get("type"); kind.str() {
	case "Sequence":
		var all normalizers
		for _, item := range o.get("normalizers").parts() {
			all = append(all, readNormalizer(item))
		}
		f = all
	case "NFC":
		f = unicodeForm{canonical, true}
	case "NFD":
		f = unicodeForm{canonical, false}
	case "NFKC":
		f = unicodeForm{compatibility, true}
	case "NFKD":
		f = unicodeForm{compatibility, false}
	case "Lowercase":
		f = lowercase{}
	case "Strip":
		f = strip{o.get("strip_left").bool(), o.get("strip_right").bool()}
	case "StripAccents":
		f = without(mark)
	case "Nmt":
		f = nmt{}
	case "ByteLevel":
		f = &byteLevel{}
	case "Prepend":
		f = prefix(o.get("prepend").str())
	case "Replace":
		f = replace{readPattern(o.get("pattern")), o.get("content").str()}
	case "Precompiled":
		text := o.get("precompiled_charsmap")
		raw, err := base64.StdEncoding.DecodeString(text.str())
		if err != nil {
			text.fail("not base64: %v", err)
			break
		}
		m, err := newCharsMap(raw)
		if err != nil {
			text.fail("%v", err)
			break
		}
		f = m
	case "BertNormalizer":
		b := bertNormalizer{
			clean:   o.get("clean_text").boolOr(true),
			chinese: o.get("handle_chinese_chars").boolOr(true),
			lower:   o.get("lowercase").boolOr(true),
		}
		b.accents = o.get("strip_accents").boolOr(b.lower)
		f = b
	default:
		kind.fail("normalizer %s is not supported", kind.shown())
	}
	o.done()
	return f
}

// normalizers apply one after the other.
type normalizers []normalizer

func (f normalizers) normalize(in stretch) stretch {
	for _, g := range f {
		in = g.normalize(in)
	}
	return in
}

// eachRune rewrites the stretch character by character: put writes what replaces r, which is
// in.s[i:i+n].
func eachRune(in stretch, put func(w *rewriter, r rune, i, n int)) stretch {
	w := rewrite(in)
	for i := 0; i < len(in.s); {
		r, n := utf8.DecodeRuneInString(in.s[i:])
		put(w, r, i, n)
		i += n
	}
	return w.done()
}

// lowercase applies full lower case to each character on its own.
type lowercase struct{}

func (lowercase) normalize(in stretch) stretch {
	if !hasUpper(in.s) {
		return in
	}
	return eachRune(in, func(w *rewriter, r rune, i, n int) {
		switch low := lowerOf(r); {
		case r == 'İ':
			w.put("i\u0307", i)
		case low != r:
			w.putRune(low, i)
		default:
			w.keep(i, i+n)
		}
	})
}

// hasUpper is false for text that is ASCII in lower case.
func hasUpper(s string) bool {
	for i := range len(s) {
		if b := s[i]; b >= utf8.RuneSelf || 'A' <= b && b <= 'Z' {
			return true
		}
	}
	return false
}

// lowerOf is the lower case of r, if it is one character.
func lowerOf(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}
	if low, ok := chars().lower[r]; ok {
		return low
	}
	return r
}

// strip removes white space from the ends.
type strip struct{ left, right bool }

func (f strip) normalize(in stretch) stretch {
	start, end := 0, len(in.s)
	if f.left {
		start = end - len(strings.TrimLeftFunc(in.s, isSpace))
	}
	if f.right {
		end = max(start, len(strings.TrimRightFunc(in.s, isSpace)))
	}
	if start == 0 && end == len(in.s) {
		return in
	}
	w := rewrite(in)
	w.keep(start, end)
	return w.done()
}

// without removes the characters of a class.
type without class

func (f without) normalize(in stretch) stretch {
	if isASCII(in.s) {
		return in // only marks are removed, and none of them is ASCII
	}
	return eachRune(in, func(w *rewriter, r rune, i, n int) {
		if classOf(r)&class(f) == 0 {
			w.keep(i, i+n)
		}
	})
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// nmt is SentencePiece's nmt rule set without its normalization: control characters are removed,
// and odd spaces become plain ones.
type nmt struct{}

func (nmt) normalize(in stretch) stretch {
	return eachRune(in, func(w *rewriter, r rune, i, n int) {
		switch {
		case r == 0 || r > 0xFFFD:
			w.keep(i, i+n)
		case r <= 8, r == 0x0B, 0x0E <= r && r <= 0x1F, r == 0x7F, r == 0x8F, r == 0x9F:
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, 0x200B <= r && r <= 0x200F, r == 0x2028, r == 0x2029,
			r == 0x2581, r == 0xFEFF, r == 0xFFFD:
			w.put(" ", i)
		default:
			w.keep(i, i+n)
		}
	})
}

// normalize makes byteLevel a normalizer that spells bytes.
func (p *byteLevel) normalize(in stretch) stretch { return p.spell(in) }

// prefix is inserted before text that is not empty.
type prefix string

func (f prefix) normalize(in stretch) stretch {
	if in.s == "" {
		return in
	}
	return prepend(in, string(f))
}

// replace replaces every match by content.
type replace struct {
	pattern pattern
	content string
}

func (f replace) normalize(in stretch) stretch {
	if in.s == "" {
		return in // not even an empty match is looked for
	}
	matches := f.pattern.find(in.s)
	if len(matches) == 0 {
		return in
	}
	w := rewrite(in)
	done := 0
	for _, m := range matches {
		w.keep(done, m.Start)
		w.put(f.content, m.End-1)
		done = m.End
	}
	w.keep(done, len(in.s))
	return w.done()
}

// bertNormalizer is the clean-up of BERT's basic tokenizer (Devlin et al. 2018, tokenization.py).
type bertNormalizer struct{ clean, chinese, accents, lower bool }

func (f bertNormalizer) normalize(in stretch) stretch {
	if f.clean {
		in = cleanText(in)
	}
	if f.chinese && !isASCII(in.s) {
		in = eachRune(in, func(w *rewriter, r rune, i, n int) {
			if !isChinese(r) {
				w.keep(i, i+n)
				return
			}
			w.put(" ", i)
			w.keep(i, i+n)
			w.put(" ", i)
		})
	}
	if f.accents {
		in = without(nonspacing).normalize(unicodeForm{canonical, false}.normalize(in))
	}
	if f.lower {
		in = lowercase{}.normalize(in)
	}
	return in
}

// cleanText removes control characters and turns all white space into plain spaces.
func cleanText(in stretch) stretch {
	clean := true
	for i := range len(in.s) {
		if b := in.s[i]; b < ' ' || b >= 0x7F {
			clean = false
			break
		}
	}
	if clean {
		return in
	}
	return eachRune(in, func(w *rewriter, r rune, i, n int) {
		switch c := classOf(r); {
		case r == 0xFFFD || c&control != 0:
		case c&space != 0:
			w.put(" ", i)
		default:
			w.keep(i, i+n)
		}
	})
}

// isChinese reports whether a character is in a block of CJK ideographs, as BERT lists them. The
// third extension begins at U+2B920 in the reference, not at U+2B820.
func isChinese(r rune) bool {
	return 0x4E00 <= r && r <= 0x9FFF || 0x3400 <= r && r <= 0x4DBF || 0xF900 <= r && r <= 0xFAFF ||
		0x20000 <= r && r <= 0x2A6DF || 0x2A700 <= r && r <= 0x2B73F || 0x2B740 <= r && r <= 0x2B81F ||
		0x2B920 <= r && r <= 0x2CEAF || 0x2F800 <= r && r <= 0x2FA1F
}
