package data

import (
	"fmt"
	"hash/fnv"

	"pgregory.net/rapid"
)

// memory is a corpus in a slice, the reference for the others.
type memory struct {
	tokens []int32
	ends   []int64
	vocab  int
}

// newMemory joins documents with EOS, the last id of the vocabulary.
func newMemory(vocab int, docs ...[]int32) *memory {
	m := &memory{vocab: vocab}
	for _, d := range docs {
		m.tokens = append(append(m.tokens, d...), m.EOS())
		m.ends = append(m.ends, int64(len(m.tokens)))
	}
	return m
}

func (m *memory) ID() string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, m.tokens, m.ends)
	return fmt.Sprintf("%016x", h.Sum64())
}
func (m *memory) VocabSize() int            { return m.vocab }
func (m *memory) EOS() int32                { return int32(m.vocab - 1) }
func (m *memory) Tokens() int64             { return int64(len(m.tokens)) }
func (m *memory) Documents() int64          { return int64(len(m.ends)) }
func (m *memory) Bytes() int64              { return 0 }
func (m *memory) DocumentEnd(d int64) int64 { return m.ends[d] }
func (m *memory) Read(dst []int32, off int64) error {
	if off < 0 || off+int64(len(dst)) > m.Tokens() {
		return fmt.Errorf("read past the end")
	}
	copy(dst, m.tokens[off:])
	return nil
}

// drawCorpus makes documents of 1 to 9 ids; EOS never occurs inside.
func drawCorpus(t *rapid.T, docs int) *memory {
	vocab := rapid.IntRange(3, 50).Draw(t, "vocab")
	doc := rapid.SliceOfN(rapid.Int32Range(0, int32(vocab-2)), 1, 9)
	return newMemory(vocab, rapid.SliceOfN(doc, 1, docs).Draw(t, "documents")...)
}
