package ptxsim

import (
	"encoding/binary"
	"strings"
	"testing"
)

func TestCalls(t *testing.T) {
	m := mustParse(t, header+`
.func (.param .b32 result) square(.param .b32 x)
{
	.reg .b32 %r<4>; .reg .pred %p;
	ld.param.b32 %r1, [x];
	setp.gt.u32 %p, %r1, 100;
	@%p bra BIG;
	mul.lo.u32 %r2, %r1, %r1;
	st.param.b32 [result], %r2;
	ret;
BIG:
	st.param.b32 [result], 1;
	ret;
}
.func (.reg .b32 sum) add3(.reg .b32 a, .reg .b32 b);
.visible .entry k(.param .u64 in, .param .u64 out)
{
	.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p;
	mov.u32 %r0, %tid.x;
	ld.param.u64 %rd1, [out];
	mad.wide.u32 %rd1, %r0, 4, %rd1;
	{
		.param .b32 arg; .param .b32 res;
		mad.lo.u32 %r1, %r0, 10, 0;
		st.param.b32 [arg], %r1;
		call.uni (res), square, (arg);
		ld.param.b32 %r2, [res];
	}
	setp.lt.u32 %p, %r0, 3;
	mov.u32 %r3, 5;
	@%p call (%r3), add3, (%r2, 1);
	st.global.u32 [%rd1], %r3;
	ret;
}
.func (.reg .b32 sum) add3(.reg .b32 a, .reg .b32 b)
{
	add.u32 sum, a, b;
	add.u32 sum, sum, 3;
}`)
	mem := NewMemory(1 << 16)
	out := alloc(t, mem, 64)
	if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{16}}, args(uint64(0), out), Options{Checks: CheckAll}); err != nil {
		t.Fatal(err)
	}
	for i := range 16 {
		want := uint32(5)
		if i < 3 {
			want = uint32(100*i*i + 4)
		}
		if got := binary.LittleEndian.Uint32(bytesOf(t, mem, out, 64)[4*i:]); got != want {
			t.Errorf("thread %d: %d, want %d", i, got, want)
		}
	}
	_, err := Parse(header + ".func f(.reg .b32 a){ call f, (a); } .visible .entry k(){ .reg .b32 %r; call f, (%r); }")
	if err == nil || !strings.Contains(err.Error(), "calls itself") {
		t.Errorf("recursion: %v", err)
	}
}

func TestBarriers(t *testing.T) {
	in := make([]uint64, 128)
	// Each half of the block uses its own barrier, then there are reductions over all threads.
	out, err := simulate(t, `.shared .align 4 .b8 buf[512];
	mov.u32 %r1, buf; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2;
	st.shared.u32 [%r3], %r0;
	shr.u32 %r4, %r0, 6; add.u32 %r4, %r4, 1;
	bar.sync %r4, 64;
	xor.b32 %r5, %r2, 0x80; add.u32 %r5, %r5, %r1;
	ld.shared.u32 %r6, [%r5];
	setp.lt.u32 %p1, %r0, 5;
	bar.red.popc.u32 %r7, 0, %p1;
	bar.red.or.pred %p2, 0, !%p1;
	bar.red.and.pred %p3, 0, %p1;
	selp.u32 %r8, 1000, 0, %p2; selp.u32 %r9, 5000, 0, %p3;
	add.u32 %r6, %r6, %r8; add.u32 %r6, %r6, %r9; mad.lo.u32 %r6, %r7, 10000, %r6;
	cvt.u64.u32 %rd2, %r6; st.global.u64 [%rd1], %rd2;`, in, Options{Checks: CheckAll})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out {
		if want := uint64(i ^ 32 + 51000); v != want {
			t.Fatalf("thread %d: %d, want %d", i, v, want)
		}
	}
	wantError(t, "setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 1; bra B;\nA: bar.sync 2;\nB: mov.u32 %r1, 0;", 64, "never complete")
	wantError(t, "bar.sync 1, 96;", 64, "never complete")
	wantError(t, "mov.u32 %r1, 33; bar.sync 1, %r1;", 64, "not a multiple")
	// Barriers do not wait for warps that have ended.
	if _, err := simulate(t, "setp.lt.u32 %p1, %r0, 32; @%p1 exit; bar.sync 0;", in, Options{Checks: CheckAll}); err != nil {
		t.Error(err)
	}
}

func TestEndlessLoop(t *testing.T) {
	_, err := simulate(t, "LOOP: bra LOOP;", make([]uint64, 1), Options{Limit: 1 << 17})
	if err == nil || !strings.Contains(err.Error(), "endless") {
		t.Error(err)
	}
}

// TestHandover makes one warp spin on a word that a later warp writes.
func TestHandover(t *testing.T) {
	out, err := simulate(t, `.shared .align 4 .u32 flag;
	setp.eq.u32 %p1, %r0, 0; @%p1 st.volatile.shared.u32 [flag], 0;
	bar.sync 0;
	setp.ge.u32 %p2, %r0, 32; @%p2 bra WRITER;
SPIN:
	ld.volatile.shared.u32 %r1, [flag]; setp.eq.u32 %p3, %r1, 0; @%p3 bra SPIN;
	bra DONE;
WRITER:
	mov.u32 %r1, 7; setp.eq.u32 %p3, %r0, 40; @%p3 st.volatile.shared.u32 [flag], 7;
DONE:
	cvt.u64.u32 %rd2, %r1; st.global.u64 [%rd1], %rd2;`, make([]uint64, 64), Options{Checks: CheckAll})
	if err != nil || out[0] != 7 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestBranchTable(t *testing.T) {
	in := make([]uint64, 40)
	for i := range in {
		in[i] = uint64(i % 3)
	}
	const body = `ld.global.u32 %r1, [%rd0];
	mov.u64 %rd2, 7;
	{
	TABLE: .branchtargets A, B, C;
	setp.ne.u32 %p1, %r0, 5;
	@%p1 brx.idx %r1, TABLE;
	}
	bra END;
A:	mov.u64 %rd2, 10; bra END;
B:	mov.u64 %rd2, 11; bra END;
C:	mov.u64 %rd2, 12;
END: st.global.u64 [%rd1], %rd2;`
	out, err := simulate(t, body, in, Options{Checks: CheckAll})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out {
		want := 10 + in[i]
		if i == 5 {
			want = 7
		}
		if v != want {
			t.Errorf("thread %d: %d, want %d", i, v, want)
		}
	}
	in[9] = 3
	if _, err := simulate(t, body, in, Options{}); err == nil || !strings.Contains(err.Error(), "index 3 of a table") {
		t.Error(err)
	}
}
