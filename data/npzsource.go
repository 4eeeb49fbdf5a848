package data

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/snug-ml/snug/data/npz"
)

// The arrays of a tokenized NPZ file: input_ids [N, L] padded at the end,
// attention_mask [N, L] of ones and then zeros, sequence_lengths [N].
const (
	npzIDs     = "input_ids"
	npzMask    = "attention_mask"
	npzLengths = "sequence_lengths"
)

// npzDocuments yields each row's ids up to its length as a document. The mask
// may be absent; if present it must agree. It returns false when emit
// asked to stop.
func npzDocuments(name string, opt Options, emit func(Document) bool) (bool, error) {
	f, err := npz.Open(name)
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	defer func() { _ = f.Close() }() // only read: nothing to lose
	arrays := []string{npzIDs, npzLengths}
	if f.Has(npzMask) {
		arrays = append(arrays, npzMask)
	}
	var rows []*npz.Rows
	defer func() {
		for _, r := range rows {
			_ = r.Close()
		}
	}()
	for _, a := range arrays {
		r, err := f.Rows(a)
		if err != nil {
			return false, fmt.Errorf("data: %w", err)
		}
		rows = append(rows, r)
		if want := rows[0].Shape[0]; r.Shape[0] != want {
			return false, fmt.Errorf("data: %s: %s has %d rows, %s has %d", name, a, r.Shape[0], npzIDs, want)
		}
	}
	if w := rows[len(rows)-1].Width(); len(rows) == 3 && w != rows[0].Width() || rows[1].Width() != 1 {
		return false, fmt.Errorf("data: %s: %s is %v, %s is %v, want [N, L] and [N]", name, npzIDs, rows[0].Shape, npzLengths, rows[1].Shape)
	}
	if size := 4 * int64(rows[0].Width()); size > opt.MaxRecord {
		return false, fmt.Errorf("data: %s: a row of %d ids takes %d bytes, more than %d; raise data.max_record", name, rows[0].Width(), size, opt.MaxRecord)
	}
	return npzRows(name, opt, rows, emit)
}

func npzRows(name string, opt Options, rows []*npz.Rows, emit func(Document) bool) (bool, error) {
	var doc Document // being joined from overlapping rows
	flush := func() bool {
		if len(doc.Tokens) == 0 {
			return true
		}
		d := doc
		doc = Document{}
		return emit(d)
	}
	width := rows[0].Width()
	var ids, length, mask []int32
	for row := 1; ; row++ {
		var errs [3]error
		ids, errs[0] = rows[0].Next(ids[:0])
		length, errs[1] = rows[1].Next(length[:0])
		if len(rows) == 3 {
			mask, errs[2] = rows[2].Next(mask[:0])
		} else {
			errs[2] = errs[0]
		}
		// All have the same number of rows and end together.
		if errs == [3]error{io.EOF, io.EOF, io.EOF} {
			return flush(), nil
		}
		if err := errors.Join(errs[:]...); err != nil {
			return false, fmt.Errorf("data: %w", err)
		}
		n := int(length[0])
		if n < 0 || n > width {
			return false, fmt.Errorf("data: %s#%d: %s is %d, a row has %d", name, row, npzLengths, n, width)
		}
		for k, m := range mask {
			if (m != 0) != (k < n) {
				return false, fmt.Errorf("data: %s#%d: %s is %d at position %d, %s is %d", name, row, npzMask, m, k, npzLengths, n)
			}
		}
		if ids := ids[:n]; overlaps(doc.Tokens, ids, opt.Overlap) {
			doc.Tokens = append(doc.Tokens, ids[opt.Overlap:]...)
			if size := 4 * int64(len(doc.Tokens)); size > opt.MaxRecord {
				return false, fmt.Errorf("data: %s: overlapping rows from %s join to %d bytes, more than %d; raise data.max_record", name, doc.ID, size, opt.MaxRecord)
			}
			continue
		}
		if !flush() {
			return false, nil
		}
		id := fmt.Sprintf("%s#%d", name, row)
		doc = Document{ID: id, Tokens: slices.Clone(ids[:n])}
	}
}

// overlaps reports whether next begins with the last n tokens of doc.
func overlaps(doc, next []int32, n int) bool {
	return n > 0 && len(doc) >= n && len(next) >= n && slices.Equal(doc[len(doc)-n:], next[:n])
}
