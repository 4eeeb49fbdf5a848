package data

// Corpus is a tokenized text: one stream of ids in which every document ends
// with EOS. Package shard keeps one in memory-mapped files. All methods may be
// called by many goroutines at once.
type Corpus interface {
	// ID is a hash of the content: a position into one corpus is refused by
	// another.
	ID() string
	// VocabSize is one more than the largest id that may occur.
	VocabSize() int
	// EOS is the id after each document.
	EOS() int32
	// Tokens is the length of the stream, EOS included.
	Tokens() int64
	// Documents counts the documents, none of them empty.
	Documents() int64
	// Bytes is the size of the text before tokenization, for bits per byte; 0 if unknown.
	Bytes() int64
	// DocumentEnd is the stream position after the EOS of document d. It grows
	// with d and ends at Tokens.
	DocumentEnd(d int64) int64
	// Read fills dst with the stream from position off on, all of it or an
	// error. Every id is in [0, VocabSize).
	Read(dst []int32, off int64) error
}

// documentAt finds the document that holds stream position off.
func documentAt(c Corpus, off int64) int64 {
	lo, hi := int64(0), c.Documents()
	for lo < hi {
		mid := lo + (hi-lo)/2
		if c.DocumentEnd(mid) <= off {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
