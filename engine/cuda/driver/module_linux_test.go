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

// standin is a context whose driver is testdata/standin.c; live counts the objects made there and not yet
// freed.
func standin(t *testing.T) (c *context, live func() int) {
	t.Helper()
	handle, err := dynlib.Load(dynlibtest.Build(t, "libcuda.so.1", "testdata/standin.c"))
	if err != nil {
		t.Fatal(err)
	}
	c = &context{d: &libcuda{}, ctx: 0x77}
	dynlib.Find(handle, c.d.symbols()) // the stand-in has only a few
	dynlib.Find(handle, c.d.optional())
	var count uintptr
	if missing := dynlib.Find(handle, map[string]*uintptr{"standin_live": &count}); missing != nil {
		t.Fatal(missing)
	}
	return c, func() int {
		n, _, _ := purego.SyscallN(count)
		return int(n)
	}
}

// Loading PTX works, and an error includes the assembler's log, a new one for each call, as the driver writes
// into the buffer that it gets.
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

// Attributes of a function are queried by the numbers of NVIDIA's header.
func TestUse(t *testing.T) {
	c, _ := standin(t)
	f := &function{c: c, handle: 0x99}
	if u, err := f.Use(); u != (Use{Registers: 41, Local: 31}) || err != nil {
		t.Errorf("%+v, %v", u, err)
	}
}

// A slice of a card has its own UUID, which NVML knows by another prefix.
func TestIdentities(t *testing.T) {
	c, _ := standin(t)
	cards, err := c.d.Cards()
	if err != nil || len(cards) != 3 {
		t.Fatal(cards, err)
	}
	for i, want := range []string{"GPU-0a1a2a3a-4a5a-6a7a-8a9a-aabacadaeafa", "MIG-0b1b2b3b-4b5b-6b7b-8b9b-abbbcbdbebfb", "MIG-0c1c2c3c-4c5c-6c7c-8c9c-acbcccdcecfc"} {
		if cards[i].UUID != want || cards[i].Index != i || cards[i].Memory != int64(10+i)<<30 || cards[i].SMs != attrSMs+10+i {
			t.Errorf("%+v, want %s", cards[i], want)
		}
	}
	// Drivers that lack the first version of the function show slices by their names.
	c.d.deviceGetUUIDv1 = 0
	if cards, err = c.d.Cards(); err != nil || cards[0].UUID[:3] != "GPU" || cards[2].UUID[:3] != "MIG" {
		t.Errorf("%v, %v", cards, err)
	}
}
