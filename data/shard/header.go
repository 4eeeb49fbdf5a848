package shard

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

const (
	magic       = "SNUGTOK\x00"
	version     = 1
	headerSize  = 128
	headerCheck = headerSize - 4
	indexEntry  = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the fixed part of a shard.
type header struct {
	Width     int      // bytes of an id
	Tokenizer [16]byte // hash of the tokenizer's name
	Vocab     int
	EOS       int32
	Shard     int
	Split     Split
	Documents int64
	Tokens    int64
	TextBytes int64
	TokenSum  uint32
	IndexSum  uint32
}

// widthOf returns the size of an id for a vocabulary.
func widthOf(vocab int) int {
	if vocab <= 1<<16 {
		return 2
	}
	return 4
}

// indexAt returns where the index starts.
func (h *header) indexAt() int64 {
	return (headerSize + h.Tokens*int64(h.Width) + 7) &^ 7
}

// size is the size of the whole file.
func (h *header) size() int64 { return h.indexAt() + h.Documents*indexEntry }

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], uint32(h.Width))
	copy(b[16:32], h.Tokenizer[:])
	le.PutUint32(b[32:], uint32(h.Vocab))
	le.PutUint32(b[36:], uint32(h.EOS))
	le.PutUint32(b[40:], uint32(h.Shard))
	le.PutUint32(b[44:], uint32(h.Split))
	le.PutUint64(b[48:], uint64(h.Documents))
	le.PutUint64(b[56:], uint64(h.Tokens))
	le.PutUint64(b[64:], uint64(h.TextBytes))
	le.PutUint64(b[72:], uint64(h.indexAt()))
	le.PutUint32(b[80:], h.TokenSum)
	le.PutUint32(b[84:], h.IndexSum)
	le.PutUint32(b[headerCheck:], crc32.Checksum(b[:headerCheck], castagnoli))
	return b
}

// decodeHeader reads a header and checks it against the size of the file, so
// that no later arithmetic on its numbers can overflow.
func decodeHeader(b []byte, fileSize int64) (header, error) {
	var h header
	if len(b) < headerSize {
		return h, fmt.Errorf("%d bytes, less than the header of %d: the file is cut off", len(b), headerSize)
	}
	le := binary.LittleEndian
	if string(b[:8]) != magic {
		return h, fmt.Errorf("not a shard: it starts with %q", b[:8])
	}
	if v := le.Uint32(b[8:]); v != version {
		return h, fmt.Errorf("shard version %d, this program reads %d; prepare the data again", v, version)
	}
	if got, want := crc32.Checksum(b[:headerCheck], castagnoli), le.Uint32(b[headerCheck:]); got != want {
		return h, fmt.Errorf("checksum of the header is %08x, the header says %08x: the file is damaged", got, want)
	}
	width, vocab, eos := le.Uint32(b[12:]), le.Uint32(b[32:]), le.Uint32(b[36:])
	docs, tokens, text := le.Uint64(b[48:]), le.Uint64(b[56:]), le.Uint64(b[64:])
	switch {
	case vocab == 0 || vocab > math.MaxInt32:
		return h, fmt.Errorf("vocabulary of %d", vocab)
	case int(width) != widthOf(int(vocab)):
		return h, fmt.Errorf("%d bytes an id for a vocabulary of %d", width, vocab)
	case eos >= vocab:
		return h, fmt.Errorf("EOS id %d with a vocabulary of %d", eos, vocab)
	case le.Uint32(b[44:]) > uint32(HeldOut):
		return h, fmt.Errorf("split number %d", le.Uint32(b[44:]))
	case docs > uint64(fileSize)/indexEntry || tokens > uint64(fileSize)/uint64(width):
		return h, fmt.Errorf("claims %d ids and %d documents, more than its %d bytes can hold", tokens, docs, fileSize)
	case text > math.MaxInt64:
		return h, fmt.Errorf("claims %d bytes of text", text)
	case docs == 0 || tokens < docs:
		return h, fmt.Errorf("%d documents with %d ids", docs, tokens)
	}
	h = header{
		Width: int(width), Vocab: int(vocab), EOS: int32(eos),
		Shard: int(le.Uint32(b[40:])), Split: Split(le.Uint32(b[44:])),
		Documents: int64(docs), Tokens: int64(tokens), TextBytes: int64(text),
		TokenSum: le.Uint32(b[80:]), IndexSum: le.Uint32(b[84:]),
	}
	copy(h.Tokenizer[:], b[16:32])
	if at := le.Uint64(b[72:]); at != uint64(h.indexAt()) {
		return h, fmt.Errorf("index at byte %d, want %d", at, h.indexAt())
	}
	if h.size() != fileSize {
		return h, fmt.Errorf("%d bytes, %d by its header: the file is cut off or has grown", fileSize, h.size())
	}
	return h, nil
}
