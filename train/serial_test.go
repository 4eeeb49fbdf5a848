package train

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

type everything struct {
	Flag   bool
	Count  int
	Small  int32
	Loss   float64
	Score  float32
	Losses []float64
	Rows   []rows
}

type rows struct {
	Index  []int
	Right  []bool
	Margin float32
}

func someRecords() *Records[everything] {
	a := &Records[everything]{}
	for n := range 4 {
		r := everything{Flag: n%2 == 0, Count: -n << 40, Small: math.MinInt32 + int32(n), Loss: 1 / float64(n), Score: float32(math.Copysign(0, -1)), Losses: []float64{}}
		if n > 1 {
			r.Losses = []float64{math.NaN(), math.Inf(-1), 0.1}
			r.Rows = []rows{{[]int{n, -1}, []bool{true, false}, 0.3}, {}}
		}
		a.Add(3*n, r)
	}
	return a
}

func TestRecordsInSerialForm(t *testing.T) {
	a := someRecords()
	b, err := a.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	got := &Records[everything]{}
	if err := got.MergeBinary(b); err != nil {
		t.Fatal(err)
	}
	again, err := got.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again, b) {
		t.Error("what came back has another serial form")
	}
	for i, x := range got.list {
		want := a.list[i]
		if x.n != want.n || (x.r.Losses == nil) != (want.r.Losses == nil) || (x.r.Rows == nil) != (want.r.Rows == nil) || len(x.r.Losses) != len(want.r.Losses) {
			t.Errorf("%+v became %+v", want, x)
		}
		if len(x.r.Losses) == 0 && !reflect.DeepEqual(x, want) { // NaN is not equal to itself
			t.Errorf("%+v became %+v", want, x)
		}
	}
	empty, err := (&Records[everything]{}).MarshalBinary()
	if err == nil {
		err = got.MergeBinary(empty)
	}
	if err != nil || len(got.list) != 4 {
		t.Errorf("a part without micro-batches: %v, %d records", err, len(got.list))
	}
	if err := got.MergeBinary(b); err == nil || !strings.Contains(err.Error(), "recorded twice") || len(got.list) != 4 {
		t.Errorf("the same part again: %v, %d records", err, len(got.list))
	}
}

// resealed is a serial form after a change, with its new checksum.
func resealed(b []byte, change func([]byte) []byte) []byte {
	body := change(slices.Clone(b[:len(b)-4]))
	return binary.LittleEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
}

func TestSerialFormRefuses(t *testing.T) {
	b, err := someRecords().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, b []byte, want string) {
		t.Helper()
		a := &Records[everything]{}
		if err := a.MergeBinary(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if len(a.list) != 0 {
			t.Errorf("%s left %d records", what, len(a.list))
		}
	}
	for n := range b {
		refused("cut off", b[:n], "")
		flipped := slices.Clone(b)
		flipped[n] ^= 1
		refused("a bit that flipped", flipped, "")
	}
	refused("nothing", nil, "cut off")
	refused("another magic", append([]byte("snugdata"), b[8:]...), "expected \"snugeval\"")
	refused("a later version", resealed(b, func(b []byte) []byte { b[8]++; return b }), "version 2, this snug reads 1")
	refused("more than there is", resealed(b, func(b []byte) []byte { return append(b, 0) }), "1 bytes too many")
	other, err := (&Records[float64]{list: []record[float64]{{0, 1}}}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refused("another evaluation", other, "records of float64, expected {Flag bool;")
	form, _, _ := recordForm(reflect.TypeFor[everything]())
	head := len(appendString(append([]byte(serialMagic), serialVersion), form))
	refused("more records than bytes", resealed(b, func(b []byte) []byte {
		return binary.AppendUvarint(b[:head], math.MaxUint64)
	}), "18446744073709551615 elements in 0 bytes")
	refused("the same micro-batch twice", resealed(b, func(b []byte) []byte {
		one := b[head+1:][:1+1+1+5+8+4+1+1] // number, Flag, Count, Small, Loss, Score, Losses, Rows
		return slices.Concat(b[:head], []byte{2}, one, one)
	}), "micro-batch 0 comes after 0")
	// Whatever follows a valid head is refused or read, and never allocates more than the
	// bytes account for.
	for i := range 2000 {
		noise := binary.LittleEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15)
		_ = new(Records[everything]).MergeBinary(resealed(b, func(b []byte) []byte {
			at := head + i%(len(b)-head)
			copy(b[at:], noise)
			return b
		}))
	}
}

func TestNoSerialForm(t *testing.T) {
	type hidden struct{ x int }
	_ = hidden{}.x
	if _, err := (&Records[hidden]{}).MarshalBinary(); err == nil || !strings.Contains(err.Error(), "field x of train.hidden is not exported") {
		t.Error(err)
	}
	if _, err := (&Records[struct{ P *int }]{}).MarshalBinary(); err == nil || !strings.Contains(err.Error(), "type *int has no serial form") {
		t.Error(err)
	}
	if _, err := (&Records[struct{ E []struct{} }]{}).MarshalBinary(); err == nil {
		t.Error("a list of nothing has no bound")
	}
}
