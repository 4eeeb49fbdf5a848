package token

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func readDecoder(n node) decoder {
	if n.isNull() {
		return nil
	}
	o := n.object()
	var d decoder
	switch kind := o.get("type"); kind.str() {
	case "Sequence":
		var all decoders
		for _, item := range o.get("decoders").parts() {
			all = append(all, readDecoder(item))
		}
		d = all
	case "ByteLevel":
		o.get("add_prefix_space").boolOr(true) // these three mean nothing to a decoder
		o.get("trim_offsets").boolOr(true)
		o.get("use_regex").boolOr(true)
		d = byteLevelDecoder{}
	case "WordPiece":
		d = wordPieceDecoder{o.get("prefix").strOr("##"), o.get("cleanup").boolOr(true)}
	case "Metaspace":
		d = metaspaceDecoder{string(o.get("replacement").char()), readPrependScheme(o) != "never"}
		o.get("split").boolOr(true) // means nothing to a decoder
	case "BPEDecoder":
		d = suffixDecoder(o.get("suffix").strOr("</w>"))
	case "ByteFallback":
		d = byteFallbackDecoder{}
	case "Fuse":
		d = fuseDecoder{}
	case "Strip":
		d = stripDecoder{string(o.get("content").char()), o.get("start").intOr(0), o.get("stop").intOr(0)}
	case "Replace":
		d = replaceDecoder{replace{readPattern(o.get("pattern")), o.get("content").str()}}
	default:
		kind.fail("decoder %s is not supported", kind.shown())
	}
	o.done()
	return d
}

// decoders apply one after the other.
type decoders []decoder

func (d decoders) decode(tokens []string) []string {
	most := grown(sumLengths(tokens))
	for _, e := range d {
		tokens = e.decode(tokens)
		allow(sumLengths(tokens), most)
	}
	return tokens
}

func sumLengths(tokens []string) (n int) {
	for _, t := range tokens {
		n += len(t)
	}
	return n
}

// byteLevelDecoder turns characters into the bytes they spell. A token with a character
// that spells no byte is already text.
type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(tokens []string) []string {
	var out []byte
	for _, token := range tokens {
		out = appendSpelled(out, token)
	}
	return []string{lossy(string(out))}
}

func appendSpelled(dst []byte, token string) []byte {
	dst, ok := unspellBytes(dst, token)
	if !ok {
		dst = append(dst, token...)
	}
	return dst
}

// wordPieceDecoder puts a space before each token that begins a word.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

// cleanUp removes spaces before punctuation and English contractions, in the order and with the
// quirks of the reference.
var cleanUp = [...][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
	{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func (d wordPieceDecoder) decode(tokens []string) []string {
	for i, token := range tokens {
		if i > 0 {
			rest, ok := strings.CutPrefix(token, d.prefix)
			if !ok {
				rest = " " + token
			}
			token = rest
		}
		if d.cleanup {
			for _, c := range cleanUp {
				token = strings.ReplaceAll(token, c[0], c[1])
			}
		}
		tokens[i] = token
	}
	return tokens
}

// metaspaceDecoder turns the mark into a space; in the first token, if one was inserted there,
// into nothing.
type metaspaceDecoder struct {
	mark    string
	prepend bool
}

func (d metaspaceDecoder) decode(tokens []string) []string {
	for i, token := range tokens {
		with := " "
		if i == 0 && d.prepend {
			with = ""
		}
		tokens[i] = strings.ReplaceAll(token, d.mark, with)
	}
	return tokens
}

// suffixDecoder turns the suffix that ends a word into a space, but not after the last token.
type suffixDecoder string

func (d suffixDecoder) decode(tokens []string) []string {
	for i, token := range tokens {
		with := " "
		if i == len(tokens)-1 {
			with = ""
		}
		tokens[i] = strings.ReplaceAll(token, string(d), with)
	}
	return tokens
}

// byteFallbackDecoder turns a run of tokens <0x00> to <0xFF> into the text they form, or
// into one U+FFFD for each if they form none.
type byteFallbackDecoder struct{}

func (byteFallbackDecoder) decode(tokens []string) []string {
	var out []string
	var run []byte
	flush := func() {
		switch {
		case len(run) == 0:
		case utf8.Valid(run):
			out = append(out, string(run))
		default:
			out = append(out, slices.Repeat([]string{"\uFFFD"}, len(run))...)
		}
		run = run[:0]
	}
	for _, token := range tokens {
		if b, ok := fallbackByte(token); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, token)
	}
	flush()
	return out
}

// fallbackByte is the byte that a token <0x00> to <0xFF> stands for.
func fallbackByte(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(strings.TrimPrefix(token[3:5], "+"), 16, 8) // a sign is a number to the reference
	return byte(b), err == nil
}

// fuseDecoder joins all tokens into one.
type fuseDecoder struct{}

func (fuseDecoder) decode(tokens []string) []string { return []string{strings.Join(tokens, "")} }

// stripDecoder removes a character from the ends of each token, a limited number of
// times.
type stripDecoder struct {
	char        string
	start, stop int
}

func (d stripDecoder) decode(tokens []string) []string {
	for i, token := range tokens {
		for n := 0; n < d.start && strings.HasPrefix(token, d.char); n++ {
			token = token[len(d.char):]
		}
		for n := 0; n < d.stop && strings.HasSuffix(token, d.char); n++ {
			token = token[:len(token)-len(d.char)]
		}
		tokens[i] = token
	}
	return tokens
}

// replaceDecoder replaces every match in each token by content.
type replaceDecoder struct{ replace }

func (d replaceDecoder) decode(tokens []string) []string {
	left := grown(sumLengths(tokens))
	for i, token := range tokens {
		tokens[i] = d.normalize(stretch{s: token, most: left}).s
		left -= len(tokens[i])
	}
	return tokens
}
