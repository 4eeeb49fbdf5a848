package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
)

// parquetBatch is how many values of a column are decoded at a time.
const parquetBatch = 256

// caught turns a panic of the Parquet library, which damaged pages have caused
// before, into an error.
func caught(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("damaged: %v", r)
		}
	}()
	return f()
}

// parquetRecords yields the rows of a Parquet file, row group by row group and
// page by page. columns are the fields to read, nil means all; a dot goes into
// a group. It returns false when emit asked to stop.
func parquetRecords(name string, columns []string, most int64, emit func(Record) bool) (bool, error) {
	f, err := regular.Open(name)
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	defer func() { _ = f.Close() }() // only read: nothing to lose
	var file *parquet.File
	var top []*parquetNode
	err = caught(func() error {
		if file, err = openParquet(f); err != nil {
			return err
		}
		top, err = parquetSchema(file.Root(), columns)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("data: %s: %w", name, err)
	}
	rec := Record{File: name}
	for g := range file.RowGroups() {
		more, err := parquetGroup(f, file, g, top, most, func(fields map[string]any) bool {
			rec.Row++
			rec.fields = fields
			return emit(rec)
		})
		if err != nil {
			return false, fmt.Errorf("data: %s: row group %d, after row %d of the file: %w", name, g, rec.Row, err)
		}
		if !more {
			return false, nil
		}
	}
	return true, nil
}

// openParquet reads the footer. The library allocates what the footer's length
// claims, so that is checked against the file first.
func openParquet(f *os.File) (*parquet.File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var tail [8]byte
	if st.Size() < 12 {
		return nil, fmt.Errorf("%d bytes are too few for a Parquet file", st.Size())
	}
	if _, err := f.ReadAt(tail[:], st.Size()-8); err != nil {
		return nil, err
	}
	if string(tail[4:]) != "PAR1" {
		return nil, fmt.Errorf("not a Parquet file: it ends with %q (encrypted files are not supported)", tail[4:])
	}
	n := binary.LittleEndian.Uint32(tail[:])
	if int64(n) > st.Size()-12 {
		return nil, fmt.Errorf("footer claims %d of %d bytes: the file is damaged", n, st.Size())
	}
	if err := checkFooter(f, st.Size()-8-int64(n), int64(n)); err != nil {
		return nil, err
	}
	return parquet.OpenFile(f, st.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.FileReadMode(parquet.ReadModeSync))
}

// parquetNode is a field of the schema.
type parquetNode struct {
	name     string
	path     string
	optional bool
	repeated bool
	def, rep int            // maximum levels
	leaf     int            // first leaf column, counted among those that are read
	leaves   int            // number of leaf columns
	column   int            // of a leaf, in the file
	fields   []*parquetNode // of a group
}

// parquetSchema makes the tree of the wanted fields.
func parquetSchema(root *parquet.Column, columns []string) ([]*parquetNode, error) {
	var top []*parquetNode
	var names []string
	leaves := 0
	wanted := map[string]bool{}
	for _, c := range root.Columns() {
		names = append(names, c.Name())
		want := columns == nil
		for _, name := range columns {
			if name == c.Name() || strings.HasPrefix(name, c.Name()+".") {
				want, wanted[name] = true, true
			}
		}
		if !want {
			continue
		}
		n, err := newParquetNode(c, 0, 0, &leaves)
		if err != nil {
			return nil, err
		}
		top = append(top, n)
	}
	for _, name := range columns {
		if !wanted[name] {
			return nil, fmt.Errorf("no field %q; it has %s (data.text_field chooses the field)", name, few.Of(names))
		}
	}
	if leaves == 0 {
		return nil, errors.New("no columns")
	}
	return top, nil
}

func newParquetNode(c *parquet.Column, def, rep int, leaves *int) (*parquetNode, error) {
	n := &parquetNode{
		name: c.Name(), path: strings.Join(c.Path(), "."), optional: c.Optional(), repeated: c.Repeated(),
		def: def, rep: rep, leaf: *leaves,
	}
	if n.optional || n.repeated {
		n.def++
	}
	if n.repeated {
		n.rep++
	}
	if c.Leaf() {
		n.column, n.leaves = c.Index(), 1
		*leaves++
		if logical := c.Type().LogicalType(); logical != nil {
			switch logical.Value.(type) {
			case *format.DecimalType, *format.Float16Type, *format.VariantType:
				return nil, fmt.Errorf("column %s: type %s is not supported", n.path, logical)
			}
		}
		if c.Type().Kind() == parquet.Int96 {
			return nil, fmt.Errorf("column %s: type INT96 is not supported", n.path)
		}
		return n, nil
	}
	for _, sub := range c.Columns() {
		s, err := newParquetNode(sub, n.def, n.rep, leaves)
		if err != nil {
			return nil, err
		}
		n.fields = append(n.fields, s)
		n.leaves += s.leaves
	}
	if n.leaves == 0 {
		return nil, fmt.Errorf("column %s: an empty group", n.path)
	}
	return n, nil
}

// eachLeaf calls f with the leaves in their order.
func (n *parquetNode) eachLeaf(f func(*parquetNode) error) error {
	if n.fields == nil {
		return f(n)
	}
	for _, s := range n.fields {
		if err := s.eachLeaf(f); err != nil {
			return err
		}
	}
	return nil
}

// parquetGroup yields the rows of one row group.
func parquetGroup(f io.ReaderAt, file *parquet.File, group int, top []*parquetNode, most int64, emit func(map[string]any) bool) (more bool, err error) {
	var leaves []*leafReader
	defer func() {
		for _, l := range leaves {
			// A column that was read has nothing left to report.
			_ = caught(l.pages.Close)
		}
	}()
	rowGroup := file.RowGroups()[group]
	meta := file.Metadata().RowGroups[group]
	if rowGroup.NumRows() == 0 {
		return true, nil // the way Arrow writes an empty table; its columns have no pages to check
	}
	together := int64(0) // bytes of the largest pages
	for _, n := range top {
		err := n.eachLeaf(func(leaf *parquetNode) error {
			return caught(func() error {
				largest, err := checkPages(f, file.Size(), meta.Columns[leaf.column].MetaData)
				if err != nil {
					return fmt.Errorf("column %s: %w", leaf.path, err)
				}
				if together += largest; together > maxPages {
					return fmt.Errorf("column %s: a page of each column up to this one takes %d bytes, %d are allowed: name the columns that are needed (data.text_field), or write smaller pages", leaf.path, together, maxPages)
				}
				leaves = append(leaves, &leafReader{node: leaf, pages: rowGroup.ColumnChunks()[leaf.column].Pages()})
				return nil
			})
		})
		if err != nil {
			return false, err
		}
	}
	entries := make([][]entry, len(leaves))
	for range rowGroup.NumRows() {
		left := most
		for i, l := range leaves {
			err := caught(func() (err error) {
				entries[i], err = l.row(entries[i][:0], &left)
				return err
			})
			if errors.Is(err, errTooLong) {
				return false, fmt.Errorf("column %s: the row is longer than %d bytes; raise data.max_record", l.node.path, most)
			}
			if err != nil {
				return false, fmt.Errorf("column %s: %w", l.node.path, err)
			}
		}
		fields := make(map[string]any, len(top))
		for _, n := range top {
			v, err := n.assemble(entries[n.leaf : n.leaf+n.leaves])
			if err != nil {
				return false, err
			}
			fields[n.name] = v
		}
		if !emit(fields) {
			return false, nil
		}
	}
	for _, l := range leaves {
		if err := caught(l.end); err != nil {
			return false, fmt.Errorf("column %s: %w", l.node.path, err)
		}
	}
	return true, nil
}

// entryBytes is what a value counts for in addition to its own bytes: a list of a million
// nulls takes some bytes in the file, and memory here.
const entryBytes = 8

// entry is a value of a leaf column with its levels.
type entry struct {
	rep, def int
	value    any
}

// leafReader reads one column of a row group.
type leafReader struct {
	node   *parquetNode
	pages  parquet.Pages
	reader parquet.ValueReader
	buf    [parquetBatch]parquet.Value
	values []parquet.Value // of buf, not used yet
}

// fill makes values not empty, or returns io.EOF after the last page.
func (l *leafReader) fill() error {
	for len(l.values) == 0 {
		if l.reader == nil {
			page, err := l.pages.ReadPage()
			if err != nil {
				return err
			}
			l.reader = page.Values()
		}
		n, err := l.reader.ReadValues(l.buf[:])
		l.values = l.buf[:n]
		if err == io.EOF {
			// The values of buf point into the page, so it is left to the garbage
			// collector and not released by parquet.Release.
			l.reader, err = nil, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// row appends the entries of the next row, which takes its bytes from *left.
func (l *leafReader) row(dst []entry, left *int64) ([]entry, error) {
	for start := len(dst); ; l.values = l.values[1:] {
		err := l.fill()
		if err == io.EOF && len(dst) > start {
			return dst, nil
		}
		if err == io.EOF {
			return dst, fmt.Errorf("fewer rows than the row group has")
		}
		if err != nil {
			return dst, err
		}
		v := l.values[0]
		first := v.RepetitionLevel() == 0
		if first && len(dst) > start {
			return dst, nil
		}
		if !first && len(dst) == start {
			return dst, fmt.Errorf("row starts at repetition level %d", v.RepetitionLevel())
		}
		*left -= entryBytes
		if v.Kind() == parquet.ByteArray || v.Kind() == parquet.FixedLenByteArray {
			*left -= int64(len(v.ByteArray()))
		}
		if *left < 0 {
			return dst, errTooLong
		}
		e := entry{rep: v.RepetitionLevel(), def: v.DefinitionLevel()}
		if e.def == l.node.def {
			if e.value, err = goValue(v); err != nil {
				return dst, err
			}
		}
		dst = append(dst, e)
	}
}

// end makes sure that no values are left.
func (l *leafReader) end() error {
	if err := l.fill(); err != io.EOF {
		if err == nil {
			err = fmt.Errorf("more rows than the row group has")
		}
		return err
	}
	return nil
}

func goValue(v parquet.Value) (any, error) {
	switch v.Kind() {
	case parquet.Boolean:
		return v.Boolean(), nil
	case parquet.Int32:
		return int64(v.Int32()), nil
	case parquet.Int64:
		return v.Int64(), nil
	case parquet.Float:
		return float64(v.Float()), nil
	case parquet.Double:
		return v.Double(), nil
	case parquet.ByteArray, parquet.FixedLenByteArray:
		return string(v.ByteArray()), nil
	}
	return nil, fmt.Errorf("value of kind %s", v.Kind())
}

// assemble builds the value of a field of one row from the entries of its
// leaves (Melnik and others, "Dremel", VLDB 2010, section 4).
func (n *parquetNode) assemble(entries [][]entry) (any, error) {
	for _, e := range entries {
		if len(e) == 0 {
			return nil, fmt.Errorf("column %s: leaves of one group differ in length", n.path)
		}
	}
	present := entries[0][0].def >= n.def
	switch {
	case n.repeated && !present:
		return []any{}, nil
	case n.repeated:
		return n.list(entries)
	case n.optional && !present:
		return nil, nil
	}
	return n.one(entries)
}

// list cuts the entries of a repeated field at its repetition level.
func (n *parquetNode) list(entries [][]entry) (any, error) {
	all := []any{}
	element := make([][]entry, len(entries))
	rest := slices.Clone(entries)
	for len(rest[0]) > 0 {
		for i, r := range rest {
			if len(r) == 0 {
				return nil, fmt.Errorf("column %s: lists of one group differ in length", n.path)
			}
			k := 1
			for k < len(r) && r[k].rep > n.rep {
				k++
			}
			element[i], rest[i] = r[:k], r[k:]
		}
		v, err := n.one(element)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// one builds a leaf or a group that is not null. A group of one repeated field is the
// standard form of a list and yields its elements.
func (n *parquetNode) one(entries [][]entry) (any, error) {
	if n.fields == nil {
		if len(entries[0]) != 1 {
			return nil, fmt.Errorf("column %s: %d values instead of one", n.path, len(entries[0]))
		}
		return entries[0][0].value, nil
	}
	if s := n.fields[0]; len(n.fields) == 1 && (s.repeated || n.repeated) {
		return s.assemble(entries)
	}
	group := make(map[string]any, len(n.fields))
	for _, s := range n.fields {
		from := s.leaf - n.leaf
		v, err := s.assemble(entries[from : from+s.leaves])
		if err != nil {
			return nil, err
		}
		group[s.name] = v
	}
	return group, nil
}
