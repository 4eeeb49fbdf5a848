package token

import (
	"strings"
	"unicode/utf8"
	"unsafe"
)

// A Span is a range of bytes of the input text.
type Span struct{ Start, End int }

// A stretch is a piece of the text in the pipeline.
type stretch struct {
	s    string
	src  []Span // the part of the input that each byte of s comes from; nil if not tracked
	base int    // where the stretch begins in the input
	most int    // bytes that it may grow to
	tok  *addedToken
}

// newStretch returns the whole input as a stretch.
func newStretch(text string, tracked bool) stretch {
	st := stretch{s: text, most: grown(len(text))}
	if !tracked {
		return st
	}
	st.src = make([]Span, 0, len(text))
	for i := 0; i < len(text); {
		_, n := utf8.DecodeRuneInString(text[i:])
		for range n {
			st.src = append(st.src, Span{i, i + n})
		}
		i += n
	}
	return st
}

// cut returns a part of the stretch.
func (st stretch) cut(start, end int) stretch {
	part := stretch{s: st.s[start:end], base: st.base + start, most: st.most}
	if st.src != nil {
		part.src = st.src[start:end]
		part.base = st.base
		if start < end {
			part.base = st.src[start].Start
		}
	}
	return part
}

// span returns the part of the input that the bytes start to end come from.
func (st stretch) span(start, end int) Span {
	if start >= end || end > len(st.src) {
		return Span{st.base, st.base}
	}
	return Span{st.src[start].Start, st.src[end-1].End}
}

// A rewriter builds the text that replaces a stretch.
type rewriter struct {
	in  stretch
	out []byte
	src []Span
}

func rewrite(in stretch) *rewriter {
	return &rewriter{in: in, out: make([]byte, 0, len(in.s)+8)}
}

// keep copies a part of the stretch unchanged.
func (w *rewriter) keep(start, end int) {
	allow(len(w.out)+end-start, w.in.most)
	w.out = append(w.out, w.in.s[start:end]...)
	if w.in.src != nil {
		w.src = append(w.src, w.in.src[start:end]...)
	}
}

// put writes s, which replaces the byte of the stretch at i, or, with i < 0, is inserted.
func (w *rewriter) put(s string, i int) {
	allow(len(w.out)+len(s), w.in.most)
	w.out = append(w.out, s...)
	w.trackPut(len(s), i)
}

func (w *rewriter) putRune(r rune, i int) {
	n := len(w.out)
	w.out = utf8.AppendRune(w.out, r)
	allow(len(w.out), w.in.most)
	w.trackPut(len(w.out)-n, i)
}

func (w *rewriter) trackPut(n, i int) {
	if w.in.src == nil {
		return
	}
	at := Span{w.in.base, w.in.base}
	if i >= 0 {
		at = w.in.src[i]
	}
	for range n {
		w.src = append(w.src, at)
	}
}

// done returns the new stretch.
func (w *rewriter) done() stretch {
	st := stretch{s: unsafe.String(unsafe.SliceData(w.out), len(w.out)), base: w.in.base, most: w.in.most}
	if w.in.src != nil {
		st.src = w.src
		if st.src == nil {
			st.src = []Span{}
		}
	}
	return st
}

// valid replaces invalid UTF-8 by U+FFFD, one for each maximal subpart (Unicode 15.0,
// section 3.9, table 3-8).
func (st stretch) valid() stretch {
	if utf8.ValidString(st.s) {
		return st
	}
	w := rewrite(st)
	for i := 0; i < len(st.s); {
		r, n := utf8.DecodeRuneInString(st.s[i:])
		if r == utf8.RuneError && n == 1 {
			n = subpart(st.s[i:])
			w.put("\uFFFD", i)
		} else {
			w.keep(i, i+n)
		}
		i += n
	}
	return w.done()
}

// subpart returns the length of the longest start of s, at least 1, that could have
// become a character: what one U+FFFD replaces.
func subpart(s string) int {
	n := 1
	for n < len(s) && n < utf8.UTFMax && !utf8.FullRuneInString(s[:n+1]) {
		n++
	}
	// s[:n] is incomplete: it could continue. Its first byte alone may be invalid, though, and is
	// then complete at once.
	if utf8.FullRuneInString(s[:1]) {
		return 1
	}
	return n
}

// lossy returns s with U+FFFD for invalid UTF-8.
func lossy(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			n = subpart(s[i:])
			b.WriteString("\uFFFD")
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}
