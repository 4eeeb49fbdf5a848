package token

func readDecoder(n node) decoder {
	if n.isNull() {
		return nil
	}
	o := n.object()
	var d decoder
	switch kind := o.get("type"); kind.str() {
	case "ByteLevel":
		o.get("add_prefix_space").boolOr(true) // these three mean nothing to a decoder
		o.get("trim_offsets").boolOr(true)
		o.get("use_regex").boolOr(true)
		d = byteLevelDecoder{}
	default:
		kind.fail("decoder %s is not supported", kind.shown())
	}
	o.done()
	return d
}

// byteLevelDecoder turns characters into the bytes they spell. A token with a character that spells no byte is text already.
type byteLevelDecoder struct{}

func (byteLevelDecoder) decode(tokens []string) []string {
	var out []byte
	for _, token := range tokens {
		var ok bool
		if out, ok = unspellBytes(out, token); !ok {
			out = append(out, token...)
		}
	}
	return []string{lossy(string(out))}
}
