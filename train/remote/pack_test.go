package remote

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"pgregory.net/rapid"
)

func TestPackRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stretches []region
		var src []byte
		for range rapid.IntRange(0, 5).Draw(t, "regions") {
			r := region{int64(rapid.IntRange(0, 3000).Draw(t, "size")), rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "stride")}
			stretches = append(stretches, r)
			src = append(src, rapid.SliceOfN(rapid.Byte(), int(r.size), int(r.size)).Draw(t, "bytes")...)
		}
		var a, b, out bytes.Buffer
		if err := pack(&a, bytes.NewReader(src), stretches); err != nil {
			t.Fatal(err)
		}
		if err := pack(&b, bytes.NewReader(src), stretches); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("not the same twice: %v", err)
		}
		if err := unpack(&out, bytes.NewReader(a.Bytes()), int64(len(src))); err != nil || !bytes.Equal(out.Bytes(), src) {
			t.Fatalf("came back changed: %v", err)
		}
		for _, size := range []int64{int64(len(src)) - 1, int64(len(src)) + 1} {
			if err := unpack(&out, bytes.NewReader(a.Bytes()), size); err == nil {
				t.Fatalf("%d bytes accepted as %d", len(src), size)
			}
		}
	})
}

// TestPackGains: the shuffle saves space. Data spans several blocks.
func TestPackGains(t *testing.T) {
	for d, most := range map[safetensors.DType]float64{safetensors.BF16: 0.74, safetensors.F32: 0.88} {
		w := gaussian("w", d, 3<<20, 1)
		var file, packed, out bytes.Buffer
		if _, err := safetensors.Write(&file, []safetensors.Entry{{Name: "w", DType: d, Shape: w.Shape, Data: w.Data}}, nil); err != nil {
			t.Fatal(err)
		}
		size := int64(file.Len())
		tensors, _, err := safetensors.ReadHeader(bytes.NewReader(file.Bytes()), size)
		if err != nil {
			t.Fatal(err)
		}
		if err := pack(&packed, bytes.NewReader(file.Bytes()), regions(tensors, size)); err != nil {
			t.Fatal(err)
		}
		ratio := float64(packed.Len()) / float64(size)
		t.Logf("%s: %.3f of its size", d, ratio)
		if ratio > most {
			t.Errorf("%s: packed to %.3f, want at most %.2f", d, ratio, most)
		}
		if err := unpack(&out, &packed, size); err != nil || !bytes.Equal(out.Bytes(), file.Bytes()) {
			t.Errorf("%s came back changed: %v", d, err)
		}
	}
}

func TestRegions(t *testing.T) {
	info := func(d safetensors.DType, size int64) safetensors.Info { return safetensors.Info{DType: d, Size: size} }
	got := regions([]safetensors.Info{info(safetensors.F32, 8), info(safetensors.I32, 4), info(safetensors.BF16, 6), info(safetensors.F4, 3)}, 121)
	want := []region{{100, 1}, {12, 4}, {6, 2}, {3, 1}}
	if len(got) != len(want) {
		t.Fatal(got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func block(raw, packed uint32, stride, kind byte, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(packMagic), raw)
	b = binary.LittleEndian.AppendUint32(b, packed)
	return append(append(b, stride, kind), body...)
}

func TestUnpackRefuses(t *testing.T) {
	bomb := encoder().EncodeAll(make([]byte, 64<<20), nil)
	for want, raw := range map[string][]byte{
		"not a packed file":        []byte("PK"),
		"ends before its end mark": []byte(packMagic),
		"is not valid":             block(1<<30, 5, 1, kindZstd, nil),
		"packed to 4294967295":     block(1, 1<<32-1, 1, kindZstd, nil),
		"stride 0":                 block(1, 1, 0, kindStored, nil),
		"kind 7":                   block(1, 1, 1, 7, nil),
		"block of 2 bytes":         block(2, 1, 1, kindStored, nil),
		"more bytes than":          block(200, 200, 1, kindStored, nil),
		"ends inside a block":      block(10, 10, 1, kindStored, []byte("abc")),
		"ends 100 bytes early":     block(0, 0, 1, kindStored, nil),
		"packed file: ":            block(100, uint32(len(bomb)), 1, kindZstd, bomb),
		"has 3 bytes instead of 4": block(4, uint32(len(encoder().EncodeAll([]byte("abc"), nil))), 1, kindZstd, encoder().EncodeAll([]byte("abc"), nil)),
	} {
		var out bytes.Buffer
		err := unpack(&out, bytes.NewReader(raw), 100)
		if err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v, %d bytes out\nwant it to say %q", err, out.Len(), want)
		}
	}
	if err := unpack(&bytes.Buffer{}, bytes.NewReader(append(block(0, 0, 1, kindStored, nil), 'x')), 0); err == nil || !strings.Contains(err.Error(), "bytes after its end mark") {
		t.Error(err)
	}
}

func FuzzUnpack(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	src := make([]byte, 1000)
	for i := range src {
		src[i] = byte(r.IntN(3))
	}
	var b bytes.Buffer
	if err := pack(&b, bytes.NewReader(src), []region{{10, 1}, {990, 4}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), int64(1000))
	f.Add(block(0, 0, 1, kindStored, nil), int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, size int64) {
		var out bytes.Buffer
		if err := unpack(&out, bytes.NewReader(raw), size); err == nil && int64(out.Len()) != size {
			t.Errorf("%d bytes instead of %d", out.Len(), size)
		}
		if int64(out.Len()) > max(size, 0) {
			t.Errorf("wrote %d bytes of at most %d", out.Len(), size)
		}
	})
}

func BenchmarkPack(b *testing.B) {
	src := gaussian("w", safetensors.BF16, 8<<20, 1).Data
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		var out bytes.Buffer
		if err := pack(&out, bytes.NewReader(src), []region{{int64(len(src)), 2}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	src := gaussian("w", safetensors.BF16, 8<<20, 1).Data
	var packed bytes.Buffer
	if err := pack(&packed, bytes.NewReader(src), []region{{int64(len(src)), 2}}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		var out bytes.Buffer
		if err := unpack(&out, bytes.NewReader(packed.Bytes()), int64(len(src))); err != nil {
			b.Fatal(err)
		}
	}
}
