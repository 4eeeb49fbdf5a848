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

// Code is assembled to a cubin that outlives the link, both are loaded, and what is
// refused comes with the assembler's log.
func TestAssemble(t *testing.T) {
	c, live := standin(t)
	text := ".version 7.0\n" + strings.Repeat("// long\n", 1<<16)
	cubin, err := c.Assemble(text)
	if err != nil || string(cubin) != "\177ELF of "+text {
		t.Fatalf("%d bytes, %v", len(cubin), err)
	}
	for _, code := range [][]byte{cubin, []byte(text)} {
		m, err := c.Load(code)
		if err != nil {
			t.Fatal(err)
		}
		if live() != 1 {
			t.Errorf("%d objects with one module", live())
		}
		if err := m.Unload(); err != nil {
			t.Fatal(err)
		}
	}
	_, assembled := c.Assemble("bad")
	_, loaded := c.Load([]byte("bad"))
	for call, err := range map[string]error{"cuLinkAddData": assembled, "cuModuleLoadDataEx": loaded} {
		var e *Error
		if !errors.As(err, &e) || e.Call != call || e.Code != InvalidPTX || e.Log != "line 1: bad is no instruction" {
			t.Errorf("%s: %v", call, err)
		}
	}
	if live() != 0 {
		t.Errorf("%d objects are left", live())
	}
}
