package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
)

// The bytes of both formats, and the numbers that they stand for, are bitsandbytes'
// (tools/goldens/quant.py).
func TestBitsandbytes(t *testing.T) {
	f, err := safetensors.Open("testdata/bitsandbytes.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw := func(name string) safetensors.Tensor {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	floats := func(name string) []float32 {
		x := raw(name)
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		out := make([]float32, n)
		if err := x.Float32s(out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, name := range []string{"rows", "few", "odd", "nested"} {
		shape := raw(name + ".x").Shape
		x := floats(name + ".x")
		near := func(what string, got, want []float32, within float64) {
			t.Helper()
			if len(got) != len(want) {
				t.Fatalf("%s: %s has %d elements, want %d", name, what, len(got), len(want))
			}
			for i := range got {
				if d := math.Abs(float64(got[i] - want[i])); d > within*math.Abs(float64(want[i])) {
					t.Fatalf("%s: %s[%d] is %v, want %v", name, what, i, got[i], want[i])
				}
			}
		}
		bytes := func(what string, got, want []byte) {
			t.Helper()
			if string(got) != string(want) {
				t.Errorf("%s: %s differs", name, what)
			}
		}
		m := Matrix{NF4, shape[0], shape[1]}
		b := make([]byte, m.Bytes())
		m.Encode(b, x)
		nested, mean, codes := m.Parts()
		bytes("nf4.codes", b[:(len(x)+1)/2], raw(name+".nf4.codes").Data)
		bytes("nf4.scales", b[codes:], raw(name+".nf4.scales").Data)
		// The mean is a sum in another order, and the largest difference from it follows.
		near("nf4.mean", []float32{float(b[mean:])}, floats(name+".nf4.mean"), 0x1p-22)
		for i, want := range floats(name + ".nf4.nested") {
			near("nf4.nested", []float32{float(b[nested+4*i:])}, []float32{want}, 0x1p-20)
		}
		got := make([]float32, len(x))
		m.Decode(got, b, 0)
		near("nf4.values", got, floats(name+".nf4.values"), 0x1p-20)

		m.Format = Int8
		b = make([]byte, m.Bytes())
		m.Encode(b, x)
		bytes("int8.codes", b[:len(x)], raw(name+".int8.codes").Data)
		bytes("int8.tops", b[m.Codes():], raw(name+".int8.tops").Data)
		m.Decode(got, b, 0)
		near("int8.values", got, floats(name+".int8.values"), 0)
	}
}

// Any part decodes to the same as within the whole, and decoded elements encode to the
// same codes.
func TestParts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range []Matrix{{NF4, 5, 37}, {NF4, 300, 64}, {NF4, 1, 1}, {NF4, 2, 0}, {Int8, 5, 37}, {Int8, 3, 0}} {
		x := make([]float32, m.Elems())
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		b := make([]byte, m.Bytes())
		m.Encode(b, x)
		whole := make([]float32, len(x))
		m.Decode(whole, b, 0)
		for range 50 {
			from := rng.IntN(len(x) + 1)
			n := rng.IntN(len(x) - from + 1)
			part := make([]float32, n)
			m.Decode(part, b, from)
			for i, v := range part {
				if v != whole[from+i] {
					t.Fatalf("%v: element %d is %v in the part from %d on, %v in the whole", m, from+i, v, from, whole[from+i])
				}
			}
		}
		for i, v := range whole {
			if d := math.Abs(float64(v - x[i])); d > 0.8 {
				t.Fatalf("%v: %v became %v", m, x[i], v)
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range []Matrix{{NF4, 64, 2048}, {Int8, 64, 2048}} {
		for _, n := range []int{32, 2048} {
			b.Run(map[Format]string{NF4: "nf4", Int8: "int8"}[m.Format]+map[int]string{32: "/32", 2048: "/2048"}[n], func(b *testing.B) {
				src, dst := make([]byte, m.Bytes()), make([]float32, n)
				b.SetBytes(4 * int64(m.Elems()))
				for range b.N {
					for at := 0; at < m.Elems(); at += n {
						m.Decode(dst, src, at)
					}
				}
			})
		}
	}
}
