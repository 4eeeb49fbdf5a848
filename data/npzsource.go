package data

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/snug-ml/snug/data/npz"
)

// The arrays of a tokenised NPZ file: input_ids [N, L] padded at the end,
// attention_mask [N, L] of ones and then zeros, sequence_lengths [N].
const (
	npzIDs     = "input_ids"
	npzMask    = "attention_mask"
	npzLengths = "sequence_lengths"
)

// npzDocuments yields each row's ids up to its length as a document. The mask
// may be absent; where it is there it must agree. It returns false when emit
// asked to stop.
func npzDocuments(name string, opt Options, emit func(Document) bool) (bool, error) {
	f, err := npz.Open(name)
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
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
			return false, fmt.Errorf("data: %s#%d: %s is %d, a row holds %d", name, row, npzLengths, n, width)
		}
		for k, m := range mask {
			if (m != 0) != (k < n) {
				return false, fmt.Errorf("data: %s#%d: %s is %d at place %d, %s is %d", name, row, npzMask, m, k, npzLengths, n)
			}
		}
		if ids := ids[:n]; overlaps(doc.Tokens, ids, opt.Overlap) {
			doc.Tokens = append(doc.Tokens, ids[opt.Overlap:]...)
			if size := 4 * int64(len(doc.Tokens)); size > opt.MaxRecord {
				return false, fmt.Errorf("data: %s: overlapping rows from %s on join to %d bytes, more than %d; raise data.max_record", name, doc.ID, size, opt.MaxRecord)
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

// WriteNPZ writes a corpus in the same layout: each document without its EOS,
// cut in rows of at most length ids and padded with pad.
func WriteNPZ(w io.Writer, c Corpus, length int, pad int32) error {
	if length < 1 {
		return fmt.Errorf("data: npz rows of %d ids", length)
	}
	rows := 0
	if err := eachRow(c, length, func([]int32) error { rows++; return nil }); err != nil {
		return err
	}
	out := npz.NewWriter(w)
	full := make([]int32, length)
	write := func(name string, shape []int, row func(ids []int32) []int32) error {
		s, err := out.Stream(name, npz.Int32, shape)
		if err != nil {
			return fmt.Errorf("data: %w", err)
		}
		return eachRow(c, length, func(ids []int32) error {
			if err := s.Write(row(ids)); err != nil {
				return fmt.Errorf("data: %w", err)
			}
			return nil
		})
	}
	err := write(npzIDs, []int{rows, length}, func(ids []int32) []int32 {
		for k := copy(full, ids); k < length; k++ {
			full[k] = pad
		}
		return full
	})
	if err != nil {
		return err
	}
	err = write(npzMask, []int{rows, length}, func(ids []int32) []int32 {
		clear(full)
		for k := range ids {
			full[k] = 1
		}
		return full
	})
	if err != nil {
		return err
	}
	err = write(npzLengths, []int{rows}, func(ids []int32) []int32 { return []int32{int32(len(ids))} })
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return nil
}

// eachRow calls f with every document in pieces of at most length ids.
func eachRow(c Corpus, length int, f func(ids []int32) error) error {
	buf := make([]int32, length)
	at := int64(0)
	for d := range c.Documents() {
		end := c.DocumentEnd(d) - 1
		for ; at < end; at += int64(length) {
			ids := buf[:min(int64(length), end-at)]
			if err := c.Read(ids, at); err != nil {
				return err
			}
			if err := f(ids); err != nil {
				return err
			}
		}
		at = end + 1
	}
	return nil
}
