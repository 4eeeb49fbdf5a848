//go:build (amd64 || arm64) && !nocuda

package cublaslt

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// standin compiles testdata/standin.c to a library with a given name.
func standin(t *testing.T, name string, more ...string) string {
	t.Helper()
	return dynlibtest.Build(t, name, "testdata/standin.c", more...)
}

func address(v []float32) uint64 { return uint64(uintptr(unsafe.Pointer(&v[0]))) }

// Every argument arrives in C as the header says: products with all transposes, batched, with a bias and
// with C added, are those that Go computes.
func TestCallsArriveInC(t *testing.T) {
	path := standin(t, "libcublasLt.so.12")
	l, err := Open(12090, []string{path})
	if err != nil {
		t.Fatal(err)
	}
	if l.Version() != 120903 || VersionText(l.Version()) != "12.9.3" || l.Path() != path {
		t.Fatalf("%d at %s", l.Version(), l.Path())
	}
	h, err := New(l)
	if err != nil {
		t.Fatal(err)
	}
	const z, m, n, k = 2, 3, 4, 5
	numbers := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i*7%11) - 5
		}
		return x
	}
	const gap = 2
	a, b, bias, workspace := numbers(z*(m+gap)*(k+gap)), numbers(z*k*n), numbers(n), make([]float32, 4)
	for i := range 64 {
		p := Product{
			In: R32F, Out: R32F, TransA: i&1 != 0, TransB: i&2 != 0, Bias: i&4 != 0, Add: i&8 != 0,
			Batch: z, M: m, N: n, K: k, AlignA: 4, AlignB: 4, AlignD: 4,
		}
		if i == 5 {
			p.Batch = 1
		}
		rowsA, rowA := m, k
		if p.TransA {
			rowsA, rowA = k, m
		}
		if i&32 != 0 {
			rowA += gap
			p.PitchA = rowA
		}
		list, err := h.Candidates(p, 64)
		if err != nil || len(list) != 1 || list[0].Workspace != 16 {
			t.Fatalf("%v: %v, %v", p, list, err)
		}
		if w, ok, err := h.Check(p, list[0].Algorithm); w != 16 || !ok || err != nil {
			t.Errorf("%v: %d, %v, %v", p, w, ok, err)
		}
		if _, ok, err := h.Check(p, Algorithm{1}); ok || err != nil {
			t.Errorf("%v: an algorithm of nobody's is taken: %v", p, err)
		}
		d, want := numbers(z*m*n), numbers(z*m*n)
		c := d
		if i&16 != 0 { // C is not D
			c = numbers(z*m*n + 1)[1:]
		}
		for batch := range p.Batch {
			for row := range m {
				for col := range n {
					var sum float32
					for x := range k {
						at, bt := row*rowA+x, x*n+col
						if p.TransA {
							at = x*rowA + row
						}
						if p.TransB {
							bt = col*k + x
						}
						sum += a[batch*rowsA*rowA+at] * b[batch*k*n+bt]
					}
					if p.Bias {
						sum += bias[col]
					}
					to := batch*m*n + row*n + col
					if p.Add {
						sum += c[to]
					}
					want[to] = sum
				}
			}
		}
		o := Operands{A: address(a), B: address(b), Bias: address(bias), C: address(c), D: address(d), Workspace: address(workspace), WorkspaceBytes: 16}
		if err := h.Run(p, list[0].Algorithm, o, 0x5eed); err != nil {
			t.Fatalf("%v: %v", p, err)
		}
		runtime.KeepAlive(c)
		for i := range want {
			if d[i] != want[i] {
				t.Fatalf("%v: element %d is %v, want %v", p, i, d[i], want[i])
			}
		}
		o.WorkspaceBytes = 8
		var e *Error
		if err := h.Run(p, list[0].Algorithm, o, 0x5eed); !errors.As(err, &e) || e.Call != "cublasLtMatmul" || e.Status != InvalidValue {
			t.Errorf("a workspace that is too small: %v", err)
		}
	}
	runtime.KeepAlive([][]float32{a, b, bias, workspace})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	handle, err := dynlib.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var live uintptr
	if missing := dynlib.Find(handle, map[string]*uintptr{"standin_live": &live}); len(missing) > 0 {
		t.Fatalf("the stand-in has no %v", missing)
	}
	if n, _, _ := purego.SyscallN(live); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// A library that cannot be used is reported with the reason; a missing one is not.
func TestLibrariesThatCannotBeUsed(t *testing.T) {
	lacking := standin(t, "libcublasLt.so.12", "cublasLtMatmulAlgoCheck=another")
	text := filepath.Join(t.TempDir(), "libcublasLt.so.12")
	if err := os.WriteFile(text, []byte("no library"), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cuda int
		seen []string
		want string
	}{
		"none":           {12040, nil, "cuBLASLt is not installed (libcublasLt.so was not found)"},
		"too new":        {12040, []string{"/x/libcublasLt.so.13", "/x/libcublasLt.so"}, "/x/libcublasLt.so.13: the driver supports CUDA 12.4, and libraries from CUDA 11 on are used"},
		"too old":        {12040, []string{"/x/libcublasLt.so.10.2.3"}, "/x/libcublasLt.so.10.2.3: the driver supports"},
		"lacks a symbol": {12040, []string{lacking}, "libcublasLt.so.12 is too old: it has no cublasLtMatmulAlgoCheck"},
		"no library":     {12040, []string{text}, "cuBLASLt cannot be loaded: " + text},
	} {
		l, err := Open(c.cuda, c.seen)
		var absent *Absent
		if l != nil || !errors.As(err, &absent) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, l, err, c.want)
		}
	}
}

// NVIDIA's own library has every function, accepts every attribute in the size given, and reports that it
// cannot be used without a card. SNUG_CUBLASLT names it.
func TestNVIDIAsLibrary(t *testing.T) {
	paths := filepath.SplitList(os.Getenv("SNUG_CUBLASLT"))
	if len(paths) == 0 {
		t.Skip("SNUG_CUBLASLT names no libcublasLt.so.N, of a wheel of PyPI's, say")
	}
	for _, path := range paths {
		l, err := Open(1000*majorOf(path), []string{path})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", path, VersionText(l.Version()))
		if l.Version()/10000 != majorOf(path) {
			t.Errorf("%s has version %d", path, l.Version())
		}
		h := &Handle{library: l}
		p := Product{In: R16F, Out: R16F, TransA: true, Batch: 3, M: 64, N: 48, K: 32, Bias: true, AlignA: 256, AlignB: 16, AlignD: 8}
		d, err := h.describe(p, 256)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
		preference, s := l.PreferenceCreate()
		if s != Success {
			t.Fatal(s)
		}
		for a, n := range map[PreferenceAttribute]int{PreferWorkspace: 8, PreferReductions: 4, PreferAlignmentA: 4, PreferAlignmentB: 4, PreferAlignmentC: 4, PreferAlignmentD: 4} {
			value := make([]byte, n)
			value[0] = 2
			if s := l.PreferenceSet(preference, a, value); s != Success {
				t.Errorf("attribute %d of %d bytes: status %d", a, n, s)
			}
			if s := l.PreferenceSet(preference, a, make([]byte, 3)); s == Success {
				t.Errorf("attribute %d is taken with 3 bytes", a)
			}
		}
		if s := l.PreferenceDestroy(preference); s != Success {
			t.Error(s)
		}
		var scheme [4]byte
		if s := l.AlgoGet(&Algorithm{}, AlgoReduction, scheme[:]); s != Success && s != InvalidValue {
			t.Errorf("the scheme of reduction: status %d", s)
		}
		if _, err := New(l); err != nil {
			t.Logf("without a card: %v", err)
		}
	}
}
