package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// file makes the bytes of a file from a header text and a number of zero data
// bytes.
func file(header string, data int) []byte {
	raw := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(raw, header...), make([]byte, data)...)
}

const oneF32 = `{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`

// abuse lists files that break one rule each, with a part of the message that
// a user must see.
var abuse = []struct {
	name string
	raw  []byte
	want string
}{
	{"empty", nil, "the file has 0 bytes"},
	{"short", []byte{1, 2, 3}, "the file has 3 bytes"},
	{"length only", file("", 0), "an empty one, {}, has 2"},
	{"1 GB claim in 1 KB", append(binary.LittleEndian.AppendUint64(nil, 1<<30), make([]byte, 1016)...), "claims 1073741824 bytes; the format allows 100000000"},
	{"99 MB claim in 1 KB", append(binary.LittleEndian.AppendUint64(nil, 99_000_000), make([]byte, 1016)...), "only 1016 follow"},
	{"huge claim", append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64), '{', '}'), "claims 18446744073709551615"},
	{"negative claim", append(binary.LittleEndian.AppendUint64(nil, 1<<63), '{', '}'), "the format allows"},
	{"space first", file(" {}", 0), "starts with ' '"},
	{"array", file("[]", 0), "starts with '['"},
	{"not UTF-8", file("{\"\xff\":1}", 0), "not valid UTF-8"},
	{"not closed", file(`{"w":`, 0), "want '{'"},
	{"open string", file(`{"w`, 0), "string is not closed"},
	{"open escape", file(`{"w\`, 0), "string is not closed"},
	{"bad escape", file(`{"w\q":{}}`, 0), "invalid character 'q'"},
	{"control character", file("{\"a\nb\":{}}", 0), "control character 0x0a"},
	{"trailing comma", file(`{"__metadata__":{},}`, 0), `want '"'`},
	{"second document", file(`{}{}`, 0), "only spaces may follow"},
	{"rubbish after", file("{}\x00\x00", 0), "only spaces may follow"},
	{"twice", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `tensor "w": the name appears twice`},
	{"twice by escape", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0077":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `tensor "w": the name appears twice`},
	{"key twice", file(`{"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `key "dtype" appears twice`},
	{"unknown key", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"code":"x"}}`, 1), `unknown key "code"`},
	{"no dtype", file(`{"w":{"shape":[1],"data_offsets":[0,1]}}`, 1), `tensor "w": dtype is missing`},
	{"no shape", file(`{"w":{"dtype":"U8","data_offsets":[0,1]}}`, 1), `shape is missing`},
	{"no offsets", file(`{"w":{"dtype":"U8","shape":[1]}}`, 1), `data_offsets is missing`},
	{"unknown dtype", file(`{"w":{"dtype":"F12","shape":[1],"data_offsets":[0,1]}}`, 1), `tensor "w": unknown dtype "F12"; known are BOOL F4`},
	{"null dtype", file(`{"w":{"dtype":null,"shape":[1],"data_offsets":[0,1]}}`, 1), `want '"', found 'n'`},
	{"negative dim", file(`{"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), `want a non-negative integer, found '-'`},
	{"fraction", file(`{"w":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), `found '.'`},
	{"exponent", file(`{"w":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, 1), `found 'e'`},
	{"leading zero", file(`{"w":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}`, 1), `leading zero`},
	{"dim over int64", file(`{"w":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]}}`, 1), `number is larger`},
	{"product overflows", file(`{"w":{"dtype":"U8","shape":[4294967296,4294967296,16],"data_offsets":[0,0]}}`, 0), `overflows: more than 2^64 elements`},
	{"bytes overflow", file(`{"w":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}}`, 0), `overflows: more than 2^62 bits`},
	{"half a byte", file(`{"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}}`, 2), `fills 12 bits`},
	{"three offsets", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), `data_offsets has 3 numbers`},
	{"backwards", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), `end before they begin`},
	{"size differs", file(`{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), `F32 of shape [2] needs 8 bytes, data_offsets has 4`},
	{"hole at the start", file(`{"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `begins at 1, but the tensors before it end at 0`},
	{"hole", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3), `tensor "b": begins at 2`},
	{"overlap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), `inside tensor "a"`},
	{"same place", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2), `inside tensor "a"`},
	{"truncated data", file(oneF32, 7), `tensor "w": ends at 8, but the file has 7 bytes of data: it is truncated`},
	{"surplus data", file(oneF32, 9), `1 bytes belong to no tensor`},
	{"data without tensors", file(`{}`, 5), `5 bytes belong to no tensor`},
	{"metadata number", file(`{"__metadata__":{"a":1}}`, 0), `key "a" must have a string value`},
	{"metadata nested", file(`{"__metadata__":{"a":{"b":"c"}}}`, 0), `key "a" must have a string value`},
	{"metadata list", file(`{"__metadata__":[]}`, 0), `__metadata__: header byte`},
	{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), `__metadata__ appears twice`},
	{"metadata key twice", file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `key "a" appears twice`},
	{"deep nesting", file(`{"w":`+strings.Repeat("[", 100000), 0), `want '{', found '['`},
}

func TestAbuseIsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, c := range abuse {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Parse(c.raw); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Parse: %v\nwant it to say %q", err, c.want)
			}
			path := filepath.Join(dir, strings.ReplaceAll(c.name, " ", "_"))
			if err := os.WriteFile(path, c.raw, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path)
			if e := (*Error)(nil); !errors.As(err, &e) || e.Path != path || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open: %v\nwant it to name the file and say %q", err, c.want)
			}
			if _, _, err := ReadHeader(bytes.NewReader(c.raw), int64(len(c.raw))); err == nil {
				t.Error("ReadHeader accepts it")
			}
		})
	}
}

func TestClaimAllocatesNothing(t *testing.T) {
	for _, claim := range []uint64{1 << 30, 99_999_999, math.MaxUint64} {
		raw := append(binary.LittleEndian.AppendUint64(nil, claim), make([]byte, 1016)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := ReadHeader(bytes.NewReader(raw), int64(len(raw)))
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("claim of %d accepted", claim)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("claim of %d bytes made the reader allocate %d", claim, got)
		}
	}
}

func TestLongMessagesAreClipped(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	_, err := Parse(file(`{"`+long+`":{"dtype":"`+long+`","shape":[1],"data_offsets":[0,1]}}`, 1))
	if err == nil || len(err.Error()) > 2000 {
		t.Errorf("message of %d bytes", len(fmt.Sprint(err)))
	}
}

// TestLenient lists what the format permits although this writer never does it.
func TestLenient(t *testing.T) {
	for name, raw := range map[string][]byte{
		"unpadded header":  file(oneF32, 8),
		"spaces inside":    file("{ \"w\" : { \"shape\" : [ 2 ] , \"data_offsets\" :\t[0 , 8],\n\"dtype\":\"F32\" } }  ", 8),
		"empty":            file("{}", 0),
		"scalar":           file(`{"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4),
		"empty tensors":    file(`{"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"c":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
		"by name":          file(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}`, 7),
		"offsets unsorted": file(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2),
		"metadata escapes": file(`{"__metadata__":{"a\"\u00e9":"\n"}}`, 0),
	} {
		if _, err := Parse(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func entries(r *rand.Rand) []Entry {
	var list []Entry
	for i, d := range dtypes {
		for j := range 2 {
			shape := []int{8, 1 + r.IntN(5)}[j:]
			shape[0] *= 4 // whole bytes for the small types
			size, err := DType(i).ByteSize(shape)
			if err != nil {
				panic(err)
			}
			data := make([]byte, size)
			for k := range data {
				data[k] = byte(r.Uint32())
			}
			list = append(list, Entry{Name: fmt.Sprintf("layer.%d.%s <&é\">", j, d.name), DType: DType(i), Shape: shape, Data: data})
		}
	}
	return list
}

func TestRoundTrip(t *testing.T) {
	list := entries(rand.New(rand.NewPCG(1, 2)))
	meta := map[string]string{"format": "pt", "z<>": "\"\n", "a": ""}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := WriteFile(path, list, meta); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if diff := cmp.Diff(meta, f.Metadata()); diff != "" {
		t.Error(diff)
	}
	if len(f.Tensors()) != len(list) || f.DataStart()%8 != 0 {
		t.Errorf("%d tensors of %d, data at %d", len(f.Tensors()), len(list), f.DataStart())
	}
	for _, e := range list {
		got, err := f.Tensor(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got.DType != e.DType || !cmp.Equal(got.Shape, e.Shape) || !bytes.Equal(got.Data, e.Data) {
			t.Errorf("%s came back changed", e.Name)
		}
	}
	infos := f.Tensors()
	for i := 1; i < len(infos); i++ {
		a, b := infos[i-1], infos[i]
		if a.DType < b.DType || a.DType == b.DType && a.Name >= b.Name {
			t.Errorf("%s %s before %s %s", a.DType, a.Name, b.DType, b.Name)
		}
	}
	size, err := FileSize(list, meta)
	if st, e := os.Stat(path); err != nil || e != nil || st.Size() != size {
		t.Errorf("FileSize %d, %v; the file: %v, %v", size, err, st, e)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	list := entries(rand.New(rand.NewPCG(3, 4)))
	var a, b bytes.Buffer
	if _, err := Write(&a, list, nil); err != nil {
		t.Fatal(err)
	}
	rand.New(rand.NewPCG(5, 6)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if _, err := Write(&b, list, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("files differ")
	}
}

func TestWriteRefuses(t *testing.T) {
	good := Entry{Name: "w", DType: U8, Shape: []int{1}, Data: []byte{1}}
	for want, list := range map[string][]Entry{
		"given twice":                      {good, good},
		"reserved":                         {{Name: MetadataKey, DType: U8, Shape: []int{1}, Data: []byte{1}}},
		"not valid UTF-8":                  {{Name: "\xff", DType: U8, Shape: []int{1}, Data: []byte{1}}},
		"needs 4 bytes, got 1":             {{Name: "w", DType: F32, Shape: []int{1}, Data: []byte{1}}},
		"negative dimension":               {{Name: "w", DType: F32, Shape: []int{-1}}},
		"unknown dtype":                    {{Name: "w", DType: 99}},
		"needs 4 bytes, 3 were emitted":    {{Name: "w", DType: F32, Shape: []int{1}, Emit: emit(3)}},
		"needs 4 bytes, 5 were emitted":    {{Name: "w", DType: F32, Shape: []int{1}, Emit: emit(5)}},
		`write tensor "w": unexpected EOF`: {{Name: "w", DType: F32, Shape: []int{1}, Emit: func(io.Writer) error { return io.ErrUnexpectedEOF }}},
	} {
		path := filepath.Join(t.TempDir(), "w.safetensors")
		if err := WriteFile(path, list, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant it to say %q", err, want)
		}
		left, err := os.ReadDir(filepath.Dir(path))
		if err != nil || len(left) != 0 {
			t.Errorf("%s: a failed write left %v %v", want, left, err)
		}
	}
}

func emit(n int) func(io.Writer) error {
	return func(w io.Writer) error {
		for range n {
			if _, err := w.Write([]byte{7}); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestEmitEqualsData(t *testing.T) {
	var a, b bytes.Buffer
	if _, err := Write(&a, []Entry{{Name: "w", DType: F32, Shape: []int{1}, Data: []byte{7, 7, 7, 7}}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(&b, []Entry{{Name: "w", DType: F32, Shape: []int{1}, Emit: emit(4)}}, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("files differ")
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestTensorAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	if err := os.WriteFile(path, file(oneF32, 8), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor("v"); err == nil || !strings.Contains(err.Error(), `tensor "v": is not among the file's 1 tensors`) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Tensor("w"); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestFloat32s(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		data  []byte
		want  float32
	}{
		{F32, binary.LittleEndian.AppendUint32(nil, math.Float32bits(-1.5)), -1.5},
		{F64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.0/3)), 1.0 / 3},
		{BF16, []byte{0xc0, 0xbf}, -1.5},
		{F16, []byte{0x00, 0xbe}, -1.5},
		{F16, []byte{0x01, 0x00}, 1.0 / (1 << 24)},
		{F16, []byte{0xff, 0x83}, -1023.0 / (1 << 24)},
		{F16, []byte{0xff, 0x7b}, 65504},
		{F16, []byte{0x00, 0xfc}, float32(math.Inf(-1))},
	} {
		var got [1]float32
		if err := (Tensor{Info: Info{DType: c.dtype}, Data: c.data}).Float32s(got[:]); err != nil || got[0] != c.want {
			t.Errorf("%s %x: %v %v, want %v", c.dtype, c.data, got[0], err, c.want)
		}
	}
	nan := [1]float32{}
	if err := (Tensor{Info: Info{DType: F16}, Data: []byte{0x01, 0x7e}}).Float32s(nan[:]); err != nil || nan[0] == nan[0] {
		t.Errorf("NaN became %v, %v", nan[0], err)
	}
	if err := (Tensor{Info: Info{Name: "w", DType: I64}, Data: make([]byte, 8)}).Float32s(nan[:]); err == nil || !strings.Contains(err.Error(), "I64 cannot be read as float32") {
		t.Error(err)
	}
	if err := (Tensor{Info: Info{Name: "w", DType: F32}, Data: make([]byte, 8)}).Float32s(nan[:]); err == nil || !strings.Contains(err.Error(), "has 2 elements") {
		t.Error(err)
	}
}

// TestRandomFiles: whatever is written is read back, whatever the shapes.
func TestRandomFiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.String().Filter(func(s string) bool { return s != MetadataKey }), 0, 6, rapid.ID[string]).Draw(t, "names")
		var list []Entry
		for _, name := range names {
			e := Entry{Name: name, DType: DType(rapid.IntRange(0, len(dtypes)-1).Draw(t, "dtype")), Shape: rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")}
			size, err := e.DType.ByteSize(e.Shape)
			if err != nil {
				e.DType = U8
				if size, err = U8.ByteSize(e.Shape); err != nil {
					t.Fatal(err)
				}
			}
			e.Data = rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
			list = append(list, e)
		}
		var b bytes.Buffer
		n, err := Write(&b, list, nil)
		if err != nil || n != int64(b.Len()) {
			t.Fatalf("%d of %d bytes, %v", n, b.Len(), err)
		}
		f, err := Parse(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			got, err := f.Tensor(e.Name)
			if err != nil || !bytes.Equal(got.Data, e.Data) || got.DType != e.DType {
				t.Fatalf("%q: %v", e.Name, err)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, c := range abuse {
		if len(c.raw) < 4096 {
			f.Add(c.raw)
		}
	}
	f.Add(file(oneF32, 8))
	f.Add(file(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}  `, 3))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file, err := Parse(raw)
		if err != nil {
			return
		}
		var list []Entry
		for _, info := range file.Tensors() {
			got, err := file.Tensor(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, Entry{Name: got.Name, DType: got.DType, Shape: got.Shape, Data: got.Data})
		}
		var b bytes.Buffer
		if _, err := Write(&b, list, file.Metadata()); err != nil {
			t.Fatalf("cannot write what was read: %v", err)
		}
		again, err := Parse(b.Bytes())
		if err != nil || len(again.Tensors()) != len(list) {
			t.Fatalf("cannot read what was written: %v", err)
		}
	})
}
