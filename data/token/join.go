package token

// join decides, once all parts are read, how words reach the model. A byte-level BPE whose
// pre-tokenizer ends in ByteLevel takes raw bytes: no character is spelled only to be looked up
// again. The common pre-tokenizers then become one scan of the text.
func (t *Tokenizer) join() {
	t.tracked = needsBase(t.pre) && t.norm != nil
	m, ok := t.model.(*bpe)
	if !ok {
		return
	}
	steps, ok := t.pre.(preTokenizers)
	if !ok {
		steps = preTokenizers{t.pre}
	}
	if len(steps) == 0 {
		return
	}
	last, ok := steps[len(steps)-1].(*byteLevel)
	if !ok || !m.useBytes() {
		return
	}
	last.raw = true
	t.lossless = t.norm == nil
	switch cut, _ := steps[0].(cutter); {
	case len(steps) == 1 && last.words:
		t.scan, t.prefixSpace = scanGPT2, last.prefixSpace
	case len(steps) == 1:
		t.scan, t.prefixSpace = func(s string, _ int) int { return len(s) }, last.prefixSpace
	case len(steps) == 2 && !last.words && !last.prefixSpace && (cut.how == isolated || cut.how == removed && cut.invert):
		t.scan, _ = cut.find.(scanner) // it leaves nothing between its matches
	}
}

// needsBase reports whether a pre-tokenizer needs to know where in the input a stretch
// begins.
func needsBase(p preTokenizer) bool {
	switch p := p.(type) {
	case metaspace:
		return p.scheme == "first"
	case preTokenizers:
		for _, q := range p {
			if needsBase(q) {
				return true
			}
		}
	}
	return false
}
