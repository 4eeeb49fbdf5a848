package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
)

// Field is one named input of a task with an example per row: ids of a text, a
// label, an image.
type Field struct {
	Name string
	// Float means that the elements are float32; otherwise they are int32.
	Float bool
	// Shape is the shape of one example. A first size of -1 stands for the bucket's
	// length: the field is padded to it.
	Shape []int
	// Pad fills the padding of an int32 field; a float field is padded with 0.
	Pad int32
}

// ragged reports whether the field is padded to the bucket.
func (f *Field) ragged() bool { return len(f.Shape) > 0 && f.Shape[0] == -1 }

// step is the number of elements of one position of a ragged field, or of all of any
// other field.
func (f *Field) step() int {
	n := 1
	for i, d := range f.Shape {
		if i > 0 || d != -1 {
			n *= d
		}
	}
	return n
}

// Size is the number of elements of one example in a bucket of a length.
func (f *Field) Size(length int) int {
	if f.ragged() {
		return length * f.step()
	}
	return f.step()
}

// Row is the destination of one example: a slice for each field, of its Size, in Ints or
// in Floats by the field's number. The other one is nil.
type Row struct {
	Ints   [][]int32
	Floats [][]float32
}

// Examples is a set of examples with random access. The methods may be called
// by many goroutines at once.
type Examples interface {
	// ID is a hash of the content.
	ID() string
	Fields() []Field
	Len() int
	// Length is the number of positions of the ragged fields of example i, the longest of
	// them; 0 when no field is ragged.
	Length(i int) int
	// Fill writes example i to a row, padding included, and returns its weight
	// in the loss.
	Fill(i int, row Row) (weight float32, err error)
}

// Table is a set of examples in memory.
type Table struct {
	fields  []Field
	columns []tableColumn
	lengths []int32
	weights []float32
	sum     hash.Hash
}

type tableColumn struct {
	ints   []int32
	floats []float32
	ends   []int // of each example
}

// NewTable makes an empty table.
func NewTable(fields ...Field) (*Table, error) {
	t := &Table{fields: fields, columns: make([]tableColumn, len(fields)), sum: sha256.New()}
	seen := map[string]bool{}
	for _, f := range fields {
		if f.Name == "" || seen[f.Name] {
			return nil, fmt.Errorf("data: table: field name %q is empty or given twice", f.Name)
		}
		seen[f.Name] = true
		for i, d := range f.Shape {
			if d < 1 && (i > 0 || d != -1) {
				return nil, fmt.Errorf("data: table: field %s: shape %v; only the first size may be -1, the others are 1 or more", f.Name, f.Shape)
			}
		}
	}
	return t, nil
}

// Add appends an example: its weight in the loss, and for each field a []int32
// or []float32 of the field's size.
func (t *Table) Add(weight float32, values ...any) error {
	if len(values) != len(t.fields) {
		return fmt.Errorf("data: table: %d values for %d fields", len(values), len(t.fields))
	}
	if !(weight >= 0) || math.IsInf(float64(weight), 0) {
		return fmt.Errorf("data: table: example %d: weight %v", t.Len(), weight)
	}
	length := 0
	for i := range t.fields {
		n, err := t.fields[i].places(values[i])
		if err != nil {
			return fmt.Errorf("data: table: example %d: field %s: %w", t.Len(), t.fields[i].Name, err)
		}
		length = max(length, n)
	}
	if length > math.MaxInt32 {
		return fmt.Errorf("data: table: example %d: %d positions", t.Len(), length)
	}
	raw := binary.LittleEndian.AppendUint32(nil, math.Float32bits(weight))
	for i, v := range values {
		c := &t.columns[i]
		switch v := v.(type) {
		case []int32:
			c.ints = append(c.ints, v...)
			c.ends = append(c.ends, len(c.ints))
			raw = binary.LittleEndian.AppendUint64(raw, uint64(len(v)))
			for _, x := range v {
				raw = binary.LittleEndian.AppendUint32(raw, uint32(x))
			}
		case []float32:
			c.floats = append(c.floats, v...)
			c.ends = append(c.ends, len(c.floats))
			raw = binary.LittleEndian.AppendUint64(raw, uint64(len(v)))
			for _, x := range v {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
		}
	}
	// A hash never fails to write.
	_, _ = t.sum.Write(raw)
	t.lengths, t.weights = append(t.lengths, int32(length)), append(t.weights, weight)
	return nil
}

// places checks a value against the field and returns its length if the field is ragged.
func (f *Field) places(value any) (int, error) {
	var n int
	switch v := value.(type) {
	case []int32:
		n = len(v)
		if f.Float {
			return 0, fmt.Errorf("want []float32, found []int32")
		}
	case []float32:
		n = len(v)
		if !f.Float {
			return 0, fmt.Errorf("want []int32, found []float32")
		}
	default:
		return 0, fmt.Errorf("want []int32 or []float32, found %T", value)
	}
	step := f.step()
	switch {
	case f.ragged() && n%step == 0:
		return n / step, nil
	case f.ragged():
		return 0, fmt.Errorf("%d elements are not a multiple of %d, shape %v", n, step, f.Shape)
	case n != step:
		return 0, fmt.Errorf("%d elements, shape %v has %d", n, f.Shape, step)
	}
	return 0, nil
}

// ID implements Examples.
func (t *Table) ID() string { return hex.EncodeToString(t.sum.Sum(nil)) }

// Fields implements Examples.
func (t *Table) Fields() []Field { return t.fields }

// Len implements Examples.
func (t *Table) Len() int { return len(t.lengths) }

// Length implements Examples.
func (t *Table) Length(i int) int { return int(t.lengths[i]) }

// Fill implements Examples.
func (t *Table) Fill(i int, row Row) (float32, error) {
	for f := range t.fields {
		c := &t.columns[f]
		start := 0
		if i > 0 {
			start = c.ends[i-1]
		}
		if t.fields[f].Float {
			n := copy(row.Floats[f], c.floats[start:c.ends[i]])
			clear(row.Floats[f][n:])
			continue
		}
		n := copy(row.Ints[f], c.ints[start:c.ends[i]])
		for k := n; k < len(row.Ints[f]); k++ {
			row.Ints[f][k] = t.fields[f].Pad
		}
	}
	return t.weights[i], nil
}

// CountLengths counts the examples of a set by their length.
func CountLengths(x Examples) Lengths {
	l := Lengths{}
	for i := range x.Len() {
		l[x.Length(i)]++
	}
	return l
}
