package data

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"os"
)

// Document is one text of a corpus. Attention and held-out splits respect
// its borders.
type Document struct {
	// ID says where the document came from, for people: "path", "path:line" or
	// "path#row".
	ID string
	// Group decides the split: documents of one group are all trained on or
	// all held out. It defaults to the ID without the folder that the files of
	// the source have in common, so that moving the data moves no document to
	// the other side.
	Group string
	// HeldOut means that the source itself holds the document out, whatever its
	// group.
	HeldOut bool
	// Text is valid UTF-8 and belongs to the receiver.
	Text []byte
	// Tokens is set instead of Text by sources that are already tokenized.
	Tokens []int32
	// Repaired counts the invalid bytes replaced by U+FFFD. It is zero unless
	// Options.ReplaceInvalid was set.
	Repaired int
}

// Source is a stream of documents that can be read again and again.
type Source interface {
	// Documents yields every document in a fixed order. An error ends the
	// stream.
	Documents() iter.Seq2[Document, error]
	// Fingerprint is a hash of names, sizes, modification times and options:
	// equal fingerprints mean that preparing again would give the same result.
	Fingerprint() (string, error)
}

// fingerprint hashes the options and what the file system reports for each path.
func fingerprint(options string, paths []string) (string, error) {
	h := sha256.New()
	put := func(format string, args ...any) {
		// A hash never fails to write.
		_, _ = fmt.Fprintf(h, format, args...)
	}
	put("%q\n", options)
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return "", fmt.Errorf("data: %w", err)
		}
		put("%q %d %d\n", p, st.Size(), st.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// readAllLimit reads r to its end and fails once more than limit bytes have come.
func readAllLimit(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("longer than %d bytes", limit)
	}
	return b, nil
}

// Texts adapts a source to readers of plain texts, such as the trainer of a
// tokenizer. It stops once limit bytes were yielded (0 means never); an error
// comes last.
func Texts(src Source, limit int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var seen int64
		for doc, err := range src.Documents() {
			if err == nil && doc.Text == nil && doc.Tokens != nil {
				err = fmt.Errorf("data: %s is tokenized already and has no text: name its tokenizer with data.tokenizer.path", doc.ID)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(doc.Text, nil) {
				return
			}
			if seen += int64(len(doc.Text)); limit > 0 && seen >= limit {
				return
			}
		}
	}
}
