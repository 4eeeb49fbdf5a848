package token

import (
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is NFD or NFC, with compatibility NFKD or NFKC (Unicode Standard Annex 15). The
// tables are those of x/text; which characters decompose and which marks move is listed in
// chars.txt. x/text's own transformation is not used, since it breaks up long runs of marks
// (Stream-Safe Text Format) and does not track which character became which.
type unicodeForm struct {
	kind    class // canonical or compatibility
	compose bool
}

// A part is a character during normalization. Change is, as the reference counts, how many more
// characters of the output than of the input end with it: 0 if it comes from one, 1 if it comes
// from none, -1 if it comes from two.
type part struct {
	r      rune
	change int32
	ccc    uint8 // the combining class
}

func (f unicodeForm) normalize(in stretch) stretch {
	if isASCII(in.s) {
		return in
	}
	parts := make([]part, 0, len(in.s))
	changed := f.compose
	for i := 0; i < len(in.s); {
		r, n := utf8.DecodeRuneInString(in.s[i:])
		if classOf(r)&f.kind == 0 {
			parts = appendPart(parts, r, 0)
		} else {
			changed = true
			for j, d := range decompose(f.kind, in.s[i:i+n], r) {
				parts = appendPart(parts, d, min(int32(j), 1))
			}
		}
		i += n
	}
	moved := sortMarks(parts)
	if !changed && !moved {
		return in
	}
	if f.compose {
		parts = compose(parts)
	}
	return respell(in, parts)
}

// respell writes parts instead of the stretch. As in the reference, which part comes from which
// character follows only from the changes, in order.
func respell(in stretch, parts []part) stretch {
	w := rewrite(in)
	i := 0
	for _, p := range parts {
		at := i
		if p.change > 0 {
			at = i - 1
		}
		w.putRune(p.r, min(at, len(in.s)-1))
		for ; p.change <= 0 && i < len(in.s); p.change++ {
			_, n := utf8.DecodeRuneInString(in.s[i:])
			i += n
		}
	}
	return w.done()
}

func appendPart(parts []part, r rune, change int32) []part {
	p := part{r: r, change: change}
	if classOf(r)&moving != 0 {
		var b [utf8.UTFMax]byte
		p.ccc = norm.NFD.Properties(b[:utf8.EncodeRune(b[:], r)]).CCC()
	}
	return append(parts, p)
}

// decompose returns the full decomposition of r, which s spells.
func decompose(kind class, s string, r rune) []rune {
	if 0xAC00 <= r && r < 0xAC00+11172 { // a Hangul syllable: leading consonant, vowel and perhaps trailing consonant
		i := r - 0xAC00
		out := []rune{0x1100 + i/588, 0x1161 + i%588/28}
		if t := i % 28; t > 0 {
			out = append(out, 0x11A7+t)
		}
		return out
	}
	form := norm.NFD
	if kind == compatibility {
		form = norm.NFKD
	}
	if d := form.PropertiesString(s).Decomposition(); len(d) > 0 {
		return []rune(string(d))
	}
	return []rune{r}
}

// sortMarks sorts each run of marks by their classes.
func sortMarks(parts []part) (moved bool) {
	for i := 0; i < len(parts); {
		if parts[i].ccc == 0 {
			i++
			continue
		}
		end := i
		for end < len(parts) && parts[end].ccc != 0 {
			end++
		}
		run := parts[i:end]
		byClass := func(a, b part) int { return int(a.ccc) - int(b.ccc) }
		if !slices.IsSortedFunc(run, byClass) {
			slices.SortStableFunc(run, byClass)
			moved = true
		}
		i = end
	}
	return moved
}

// compose joins each starter with the marks after it that have a composed character with it.
func compose(parts []part) []part {
	out := parts[:0]
	starter, last := -1, uint8(0) // index in out; class of the last part that stayed after it
	for _, p := range parts {
		if starter >= 0 && (len(out) == starter+1 || last != 0 && last < p.ccc) {
			if r, ok := composed(out[starter].r, p.r); ok {
				out[starter].r = r
				out[starter].change += p.change - 1
				continue
			}
		}
		if p.ccc == 0 {
			starter = len(out)
		}
		last = p.ccc
		out = append(out, p)
	}
	return out
}

// composed returns the character that two characters make.
func composed(a, b rune) (rune, bool) {
	switch {
	case 0x1100 <= a && a < 0x1113 && 0x1161 <= b && b < 0x1176:
		return 0xAC00 + (a-0x1100)*588 + (b-0x1161)*28, true
	case 0xAC00 <= a && a < 0xAC00+11172 && (a-0xAC00)%28 == 0 && 0x11A8 <= b && b < 0x11C3:
		return a + b - 0x11A7, true
	}
	r, ok := composites()[[2]rune{a, b}]
	return r, ok
}

// composites holds the primary composites except Hangul: the characters with a canonical
// decomposition that composing gives back.
var composites = sync.OnceValue(func() map[[2]rune]rune {
	m := map[[2]rune]rune{}
	for r := rune(utf8.RuneSelf); r < 0x30000; r++ {
		if classOf(r)&canonical == 0 || 0xAC00 <= r && r < 0xAC00+11172 {
			continue
		}
		s := string(r)
		d := []rune(string(norm.NFD.PropertiesString(s).Decomposition()))
		if len(d) < 2 || norm.NFC.String(s) != s {
			continue
		}
		// The first of the two is the composite of all but the last.
		first := []rune(norm.NFC.String(string(d[:len(d)-1])))
		if len(first) == 1 {
			m[[2]rune{first[0], d[len(d)-1]}] = r
		}
	}
	return m
})
