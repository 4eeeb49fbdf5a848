package token

// A postProcessor puts special tokens around encoded text.
type postProcessor interface{ process() }

type truncation struct{}
type padding struct{}

func (t *Tokenizer) readPostProcessor(n node) postProcessor { return nil }
func readTruncation(n node) *truncation                     { return nil }
func (t *Tokenizer) readPadding(n node) *padding            { return nil }

// join decides, once all parts are read, how the model gets its words.
func (t *Tokenizer) join() {
	m, ok := t.model.(*bpe)
	if !ok {
		return
	}
	last, ok := t.pre.(*byteLevel)
	if !ok || !m.useBytes() {
		return
	}
	last.raw = true
	t.lossless = t.norm == nil
	t.prefixSpace = last.prefixSpace
	t.scan = scanGPT2
	if !last.words {
		t.scan = func(s string, _ int) int { return len(s) }
	}
}
