//go:build linux && (amd64 || arm64) && !nocuda

package backend_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// What doctor says of a library names it, what it was measured to take and what would be
// chosen, and of one that is absent or none, why.
func TestFindBLAS(t *testing.T) {
	b := backend.FindBLAS("/nowhere/libblas.so", 1)
	if text := b.String(); !strings.HasPrefix(text, "none (no BLAS library can be loaded: ") || !strings.HasSuffix(text, "hardware.blas: off unless set to auto or to the PATH of a library") {
		t.Error(text)
	}
	path := dynlibtest.Build(t, "libopenblas.so.0", "../cpu/testdata/openblas.c")
	b = backend.FindBLAS(path, 2)
	if b.Library != "OpenBLAS 0.3.99 (None)" || b.Path != path || b.Problem != "" || len(b.Compared) != 2 {
		t.Fatalf("%+v", b)
	}
	for _, c := range b.Compared {
		if c.Own <= 0 || c.Library <= 0 || c.ByLibrary != (c.Own > 1.05*c.Library) {
			t.Errorf("%+v", c)
		}
	}
	if b.Compared[0].Product != "512x512x512 NN" || b.Compared[1].Product != "128x2048x512 NN" {
		t.Errorf("%+v", b.Compared)
	}
	b.Compared[0] = cpu.Comparison{Product: "a", Own: 2e-3, Library: 1e-3, ByLibrary: true}
	b.Compared[1] = cpu.Comparison{Product: "b", Own: 1e-3, Library: 2e-3}
	if text, want := b.String(), "OpenBLAS 0.3.99 (None) ("+path+"): a by the library, the faster (snug 2.00 ms, library 1.00 ms), "+
		"b by snug's kernels, as the library is not 5 % faster (snug 1.00 ms, library 2.00 ms); hardware.blas: off unless set to auto or to the PATH of a library"; text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	wrong := dynlibtest.Build(t, "libopenblas.so.1", "../cpu/testdata/openblas.c", "sgemm_=dgemm_")
	if b := backend.FindBLAS(wrong, 1); !strings.Contains(b.String(), "it has no sgemm_") {
		t.Errorf("%v", b)
	}
}
