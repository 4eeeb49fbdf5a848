package shard

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data"
)

// byteEncoder has an id for each byte and an EOS, moved up to test wide ids.
type byteEncoder struct{ vocab int }

func (e byteEncoder) VocabSize() int { return e.vocab }
func (e byteEncoder) eos() int32     { return int32(e.vocab - 1) }
func (e byteEncoder) EncodeOrdinary(dst []int32, text []byte) []int32 {
	for _, b := range text {
		dst = append(dst, int32(e.vocab-257)+int32(b))
	}
	return dst
}

func (e byteEncoder) decode(ids []int32) string {
	var b bytes.Buffer
	for _, id := range ids {
		if id == e.eos() {
			b.WriteByte('|')
		} else {
			b.WriteByte(byte(id - int32(e.vocab-257)))
		}
	}
	return b.String()
}

var narrow, wide = byteEncoder{257}, byteEncoder{100_000}

// list is a source in memory.
type list struct {
	docs []data.Document
	name string
	err  error // after the documents
}

func (l list) Fingerprint() (string, error) {
	h := fnv.New64a()
	for _, d := range l.docs {
		_, _ = h.Write(append(d.Text, d.ID...))
	}
	return fmt.Sprint(l.name, h.Sum64(), l.err), nil
}
func (l list) Documents() iter.Seq2[data.Document, error] {
	return func(yield func(data.Document, error) bool) {
		for _, d := range l.docs {
			if !yield(d, nil) {
				return
			}
		}
		if l.err != nil {
			yield(data.Document{}, l.err)
		}
	}
}

func texts(s ...string) (l list) {
	for i, t := range s {
		id := fmt.Sprintf("doc%d", i)
		l.docs = append(l.docs, data.Document{ID: id, Group: id, Text: []byte(t)})
	}
	return l
}

// many makes n distinct documents in groups of three.
func many(n int) (l list) {
	for i := range n {
		l.docs = append(l.docs, data.Document{
			ID: fmt.Sprintf("doc%d", i), Group: fmt.Sprintf("group%d", i/3),
			Text: []byte(strings.Repeat(fmt.Sprintf("text %d ", i), 1+i%7)),
		})
	}
	return l
}

func prepare(t testing.TB, dir string, src data.Source, enc byteEncoder, opt Options) *Prepared {
	t.Helper()
	opt.EOS = enc.eos()
	p, err := Prepare(context.Background(), dir, src, enc, opt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t testing.TB, dir string, split Split) *Corpus {
	t.Helper()
	c, err := Open(dir, split)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func stream(t testing.TB, c *Corpus) []int32 {
	t.Helper()
	ids := make([]int32, c.Tokens())
	if err := c.Read(ids, 0); err != nil {
		t.Fatal(err)
	}
	return ids
}

// contents maps the names of a folder's files to their contents.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = string(b)
	}
	return m
}

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}
