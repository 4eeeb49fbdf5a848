package train

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
)

// The serial form of an accumulator: a magic word, the version, the form of a record, the
// number of records, the records, and a checksum. Records are structs of exported fields:
// booleans, integers, floats, and slices and structs of them. A slice that is nil stays
// nil.
const (
	serialMagic   = "snugeval"
	serialVersion = 1
	maxSerial     = 1 << 30 // bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary returns the serial form, for [Records.MergeBinary] in another process.
func (a *Records[R]) MarshalBinary() ([]byte, error) {
	of := reflect.TypeFor[R]()
	form, _, err := recordForm(of)
	if err != nil {
		return nil, err
	}
	b := append([]byte(serialMagic), serialVersion)
	b = appendString(b, form)
	b = binary.AppendUvarint(b, uint64(len(a.list)))
	for i := range a.list {
		b = binary.AppendUvarint(b, uint64(a.list[i].n))
		b = appendValue(b, reflect.ValueOf(&a.list[i].r).Elem())
	}
	if len(b) > maxSerial-4 {
		return nil, fmt.Errorf("train: the records of %d micro-batches take %d bytes, more than the %d allowed; evaluate less (training.eval_batches)", len(a.list), len(b), maxSerial)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)), nil
}

// MergeBinary merges the serial form of another part of the same evaluation. If it is
// damaged, of another version or of another evaluation, it is refused as a whole.
func (a *Records[R]) MergeBinary(b []byte) error {
	list, err := parseRecords[R](b)
	if err != nil {
		return fmt.Errorf("train: the records of another process: %w", err)
	}
	return a.merge(list)
}

func parseRecords[R any](b []byte) ([]record[R], error) {
	of := reflect.TypeFor[R]()
	form, least, err := recordForm(of)
	if err != nil {
		return nil, err
	}
	const head = len(serialMagic)
	switch {
	case len(b) > maxSerial:
		return nil, fmt.Errorf("%d bytes, more than the %d allowed", len(b), maxSerial)
	case len(b) < head+1+4:
		return nil, fmt.Errorf("cut off: %d bytes", len(b))
	case string(b[:head]) != serialMagic:
		return nil, fmt.Errorf("starts with %q, expected %q", b[:head], serialMagic)
	case b[head] != serialVersion:
		return nil, fmt.Errorf("version %d, this snug reads %d: run the same version of snug everywhere", b[head], serialVersion)
	}
	body := b[:len(b)-4]
	if got, want := crc32.Checksum(body, castagnoli), binary.LittleEndian.Uint32(b[len(body):]); got != want {
		return nil, fmt.Errorf("damaged: checksum %08x, expected %08x", got, want)
	}
	d := &decoder{rest: body[head+1:]}
	if got := d.string(); d.err == nil && got != form {
		return nil, fmt.Errorf("of another evaluation: records of %s, expected %s", got, form)
	}
	list := make([]record[R], d.length(least+1))
	last := -1
	for i := range list {
		n := d.uvarint()
		if d.err == nil && (n > math.MaxInt32 || int(n) <= last) {
			d.fail(fmt.Errorf("micro-batch %d comes after %d", n, last))
		}
		last = int(n)
		list[i].n = last
		d.value(reflect.ValueOf(&list[i].r).Elem())
	}
	if d.err == nil && len(d.rest) > 0 {
		d.fail(fmt.Errorf("%d bytes too many", len(d.rest)))
	}
	return list, d.err
}

// recordForm describes what values of a type consist of, and returns the fewest bytes
// that one takes, which bounds the length of a slice.
func recordForm(t reflect.Type) (form string, least int, err error) {
	switch t.Kind() {
	case reflect.Bool:
		return "bool", 1, nil
	case reflect.Int, reflect.Int32, reflect.Int64:
		return t.Kind().String(), 1, nil
	case reflect.Float32:
		return "float32", 4, nil
	case reflect.Float64:
		return "float64", 8, nil
	case reflect.Slice:
		form, _, err := recordForm(t.Elem())
		return "[]" + form, 1, err
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			part, n, err := recordForm(f.Type)
			if err == nil && !f.IsExported() {
				err = fmt.Errorf("train: field %s of %v is not exported, so it has no serial form", f.Name, t)
			}
			if err != nil {
				return "", 0, err
			}
			form, least = form+f.Name+" "+part+";", least+n
		}
		if least > 0 {
			return "{" + form + "}", least, nil
		}
	}
	return "", 0, fmt.Errorf("train: a record of type %v has no serial form", t)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Float32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v.Float())))
	case reflect.Float64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(v.Float()))
	case reflect.Slice:
		if v.IsNil() {
			return append(b, 0)
		}
		b = binary.AppendUvarint(b, uint64(v.Len())+1)
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	}
	return binary.AppendVarint(b, v.Int())
}

// decoder reads the serial form; after its first error it reads nothing.
type decoder struct {
	rest []byte
	err  error
}

var errCut = errors.New("cut off")

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.rest = nil
}

func (d *decoder) take(n int) []byte {
	if n > len(d.rest) {
		d.fail(errCut)
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) uvarint() uint64 {
	x, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail(errCut)
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

// length reads the length of a list whose elements take at least that many bytes each.
func (d *decoder) length(least int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/least) {
		d.fail(fmt.Errorf("%d elements in %d bytes", n, len(d.rest)))
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.length(1)
	return string(d.take(n))
}

func (d *decoder) value(v reflect.Value) {
	if d.err != nil {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		b := d.take(1)[0]
		if b > 1 {
			d.fail(fmt.Errorf("%d is not a boolean", b))
		}
		v.SetBool(b == 1)
	case reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(binary.LittleEndian.Uint32(d.take(4)))))
	case reflect.Float64:
		v.SetFloat(math.Float64frombits(binary.LittleEndian.Uint64(d.take(8))))
	case reflect.Slice:
		d.slice(v)
	case reflect.Struct:
		for i := range v.NumField() {
			d.value(v.Field(i))
		}
	default:
		x, n := binary.Varint(d.rest)
		if n <= 0 || v.OverflowInt(x) {
			d.fail(errCut)
			return
		}
		d.rest = d.rest[n:]
		v.SetInt(x)
	}
}

// slice reads 0 for nil, or one more than the length, and the elements.
func (d *decoder) slice(v reflect.Value) {
	n := d.uvarint()
	if n == 0 {
		return
	}
	_, least, _ := recordForm(v.Type().Elem()) // the type is known to have one
	if n-1 > uint64(len(d.rest)/least) {
		d.fail(fmt.Errorf("%d elements in %d bytes", n-1, len(d.rest)))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), int(n-1), int(n-1)))
	for i := range int(n - 1) {
		d.value(v.Index(i))
	}
}
