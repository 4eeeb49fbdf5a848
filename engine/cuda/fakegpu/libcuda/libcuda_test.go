//go:build linux && (amd64 || arm64) && !nocuda

package libcuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/fakegpu/libcuda"
	"github.com/snug-ml/snug/internal/dynlib"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// double is a kernel that doubles as many words as its second parameter says, at the address in its first. It has enough
// shared memory for the binding to ask for a larger share of it.
const double = `.version 7.0
.target sm_75
.address_size 64
.visible .entry double(.param .u64 at, .param .u32 words)
{
	.reg .b32 %r<5>;
	.reg .b64 %d<4>;
	.reg .pred %p<2>;
	.shared .align 4 .b8 unused[32768];
	ld.param.u64 %d1, [at];
	ld.param.u32 %r1, [words];
	mov.u32 %r2, %tid.x;
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 bra done;
	mul.wide.u32 %d2, %r2, 4;
	add.s64 %d3, %d1, %d2;
	ld.global.u32 %r3, [%d3];
	add.u32 %r4, %r3, %r3;
	st.global.u32 [%d3], %r4;
done:
	ret;
}
`

func install(t *testing.T, d func() *fakegpu.Driver, definitions ...string) {
	t.Helper()
	if !libcuda.Install(t, d, definitions...) {
		t.Skip("no C compiler is installed")
	}
}

// open loads the library of a machine with one driver, as a run does.
func open(t *testing.T, d *fakegpu.Driver, definitions ...string) driver.Driver {
	t.Helper()
	install(t, func() *fakegpu.Driver { return d }, definitions...)
	opened, err := driver.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// use calls every function of the driver, as a run does, and returns the first error.
func use() (err error) {
	// first keeps the first error; everything is freed even after an error.
	first := func(e error) bool {
		if err == nil {
			err = e
		}
		return e == nil
	}
	d, err := driver.Open(func() map[string]string { return map[string]string{driver.CacheDisable: "1"} })
	if err != nil {
		return err
	}
	c, err := d.Open(0)
	if err != nil {
		return err
	}
	undo := []func() error{c.Close} // frees what was made, the last first
	defer func() {
		for _, f := range slices.Backward(undo) {
			first(f())
		}
	}()
	if free, total, e := c.Memory(); first(e) && (free <= 0 || total != fakegpu.T4.Memory) {
		first(errors.New("the memory is another card's"))
	}
	const n = 8
	at, e := c.Alloc(4 * n)
	if !first(e) {
		return err
	}
	undo = append(undo, func() error { return c.Free(at) })
	host, e := c.AllocHost(4 * n)
	if !first(e) {
		return err
	}
	undo = append(undo, func() error { return c.FreeHost(host) })
	m, e := c.Load(double)
	if !first(e) {
		return err
	}
	undo = append(undo, m.Unload)
	f, e := m.Function("double")
	if !first(e) {
		return err
	}
	if _, e := f.Use(); !first(e) {
		return err
	}
	var streams [2]driver.Stream
	var events [3]driver.Event
	for i := range streams {
		if streams[i], e = c.NewStream(); !first(e) {
			return err
		}
		undo = append(undo, streams[i].Close)
	}
	for i := range events {
		if events[i], e = c.NewEvent(i < 2); !first(e) {
			return err
		}
		undo = append(undo, events[i].Close)
	}
	s, beside := streams[0], streams[1]
	launch := driver.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
	launch.Params = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, uint64(at)), n)

	// do makes a call unless an earlier one has failed.
	do := func(call func() error) {
		if err == nil {
			err = call()
		}
	}
	// The graph: both streams double, one after the other.
	do(s.BeginCapture)
	do(func() error { return s.Launch(f, launch) })
	do(func() error { return s.Record(events[2]) })
	do(func() error { return beside.Wait(events[2]) })
	do(func() error { return beside.Launch(f, launch) })
	do(func() error { return beside.Record(events[2]) })
	do(func() error { return s.Wait(events[2]) })
	if err != nil {
		return err
	}
	g, e := s.EndCapture()
	if !first(e) {
		return err
	}
	undo = append(undo, g.Close)

	for i := range n {
		binary.LittleEndian.PutUint32(host[4*i:], uint32(i))
	}
	do(func() error { return s.Clear(at, 4*n) })
	do(func() error { return s.CopyIn(at, host) })
	do(func() error { return s.Upload(g) })
	do(func() error { return s.Record(events[0]) })
	do(func() error { return s.Replay(g) })
	do(func() error { return s.Replay(g) })
	do(func() error { return s.Record(events[1]) })
	do(func() error { return beside.Wait(events[1]) })
	do(func() error { return beside.CopyOut(host, at) })
	do(func() error { _, e := beside.Done(); return e })
	do(beside.Sync)
	do(events[1].Sync)
	do(func() error {
		took, e := events[1].Since(events[0])
		if e == nil && took <= 0 {
			e = errors.New("four kernels took no time")
		}
		return e
	})
	for i := range n {
		if got := binary.LittleEndian.Uint32(host[4*i:]); err == nil && got != uint32(16*i) {
			first(errors.New("doubled four times, the numbers are others"))
		}
	}
	return err
}

// The binding calls every function as NVIDIA's header declares it, and the result is right.
func TestEveryCall(t *testing.T) {
	install(t, func() *fakegpu.Driver { return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}} })
	if err := use(); err != nil {
		t.Error(err)
	}
}

// A failing call is named, with the driver's code.
func TestEveryCallCanFail(t *testing.T) {
	var mu sync.Mutex
	var fails string
	called := map[string]bool{}
	install(t, func() *fakegpu.Driver {
		return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code {
			mu.Lock()
			defer mu.Unlock()
			called[call] = true
			if call == fails {
				return driver.NotPermitted // no other error has it
			}
			return 0
		}}
	})
	if err := use(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	names := slices.Sorted(maps.Keys(called))
	mu.Unlock()
	if len(names) < 36 {
		t.Errorf("only %d calls can fail: %v", len(names), names)
	}
	for _, name := range names {
		mu.Lock()
		fails = name
		mu.Unlock()
		err := use()
		var e *driver.Error
		if !errors.As(err, &e) || e.Code != driver.NotPermitted || !strings.HasPrefix(name, strings.Fields(e.Call)[0]) {
			t.Errorf("%s fails: %v", name, err)
		}
	}
}

// A process that has loaded the driver's library finds a library of matmuls, whose products are those of the simulation.
func TestCublasLt(t *testing.T) {
	lib := &fakegpu.CublasLt{}
	t.Cleanup(func() { // after the machine is closed, which uses it on other goroutines
		if err := lib.Left(); err != nil {
			t.Error(err)
		}
	})
	d := open(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CublasLt: lib})
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	folder, _, _ := strings.Cut(os.Getenv("LD_LIBRARY_PATH"), string(filepath.ListSeparator))
	l, err := cublaslt.Open(d.Version(), []string{filepath.Join(folder, libcuda.CublasLt)})
	if err != nil {
		t.Fatal(err)
	}
	const m, n, k = 2, 3, 4
	p := cublaslt.Product{In: cublaslt.R32F, Out: cublaslt.R32F, Batch: 1, M: m, N: n, K: k, Bias: true, Add: true, AlignA: 16, AlignB: 16, AlignD: 16}
	host, err := c.AllocHost(256)
	if err != nil {
		t.Fatal(err)
	}
	at, err := c.Alloc(256)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(host))), 64)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	of := func(i int) uint64 { return uint64(at) + 4*uint64(i) }
	const a, b, bias, add, to = 0, 8, 20, 24, 32
	want := make([]float32, m*n)
	for i := range want {
		want[i] = x[bias+i%n] + x[add+i]
		for j := range k {
			want[i] += x[a+i/n*k+j] * x[b+j*n+i%n]
		}
	}
	var h *cublaslt.Handle
	do := func(f func() error) {
		t.Helper()
		if err := c.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	do(func() (err error) {
		h, err = cublaslt.New(l)
		return err
	})
	do(func() error {
		list, err := h.Candidates(p, 0)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if _, ok, err := h.Check(p, list[0].Algorithm); !ok || err != nil {
			t.Fatal(ok, err)
		}
		o := cublaslt.Operands{A: of(a), B: of(b), Bias: of(bias), C: of(add), D: of(to)}
		return errors.Join(s.CopyIn(at, host), h.Run(p, list[0].Algorithm, o, s.Handle()), s.CopyOut(host, at), s.Sync())
	})
	if got := x[to:][:m*n]; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	do(h.Close)
	if err := errors.Join(s.Close(), c.FreeHost(host), c.Free(at), c.Close()); err != nil {
		t.Error(err)
	}
}

// Cards are described completely, and a slice has its own identity.
func TestCards(t *testing.T) {
	all := []driver.Card{fakegpu.T4, fakegpu.A10, fakegpu.Slice}
	for _, definitions := range [][]string{nil, {"LEAST"}} {
		d := open(t, &fakegpu.Driver{Installed: all, CUDA: 12080}, definitions...)
		got, err := d.Cards()
		if err != nil || len(got) != len(all) {
			t.Fatal(got, err)
		}
		for i, want := range all {
			want.Index = i
			if got[i] != want {
				t.Errorf("%v: %+v, want %+v", definitions, got[i], want)
			}
		}
		if d.Version() != 12080 {
			t.Errorf("version %d", d.Version())
		}
	}
}

// Registers and local memory of a kernel are not mixed up, with and without cuFuncLoad.
func TestUse(t *testing.T) {
	want := driver.Use{Registers: 41, Local: 31}
	for _, definitions := range [][]string{nil, {"LEAST"}} {
		d := open(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Use: want}, definitions...)
		c, err := d.Open(0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Load(double)
		if err != nil {
			t.Fatal(err)
		}
		f, err := m.Function("double")
		if err != nil {
			t.Fatal(err)
		}
		if u, err := f.Use(); u != want || err != nil {
			t.Errorf("%v: %+v, %v", definitions, u, err)
		}
		if err := errors.Join(m.Unload(), c.Close()); err != nil {
			t.Error(err)
		}
	}
}

// The assembler's log is part of the error of the call.
func TestRefusedCode(t *testing.T) {
	d := open(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Refuse: "ptxas: line 3: no such instruction"})
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // each call has a log of its own
		_, err = c.Load(double)
		var e *driver.Error
		if !errors.As(err, &e) || e.Call != "cuModuleLoadDataEx" || e.Code != driver.InvalidPTX || e.Log != "ptxas: line 3: no such instruction" {
			t.Errorf("%v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Goroutines use a context at the same time, on any thread.
func TestThreads(t *testing.T) {
	d := open(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}})
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s, err := c.NewStream()
			for k := 0; k < 20 && err == nil; k++ {
				n := int64(1000 * (k + 1))
				at, err1 := c.Alloc(n)
				host, err2 := c.AllocHost(n)
				want := bytes.Repeat([]byte{byte(16*i + k)}, int(n))
				copy(host, want)
				err = errors.Join(err1, err2, s.CopyIn(at, host), s.Sync())
				clear(host)
				err = errors.Join(err, s.CopyOut(host, at), s.Sync())
				if !bytes.Equal(host, want) {
					t.Errorf("goroutine %d, round %d: other bytes came back", i, k)
				}
				err = errors.Join(err, c.FreeHost(host), c.Free(at))
			}
			if err := errors.Join(err, s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// Misuse is recorded, even if the program ignores the error.
func TestProblems(t *testing.T) {
	m, err := libcuda.Start(t.TempDir(), func() *fakegpu.Driver { return &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}} })
	if err != nil {
		t.Skip(err)
	}
	m.Announce(t)
	d, err := driver.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CopyIn(0, make([]byte, 8)); err == nil {
		t.Error("memory that is not page-locked was copied")
	}
	handle, err := dynlib.Load(filepath.Join(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))[0], "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	var setCurrent, free uintptr
	if missing := dynlib.Find(handle, map[string]*uintptr{"cuCtxSetCurrent": &setCurrent, "cuMemFree_v2": &free}); missing != nil {
		t.Fatal(missing)
	}
	runtime.LockOSThread()
	purego.SyscallN(setCurrent, 0)
	code, _, _ := purego.SyscallN(free, 0)
	runtime.UnlockOSThread()
	if driver.Code(code) != driver.InvalidContext {
		t.Errorf("code %d", code)
	}
	_ = c.Close() // with a stream left
	err = m.Close()
	for _, want := range []string{"cuMemcpyHtoDAsync_v2: want page-locked memory", "cuMemFree_v2: want a context on the thread", "closed with 1 objects"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// The library's functions and numbers are those of NVIDIA's header.
func TestHeader(t *testing.T) { dynlibtest.CompareWithHeader(t, "src/libcuda.c", "cuda.h") }
