package npz

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/snug-ml/snug/data/npz/npztest"
	"pgregory.net/rapid"
)

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

// decode reads a .npy file whose elements take at most limit bytes.
func decode(r io.Reader, limit int64) (*Array, error) {
	e, err := newElements(r)
	if err != nil {
		return nil, err
	}
	return e.array(limit)
}

// npy is a .npy file with a header written by hand.
func npy(version byte, dict, elements string) string {
	var b bytes.Buffer
	b.WriteString(magic)
	b.Write([]byte{version, 0})
	if version == 1 {
		b.Write(binary.LittleEndian.AppendUint16(nil, uint16(len(dict))))
	} else {
		b.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(dict))))
	}
	return b.String() + dict + elements
}

func archive(t testing.TB, method uint16, members map[string]string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "a.npz")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for n, body := range members {
		w, err := z.CreateHeader(&zip.FileHeader{Name: n, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

// Headers as written by NumPy, in each version, order and byte order.
func TestDecode(t *testing.T) {
	six := "\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00\x06\x00\x00\x00"
	for _, test := range []struct {
		file string
		want Array
	}{
		{npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }   \n", six),
			Array{Int32, []int{2, 3}, []int32{1, 2, 3, 4, 5, 6}}},
		{npy(2, "{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n", six),
			Array{Int32, []int{2, 3}, []int32{1, 3, 5, 2, 4, 6}}},
		{npy(3, `{"shape": (6,), "descr": "<i4", "fortran_order": False}`, six),
			Array{Int32, []int{6}, []int32{1, 2, 3, 4, 5, 6}}},
		{npy(1, "{'descr': '>i4', 'fortran_order': False, 'shape': (1L,), }", "\x00\x00\x01\x02"),
			Array{Int32, []int{1}, []int32{258}}},
		{npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", "\xff\xff\xff\xff\xff\xff\xff\xff"),
			Array{Int64, []int{}, []int64{-1}}},
		{npy(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", "\x00\x01\x01"),
			Array{Bool, []int{3}, []bool{false, true, true}}},
		{npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", "\x00\xff"),
			Array{Uint8, []int{2}, []uint8{0, 255}}},
		{npy(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", "\x00\x3c"),
			Array{Float16, []int{1}, []uint16{0x3c00}}},
		{npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "\x00\x00\x80\x3f"),
			Array{Float32, []int{1}, []float32{1}}},
		{npy(1, "{'descr': '>f8', 'fortran_order': False, 'shape': (1,), }", "\x3f\xf0\x00\x00\x00\x00\x00\x00"),
			Array{Float64, []int{1}, []float64{1}}},
		{npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7), }", ""),
			Array{Float64, []int{0, 7}, []float64{}}},
	} {
		got, err := decode(strings.NewReader(test.file), 1000)
		if err != nil {
			t.Errorf("%q: %v", test.file, err)
			continue
		}
		if d := cmp.Diff(&test.want, got); d != "" {
			t.Errorf("%q: %s", test.file, d)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	dict := func(descr, order, shape string) string {
		return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }"
	}
	for _, test := range []struct{ file, want string }{
		{"", "no .npy header"},
		{"PK\x03\x04xxxx", "not an .npy array"},
		{npy(4, "", ""), "version 4.0"},
		{npy(1, dict("'|O'", "False", "(1,)"), "x"), "pickled"},
		{npy(1, dict("'<U5'", "False", "(1,)"), ""), `"<U5"`},
		{npy(1, dict("'<i2'", "False", "(1,)"), ""), `"<i2"`},
		{npy(1, dict("[('a', '<i4')]", "False", "(1,)"), ""), "structured"},
		{npy(1, dict("'<i4'", "Maybe", "(1,)"), ""), "neither True nor False"},
		{npy(1, dict("'<i4'", "False", "(-1,)"), ""), "want a size"},
		{npy(1, dict("'<i4'", "False", "(99999999999999999999,)"), ""), "want a size"},
		{npy(1, dict("'<i4'", "False", "(4000000000, 4000000000)"), ""), "larger than any memory"},
		{npy(1, dict("'<i4'", "False", "(0, 4000000000, 4000000000)"), ""), "larger than any memory"},
		{npy(1, dict("'<i4'", "False", "("+strings.Repeat("1,", 65)+")"), ""), "64 dimensions"},
		{npy(1, dict("'<i4'", "False", "(1000,)"), ""), "4000 bytes, more than the 1000"},
		{npy(1, dict("'<i4'", "False", "(2,)"), "1234"), "cut off after 0 of 2"},
		{npy(1, dict("'<i4'", "False", "(1,)"), "12345"), "more bytes"},
		{npy(1, "{'descr': '<i4', 'descr': '<i4'}", ""), "twice"},
		{npy(1, "{'descr': '<i4'}", ""), "found 1"},
		{npy(1, "{'color': 1}", ""), "unknown key"},
		{npy(1, dict("'<i4'", "False", "(1,)")+" import os", "1234"), "after the dictionary"},
		{npy(1, "{'descr': '<i4", ""), "without an end"},
		{npy(1, "\xff\xfe", ""), "not UTF-8"},
		{magic + "\x02\x00\xff\xff\xff\x7f", "claims 2147483647 bytes"},
		{npy(1, dict("'<i4'", "False", "(1,)"), "")[:20], "cut off"},
	} {
		_, err := decode(strings.NewReader(test.file), 1000)
		wantError(t, err, test.want)
	}
}

// A shape that claims a gigabyte costs only as much as its actual bytes.
func TestClaimsAreNotAllocated(t *testing.T) {
	file := npy(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (134217728,), }", "12345678")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decode(strings.NewReader(file), math.MaxInt64)
	runtime.ReadMemStats(&after)
	wantError(t, err, "cut off")
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes allocated for a file of %d", n, len(file))
	}
}

func TestRoundTrip(t *testing.T) {
	big := make([]int32, 700_000) // more than a chunk
	for i := range big {
		big[i] = int32(i * i)
	}
	arrays := map[string]Array{
		"b": {Bool, []int{2, 1}, []bool{true, false}},
		"u": {Uint8, []int{3}, []uint8{1, 2, 255}},
		"i": {Int32, []int{7, 100_000}, big},
		"l": {Int64, []int{2}, []int64{math.MinInt64, math.MaxInt64}},
		"h": {Float16, []int{1}, []uint16{0x7bff}},
		"f": {Float32, []int{1, 1, 2}, []float32{float32(math.Inf(1)), -0.5}},
		"d": {Float64, []int{}, []float64{math.Pi}},
	}
	name := filepath.Join(t.TempDir(), "a.npz")
	out, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := npztest.NewWriter(out)
	for n, a := range arrays {
		if err := w.Write(n, a.Shape, a.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	if d := cmp.Diff([]string{"b", "d", "f", "h", "i", "l", "u"}, f.Names()); d != "" {
		t.Error(d)
	}
	for n, want := range arrays {
		h, err := f.Header(n)
		if err != nil || h.DType != want.DType || !cmp.Equal(h.Shape, want.Shape) {
			t.Errorf("%s: header %+v, %v", n, h, err)
		}
		got, err := f.Read(n, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(&want, got); d != "" {
			t.Errorf("%s: %s", n, d)
		}
		var one bytes.Buffer
		if err := npztest.Encode(&one, want.Shape, want.Data); err != nil {
			t.Fatal(err)
		}
		if got, err = decode(&one, 1<<30); err != nil || cmp.Diff(&want, got) != "" {
			t.Errorf("%s alone: %v", n, err)
		}
	}
	_, err = f.Read("x", 1)
	wantError(t, err, `no array "x"`, "b, d, f")
}

func TestFortranAgainstIndexing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 4).Draw(t, "shape")
		n := (&Header{Shape: shape}).Len()
		in := make([]int, n)
		for i := range in {
			in[i] = i
		}
		out := transpose(in, shape)
		for i, v := range out {
			// Index of place i in C order, then its place in Fortran order.
			rest, at, stride := i, 0, 1
			index := make([]int, len(shape))
			for d := len(shape) - 1; d >= 0; d-- {
				index[d] = rest % shape[d]
				rest /= shape[d]
			}
			for d, x := range index {
				at += x * stride
				stride *= shape[d]
			}
			if v != at {
				t.Fatalf("shape %v place %d: %d, want %d", shape, i, v, at)
			}
		}
	})
}

func TestRows(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		name := archive(t, method, map[string]string{
			"ids.npy":  npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 1), }", "\x05\x00\x00\x00\x00\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00"),
			"big.npy":  npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }", "\x00\x00\x00\x80\x00\x00\x00\x00"),
			"f.npy":    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "1234"),
			"t.npy":    npy(1, "{'descr': '<i4', 'fortran_order': True, 'shape': (1, 1), }", "1234"),
			"none.npy": npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (1000000000000, 0), }", ""),
			"cut.npy":  npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }", "1234"),
			"long.npy": npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 1), }", "12345"),
		})
		f, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		read := func(array string) ([]int32, error) {
			r, err := f.Rows(array)
			if err != nil {
				return nil, err
			}
			defer func() { _ = r.Close() }()
			var all []int32
			for {
				if all, err = r.Next(all); err == io.EOF {
					return all, nil
				} else if err != nil {
					return all, err
				}
			}
		}
		if got, err := read("ids"); err != nil || !cmp.Equal(got, []int32{5, 6}) {
			t.Errorf("%v, %v", got, err)
		}
		for array, want := range map[string]string{
			"big": "2147483648 does not fit", "f": "want whole numbers", "t": "Fortran", "none": "empty rows", "cut": "row 1: cut off", "long": "more bytes",
		} {
			_, err := read(array)
			wantError(t, err, "a.npz: "+array, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestArchiveErrors(t *testing.T) {
	good := npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }", "1234")
	name := archive(t, zip.Store, map[string]string{"a.npy": good})
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(raw, []byte("1234"))
	raw[at] ^= 1
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Read("a", 100)
	wantError(t, err, "checksum")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	_, err = Open(archive(t, zip.Store, map[string]string{"a.npy": good, "a": good}))
	wantError(t, err, `"a" twice`)
	if err := os.WriteFile(name, []byte("no zip"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Open(name)
	wantError(t, err, name, "zip")
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", "12345678")))
	f.Add([]byte(npy(3, "{'descr': '>f8', 'fortran_order': True, 'shape': (1, 2), }", "1234567812345678")))
	f.Add([]byte(npy(2, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }", "1")))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decode(bytes.NewReader(b), 1<<20)
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := npztest.Encode(&again, a.Shape, a.Data); err != nil {
			t.Fatal(err)
		}
		c, err := decode(&again, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		// NaN is not equal to itself, but prints the same.
		if !cmp.Equal(a.Shape, c.Shape) || a.DType != c.DType {
			t.Fatalf("%+v, after writing and reading %+v", a, c)
		}
	})
}

func FuzzOpen(f *testing.F) {
	good := npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 1), }", "12345678")
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		raw, err := os.ReadFile(archive(f, method, map[string]string{"a.npy": good}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(dir, "fuzz.npz")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		z, err := Open(name)
		if err != nil {
			return
		}
		defer func() { _ = z.Close() }()
		for _, n := range z.Names() {
			if _, err := z.Read(n, 1<<20); err != nil {
				continue
			}
			if r, err := z.Rows(n); err == nil {
				for err == nil {
					_, err = r.Next(nil)
				}
				_ = r.Close()
			}
		}
	})
}
