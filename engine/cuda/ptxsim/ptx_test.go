package ptxsim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// header begins every text in the tests.
const header = ".version 7.0\n.target sm_80\n.address_size 64\n"

// entry is a kernel named k with two buffers, in and out. Their addresses plus 8 bytes per thread are in %rd0
// and %rd1, and the thread's index is in %r0.
func entry(body string) string {
	return header + `.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .pred %p<10>;
	.reg .b16 %h<30>;
	.reg .b32 %r<60>;
	.reg .f32 %f<30>;
	.reg .b64 %rd<30>;
	.reg .f64 %d<10>;
	mov.u32 %r0, %tid.x;
	ld.param.u64 %rd0, [in];
	ld.param.u64 %rd1, [out];
	mad.wide.u32 %rd0, %r0, 8, %rd0;
	mad.wide.u32 %rd1, %r0, 8, %rd1;
` + body + "\n\tret;\n}\n"
}

func mustParse(t testing.TB, text string) *Module {
	t.Helper()
	m, err := Parse(text)
	if err != nil {
		t.Fatalf("%v", err)
	}
	corpus[text] = true
	return m
}

// simulate runs entry(body) with one value of in per thread and returns what the threads leave in out.
func simulate(t testing.TB, body string, in []uint64, o Options) ([]uint64, error) {
	t.Helper()
	m := mustParse(t, entry(body))
	n := len(in)
	mem := NewMemory(1 << 20)
	a, out := alloc(t, mem, 8*n), alloc(t, mem, 8*n)
	for i, v := range in {
		binary.LittleEndian.PutUint64(bytesOf(t, mem, a, 8*n)[8*i:], v)
	}
	err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{uint32(n)}}, args(a, out), o)
	if err != nil {
		return nil, err
	}
	res := make([]uint64, n)
	for i := range res {
		res[i] = binary.LittleEndian.Uint64(bytesOf(t, mem, out, 8*n)[8*i:])
	}
	return res, nil
}

func alloc(t testing.TB, mem *Memory, n int) uint64 {
	t.Helper()
	a, err := mem.Alloc(int64(n))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func bytesOf(t testing.TB, mem *Memory, addr uint64, n int) []byte {
	t.Helper()
	b, err := mem.Bytes(addr, n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// args packs parameters: uint64, uint32, int32 and float32 have their natural alignment.
func args(list ...any) []byte {
	var b []byte
	for _, v := range list {
		n := binary.Size(v)
		for len(b)%n != 0 {
			b = append(b, 0)
		}
		b, _ = binary.Append(b, binary.LittleEndian, v)
	}
	return b
}

// wantError runs a body on a number of threads and checks for an error that contains all the texts.
func wantError(t *testing.T, body string, threads int, texts ...string) {
	t.Helper()
	_, err := simulate(t, body, make([]uint64, threads), Options{Checks: CheckAll})
	if err == nil {
		t.Fatalf("no error, %q wanted", texts)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q lacks %q", err, s)
		}
	}
}

func TestThreadsAndGuards(t *testing.T) {
	in := make([]uint64, 70)
	for i := range in {
		in[i] = uint64(i)
	}
	out, err := simulate(t, `
	ld.global.u64 %rd2, [%rd0];
	setp.lt.u64 %p1, %rd2, 33;
	@%p1 bra LOW;
	mul.lo.u64 %rd2, %rd2, 10;
	bra END;
LOW:
	add.u64 %rd2, %rd2, 1000;
END:
	st.global.u64 [%rd1], %rd2;`, in, Options{Checks: CheckAll})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out {
		want := uint64(10 * i)
		if i < 33 {
			want = uint64(1000 + i)
		}
		if v != want {
			t.Errorf("thread %d: %d, want %d", i, v, want)
		}
	}
}

func TestUnknownIsRefused(t *testing.T) {
	for _, s := range []string{"wgmma.fence.sync.aligned;", "add.s32.wow %r1, %r0, 1;", "mov.u32 %r1, %nothing;", "add.u64 %rd2, %r0, 1;", "ld.global.v8.u32 %r1, [%rd0];"} {
		_, err := Parse(entry(s))
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(s, ";")) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	wantError(t, "ld.global.u32 %r1, [%rd0+4096];", 3, "k, block [0 0 0], thread [0 0 0], ptx line", "`ld.global.u32 %r1, [%rd0+4096]`", "out of bounds: 4 bytes")
	wantError(t, "ld.global.u64 %rd2, [%rd0+4];", 1, "misaligned")
	_, err := simulate(t, "trap;", make([]uint64, 1), Options{})
	if fmt.Sprintf("%T", err) != "*ptxsim.Fault" {
		t.Errorf("%T", err)
	}
}
