package safetensors

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// encode writes x in a format, at index i.
func encode(d DType, data []byte, i int, x float64) {
	le := binary.LittleEndian
	bits := math.Float32bits(float32(x))
	switch d {
	case F16: // only the exponent and what distinguishes NaN from the infinities count here
		h := uint16(bits>>16) & 0x8000
		switch {
		case math.IsNaN(x):
			h |= 0x7e00
		case math.IsInf(x, 0):
			h |= 0x7c00
		default:
			h |= 0x7bff
		}
		le.PutUint16(data[2*i:], h)
	case BF16:
		le.PutUint16(data[2*i:], uint16(bits>>16))
	case F32:
		le.PutUint32(data[4*i:], bits)
	case C64:
		le.PutUint32(data[8*i+4:], bits)
	case F64:
		le.PutUint64(data[8*i:], math.Float64bits(x))
	}
}

// Each value that is not finite is found wherever it is, and the largest numbers
// are not mistaken for one.
func TestNonFinite(t *testing.T) {
	largest := map[DType]float64{F16: 65504, BF16: math.Float64frombits(0x47efe00000000000), F32: math.MaxFloat32, C64: math.MaxFloat32, F64: math.MaxFloat64}
	for d, top := range largest {
		for _, n := range []int{0, 1, 2, 3, 7, 8, 9, 31, 32, 33, 100} {
			data := make([]byte, n*d.Bits()/8)
			for i := range n {
				encode(d, data, i, top*float64(1-2*(i%2)))
			}
			if bad, found := NonFinite(d, data); found {
				t.Fatalf("%v: of %d largest numbers %+v is found", d, n, bad)
			}
			for i := range n {
				for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					damaged := append([]byte{}, data...)
					encode(d, damaged, i, x)
					bad, found := NonFinite(d, damaged)
					if !found || bad.Count != 1 || bad.First != i || math.IsNaN(bad.Value) != math.IsNaN(x) || !math.IsNaN(x) && bad.Value != x {
						t.Fatalf("%v: %v at %d of %d: %+v, %v", d, x, i, n, bad, found)
					}
				}
			}
		}
	}
	noise := make([]byte, 64)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for _, d := range []DType{BOOL, U8, I32, U64, F8E4M3} {
		if _, found := NonFinite(d, append(noise, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)); found {
			t.Errorf("%v has values that are no numbers", d)
		}
	}
}

// A tensor with a value that is not finite is refused with its file and name, even if it
// is not finite only as float32.
func TestTensorFinite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	raw := make([]byte, 24)
	for i, x := range []float64{1, -math.MaxFloat32, 1e300} {
		binary.LittleEndian.PutUint64(raw[8*i:], math.Float64bits(x))
	}
	if err := WriteFile(path, []Entry{{Name: "w", DType: F64, Shape: []int{3}, Data: raw}, {Name: "v", DType: F64, Shape: []int{2}, Data: raw[:16]}}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, want := range map[string]string{"v": "", "w": "has 1 values that are NaN or infinite, the first is +Inf, value 2"} {
		x, err := f.Tensor(name)
		if err == nil {
			err = x.Finite()
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), `"w"`)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
