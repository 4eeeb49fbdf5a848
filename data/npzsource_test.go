package data

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/snug-ml/snug/data/npz/npztest"
	"pgregory.net/rapid"
)

// npzFile writes the arrays of the layout; a nil mask is left out.
func npzFile(t testing.TB, rows, width int, ids, mask, lengths []int32) string {
	t.Helper()
	var b bytes.Buffer
	w := npztest.NewWriter(&b)
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
		"#1: attention_mask is 0 at position 1": npzFile(t, 1, 2, []int32{1, 2}, []int32{1, 0}, []int32{2}),
		"#1: attention_mask is 1 at position 1": npzFile(t, 1, 2, []int32{1, 2}, []int32{1, 1}, []int32{1}),
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
	w := npztest.NewWriter(&b)
	if err := w.Write(array, []int{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Rows without overlap are documents, in order, whatever their lengths.
func TestNPZRows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		width := rapid.IntRange(1, 12).Draw(rt, "width")
		want := rapid.SliceOfN(rapid.SliceOfN(rapid.Int32Range(0, 100), 1, width), 1, 20).Draw(rt, "documents")
		var ids, mask, lengths []int32
		for _, d := range want {
			pad := make([]int32, width-len(d))
			ids = append(append(ids, d...), pad...)
			mask = append(append(mask, slices.Repeat([]int32{1}, len(d))...), pad...)
			lengths = append(lengths, int32(len(d)))
		}
		docs, err := documents(t, Options{}, npzFile(t, len(want), width, ids, mask, lengths))
		if err != nil {
			rt.Fatal(err)
		}
		var got [][]int32
		for _, d := range docs {
			got = append(got, d.Tokens)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatal(d)
		}
	})
}
