//go:build (amd64 || arm64) && !nocuda

package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// standin is a context whose driver is testdata/standin.c; live counts what was made there
// and is not gone.
func standin(t *testing.T) (c *context, live func() int) {
	t.Helper()
	handle, err := dynlib.Load(dynlibtest.Build(t, "libcuda.so.1", "testdata/standin.c"))
	if err != nil {
		t.Fatal(err)
	}
	c = &context{d: &libcuda{}, ctx: 0x77}
	dynlib.Find(handle, c.d.symbols()) // the stand-in has few
	var count uintptr
	if missing := dynlib.Find(handle, map[string]*uintptr{"standin_live": &count}); missing != nil {
		t.Fatal(missing)
	}
	return c, func() int {
		n, _, _ := purego.SyscallN(count)
		return int(n)
	}
}

// PTX is loaded, and what is refused comes with the assembler's log, each time anew: the driver
// writes into what it is given.
func TestLoad(t *testing.T) {
	c, live := standin(t)
	for range 2 {
		m, err := c.Load(".version 7.0\n" + strings.Repeat("// long\n", 1<<16))
		if err != nil {
			t.Fatal(err)
		}
		if live() != 1 {
			t.Errorf("%d objects with one module", live())
		}
		if err := m.Unload(); err != nil {
			t.Fatal(err)
		}
		_, err = c.Load("bad")
		var e *Error
		if !errors.As(err, &e) || e.Call != "cuModuleLoadDataEx" || e.Code != InvalidPTX || e.Log != "line 1: bad is no instruction" {
			t.Errorf("%v", err)
		}
	}
	if live() != 0 {
		t.Errorf("%d objects are left", live())
	}
}

// What a thread takes is asked for by the numbers of NVIDIA's header.
func TestUse(t *testing.T) {
	c, _ := standin(t)
	f := &function{c: c, handle: 0x99}
	if u, err := f.Use(); u != (Use{Registers: 41, Local: 31}) || err != nil {
		t.Errorf("%+v, %v", u, err)
	}
}
