package token

import (
	"unicode/utf8"
)

func readPreTokenizer(n node) preTokenizer {
	if n.isNull() {
		return nil
	}
	o := n.object()
	var p preTokenizer
	switch kind := o.get("type"); kind.str() {
	case "ByteLevel":
		p = &byteLevel{
			prefixSpace: o.get("add_prefix_space").boolOr(true),
			words:       o.get("use_regex").boolOr(true),
		}
		o.get("trim_offsets").boolOr(true) // only for the post-processor of the same name
	default:
		kind.fail("pre-tokenizer %s is not supported", kind.shown())
	}
	o.done()
	return p
}

// byteLevel cuts by GPT-2's pattern and spells each byte as one character.
type byteLevel struct {
	prefixSpace bool // puts a space before text that begins with none
	words       bool // cuts; else it only spells
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

// prepend puts s, which stands for nothing in the input, before the stretch.
func prepend(in stretch, s string) stretch {
	w := rewrite(in)
	w.put(s, -1)
	w.keep(0, len(in.s))
	return w.done()
}
