package data

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/snug-ml/snug/data/npz"
	"pgregory.net/rapid"
)

// npzFile writes the arrays of the layout; a nil mask is left out.
func npzFile(t testing.TB, rows, width int, ids, mask, lengths []int32) string {
	t.Helper()
	var b bytes.Buffer
	w := npz.NewWriter(&b)
	write := func(name string, shape []int, data []int32) {
		if err := w.Write(name, shape, data); err != nil {
			t.Fatal(err)
		}
	}
	write("input_ids", []int{rows, width}, ids)
	if mask != nil {
		write("attention_mask", []int{rows, width}, mask)
	}
	write("sequence_lengths", []int{len(lengths)}, lengths)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(writeFiles(t, map[string]string{"tokenized_a.npz": b.String()}), "tokenized_a.npz")
}

func TestNPZDocuments(t *testing.T) {
	name := npzFile(t, 3, 4, []int32{1, 2, 3, 4, 3, 4, 5, 0, 9, 0, 0, 0}, []int32{1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0}, []int32{4, 3, 1})
	for overlap, want := range map[int][][]int32{
		0: {{1, 2, 3, 4}, {3, 4, 5}, {9}},
		2: {{1, 2, 3, 4, 5}, {9}},
		3: {{1, 2, 3, 4}, {3, 4, 5}, {9}},
	} {
		docs, err := documents(t, Options{Overlap: overlap}, name)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]int32
		for _, d := range docs {
			got = append(got, d.Tokens)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("overlap %d: %s", overlap, d)
		}
		if !strings.HasSuffix(docs[0].ID, "tokenized_a.npz#1") {
			t.Errorf("ID %s", docs[0].ID)
		}
	}
}

func TestNPZErrors(t *testing.T) {
	for want, name := range map[string]string{
		"#1: sequence_lengths is 3":             npzFile(t, 1, 2, []int32{1, 2}, nil, []int32{3}),
		"#1: sequence_lengths is -1":            npzFile(t, 1, 2, []int32{1, 2}, nil, []int32{-1}),
		"#1: attention_mask is 0 at place 1":    npzFile(t, 1, 2, []int32{1, 2}, []int32{1, 0}, []int32{2}),
		"#1: attention_mask is 1 at place 1":    npzFile(t, 1, 2, []int32{1, 2}, []int32{1, 1}, []int32{1}),
		"sequence_lengths has 2 rows":           npzFile(t, 1, 2, []int32{1, 2}, nil, []int32{1, 1}),
		"a row of 20 ids takes 80 bytes":        npzFile(t, 1, 20, make([]int32, 20), nil, []int32{1}),
		"overlapping rows from":                 npzFile(t, 3, 10, make([]int32, 30), nil, []int32{10, 10, 10}),
		`no array "input_ids"; it has nope`:     filepath.Join(writeFiles(t, map[string]string{"tokenized_a.npz": archiveOf(t, "nope")}), "tokenized_a.npz"),
		"tokenized_a.npz: zip: not a valid zip": filepath.Join(writeFiles(t, map[string]string{"tokenized_a.npz": "x"}), "tokenized_a.npz"),
	} {
		_, err := documents(t, Options{MaxRecord: 64, Overlap: 3}, name)
		wantError(t, err, "tokenized_a.npz", want)
	}
}

func archiveOf(t testing.TB, array string) string {
	t.Helper()
	var b bytes.Buffer
	w := npz.NewWriter(&b)
	if err := w.Write(array, []int{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What is written reads back: the same tokens in the same order, documents cut
// in rows of the given length.
func TestWriteNPZ(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		c := drawCorpus(rt, 10)
		length := rapid.IntRange(1, 12).Draw(rt, "length")
		var b bytes.Buffer
		if err := WriteNPZ(&b, c, length, 0); err != nil {
			rt.Fatal(err)
		}
		name := filepath.Join(dir, "a.npz")
		writeFile(t, name, b.Bytes())
		docs, err := documents(t, Options{}, name)
		if err != nil {
			rt.Fatal(err)
		}
		var want [][]int32
		at := int64(0)
		for _, end := range c.ends {
			want = slices.AppendSeq(want, slices.Chunk(c.tokens[at:end-1], length))
			at = end
		}
		var got [][]int32
		for _, d := range docs {
			got = append(got, d.Tokens)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatal(d)
		}
	})
	wantError(t, WriteNPZ(&bytes.Buffer{}, newMemory(5, []int32{1}), 0, 0), "rows of 0")
}
