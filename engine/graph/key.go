package graph

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math"
	"reflect"
)

// AppendKey appends what distinguishes an operation with its attributes from all others.
func AppendKey(to []byte, op Op) []byte {
	switch op := op.(type) { // the most frequent ones
	case Elementwise:
		to = append(to, 'e', byte(op.Fn), byte(op.Out))
		return binary.LittleEndian.AppendUint64(to, math.Float64bits(op.Alpha))
	case Reshape:
		return appendShape(append(to, 'r'), op.Shape)
	}
	v := reflect.ValueOf(op)
	return appendValue(appendString(append(to, 'o'), v.Type().String()), v)
}

// AppendContent appends what distinguishes what a node computes: its operation and the types of its operands and
// results, but not which they are.
func AppendContent(to []byte, n *Node) []byte {
	to = AppendKey(to, n.Op)
	for _, vs := range [...][]*Value{n.In, n.Out} {
		to = binary.AppendUvarint(to, uint64(len(vs)))
		for _, v := range vs {
			to = appendType(to, v.Type)
		}
	}
	return to
}

func appendShape(to []byte, s Shape) []byte {
	to = binary.AppendUvarint(to, uint64(len(s)))
	for _, d := range s {
		to = binary.AppendVarint(to, int64(d))
	}
	return to
}

func appendString(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}

func appendType(to []byte, t Type) []byte { return appendShape(append(to, byte(t.DType)), t.Shape) }

// appendValue appends the bits of a value of an operation or of a state; these have no maps and
// no cycles.
func appendValue(to []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(to, 1)
		}
		return append(to, 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(to, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(to, v.Uint())
	case reflect.Float32, reflect.Float64:
		return binary.LittleEndian.AppendUint64(to, math.Float64bits(v.Float()))
	case reflect.String:
		return appendString(to, v.String())
	case reflect.Slice, reflect.Array:
		to = binary.AppendUvarint(to, uint64(v.Len()))
		for i := range v.Len() {
			to = appendValue(to, v.Index(i))
		}
		return to
	case reflect.Struct:
		for i := range v.NumField() {
			to = appendValue(to, v.Field(i))
		}
		return to
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return append(to, 0)
		}
		e := v.Elem()
		return appendValue(appendString(append(to, 1), e.Type().String()), e)
	}
	panic(fmt.Sprintf("a %v has no key", v.Type()))
}

// Fingerprint returns the SHA-256 of everything that f consists of: equal fingerprints mean
// equal functions.
func (f *Func) Fingerprint() (sum [sha256.Size]byte) {
	w := writer{hash: sha256.New()}
	w.b = appendString(w.b, f.Name)
	w.values(f.Inputs, true)
	w.values(f.States, true)
	for _, v := range f.States {
		w.b = appendValue(w.b, reflect.ValueOf(*v.State))
	}
	for _, n := range f.Nodes {
		w.b = AppendKey(w.b, n.Op)
		w.values(n.In, false)
		w.values(n.Out, true)
		w.b = appendString(w.b, n.Layer)
		w.b = binary.AppendUvarint(w.b, uint64(n.Block))
		w.b = appendValue(appendValue(w.b, reflect.ValueOf(n.Backward)), reflect.ValueOf(n.Clone))
		w.flush(4096)
	}
	for _, o := range f.Outputs {
		w.b = appendString(w.b, o.Name)
		w.values([]*Value{o.Value}, false)
	}
	w.b = binary.AppendUvarint(w.b, uint64(f.nextID))
	w.flush(0)
	w.hash.Sum(sum[:0])
	return sum
}

// writer hashes what is appended to b.
type writer struct {
	hash hash.Hash
	b    []byte
}

// flush hashes b once it has at least the given number of bytes.
func (w *writer) flush(least int) {
	if len(w.b) >= least {
		w.hash.Write(w.b)
		w.b = w.b[:0]
	}
}

// values appends the IDs of values and, where they are defined, their definitions.
func (w *writer) values(vs []*Value, defined bool) {
	w.b = binary.AppendUvarint(w.b, uint64(len(vs)))
	for _, v := range vs {
		w.b = binary.AppendUvarint(w.b, uint64(v.ID))
		if defined {
			w.b = appendType(appendString(w.b, v.Name), v.Type)
		}
	}
}
