package ptxsim

import (
	"fmt"
	"testing"
)

// warpValues runs a body on one warp and returns what each lane leaves in %r5; lane l begins with %r2 = 100 +
// l.
func warpValues(t *testing.T, body string) [32]uint32 {
	t.Helper()
	out, err := simulate(t, "add.u32 %r2, %r0, 100;\n"+body+"\ncvt.u64.u32 %rd2, %r5; st.global.u64 [%rd1], %rd2;", make([]uint64, 32), Options{Checks: CheckAll})
	if err != nil {
		t.Fatal(err)
	}
	var v [32]uint32
	for l := range v {
		v[l] = uint32(out[l])
	}
	return v
}

func wantLanes(t *testing.T, body string, want func(l int) uint32) {
	t.Helper()
	for l, v := range warpValues(t, body) {
		if v != want(l) {
			t.Fatalf("%s: lane %d has %d, want %d", body, l, v, want(l))
		}
	}
}

func TestShuffle(t *testing.T) {
	// The width w of CUDA's functions is encoded as the mask 32-w in the second byte of the clamp operand.
	for _, w := range []int{32, 16, 8, 2} {
		seg := (32 - w) << 8
		for _, n := range []int{0, 1, 3, 5} {
			first := func(l int) int { return l / w * w }
			value := func(l, from int, ok bool) uint32 {
				if !ok {
					from = l
				}
				v := uint32(100 + from)
				if ok {
					v += 1000
				}
				return v
			}
			run := func(mode string, c int, from func(l int) (int, bool)) {
				t.Helper()
				wantLanes(t, fmt.Sprintf("shfl.sync.%s.b32 %%r5|%%p1, %%r2, %d, %d, -1; @%%p1 add.u32 %%r5, %%r5, 1000;", mode, n, seg|c), func(l int) uint32 {
					j, ok := from(l)
					return value(l, j, ok)
				})
			}
			run("up", 0, func(l int) (int, bool) { return l - n, l-n >= first(l) })
			run("down", 31, func(l int) (int, bool) { return l + n, l+n < first(l)+w })
			run("bfly", 31, func(l int) (int, bool) { return l ^ n, l^n < first(l)+w })
			run("idx", 31, func(l int) (int, bool) { return first(l) + n%w, true })
		}
	}
	// Half of the warp executes it, diverged from the other half.
	wantLanes(t, `setp.lt.u32 %p2, %r0, 16;
	mov.u32 %r5, 7;
	@!%p2 bra DONE;
	shfl.sync.bfly.b32 %r5, %r2, 1, 31, 0xffff;
	DONE:`, func(l int) uint32 {
		if l < 16 {
			return uint32(100 + l ^ 1)
		}
		return 7
	})
}

func TestVotesAndMatches(t *testing.T) {
	odd := "and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 1;"
	wantLanes(t, odd+"vote.sync.ballot.b32 %r5, %p1, -1;", func(int) uint32 { return 0xaaaaaaaa })
	wantLanes(t, odd+"vote.sync.ballot.b32 %r5, !%p1, -1;", func(int) uint32 { return 0x55555555 })
	for mode, want := range map[string]uint32{"all": 0, "any": 1, "uni": 0} {
		wantLanes(t, odd+"vote.sync."+mode+".pred %p2, %p1, -1; selp.u32 %r5, 1, 0, %p2;", func(int) uint32 { return want })
	}
	wantLanes(t, "setp.ge.u32 %p1, %r0, 0; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r5, 1, 0, %p2;", func(int) uint32 { return 1 })
	wantLanes(t, "and.b32 %r3, %r0, 3; match.any.sync.b32 %r5, %r3, -1;", func(l int) uint32 { return 0x11111111 << (l & 3) })
	wantLanes(t, "match.all.sync.b32 %r5|%p1, 5, -1; @!%p1 mov.u32 %r5, 3;", func(int) uint32 { return full })
	wantLanes(t, "match.all.sync.b32 %r5|%p1, %r0, -1; @!%p1 mov.u32 %r5, 3;", func(int) uint32 { return 3 })
	wantLanes(t, "activemask.b32 %r5;", func(int) uint32 { return full })
	wantLanes(t, "mov.u32 %r5, 9; setp.gt.u32 %p1, %r0, 29; @%p1 activemask.b32 %r5;", func(l int) uint32 {
		if l > 29 {
			return 3 << 30
		}
		return 9
	})
	for op, want := range map[string]uint32{"add.u32": 496 + 3200, "min.u32": 100, "max.s32": 131, "and.b32": 0, "or.b32": 0xff, "xor.b32": 0} {
		wantLanes(t, "redux.sync."+op+" %r5, %r2, -1;", func(int) uint32 { return want })
	}
	wantLanes(t, "mov.u32 %r5, %lanemask_lt;", func(l int) uint32 { return 1<<l - 1 })
	wantLanes(t, "mov.u32 %r5, %lanemask_ge;", func(l int) uint32 { return full << l })
	wantLanes(t, "movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r0;", func(l int) uint32 {
		// Element (row, col) is half col%2 of lane 4 row + col/2; the lower half of lane l holds l, the upper
		// 0.
		at := func(row, col int) uint32 {
			if col%2 == 1 {
				return 0
			}
			return uint32(4*row + col/2)
		}
		row, col := l/4, l%4*2
		return at(col, row) | at(col+1, row)<<16
	})
}

func TestCollectivesNeedTheirLanes(t *testing.T) {
	part := "setp.lt.u32 %p1, %r0, 16; @%p1 bra SKIP;"
	wantError(t, part+"shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;\nSKIP: mov.u32 %r1, 0;", 32, "shfl.sync", "names lanes")
	wantError(t, part+"bar.warp.sync -1;\nSKIP: mov.u32 %r1, 0;", 32, "names lanes")
	wantError(t, part+"bar.sync 0; bra END;\nSKIP: bar.sync 0;\nEND: mov.u32 %r1, 0;", 32, "a barrier in divergent code")
	if _, err := simulate(t, part+"bar.sync 0;\nSKIP: mov.u32 %r1, 0;", make([]uint64, 32), Options{Checks: CheckAll}); err != nil {
		t.Errorf("lanes that have ended are waited for: %v", err)
	}
	wantError(t, "mov.u32 %r1, 0; mov.u32 %r2, 0; mov.f32 %f1, 0f00000000; "+part+
		"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%r1,%r2}, {%r1}, {%f1,%f1,%f1,%f1};\nSKIP: mov.u32 %r1, 0;", 32, "needs all 32 lanes")
	wantError(t, "setp.lt.u32 %p1, %r0, 4; @%p1 ret; vote.sync.ballot.b32 %r5, %p1, -1;", 32, "which have ended")
	wantError(t, "shfl.sync.idx.b32 %r5, %r0, 9, 31, 0xff;", 8, "lane 9, which does not take part")
	wantError(t, "vote.sync.ballot.b32 %r5, 1, 0xfe;", 8, "not in its own mask")
}

// TestLanesMeet makes diverged lanes meet at an instruction whose mask names both sides.
func TestLanesMeet(t *testing.T) {
	wantLanes(t, `setp.lt.u32 %p1, %r0, 10;
	mov.u32 %r5, %r2;
	@%p1 bra LOW;
	add.u32 %r5, %r5, 1000;
	bra JOIN;
LOW:
	add.u32 %r5, %r5, 2000;
JOIN:
	shfl.sync.idx.b32 %r5, %r5, 12, 31, -1;`, func(int) uint32 { return 1112 })
	// The loop has as many rounds as the lane's number.
	wantLanes(t, `mov.u32 %r5, 0; mov.u32 %r3, 0;
LOOP:
	setp.ge.u32 %p1, %r3, %r0;
	@%p1 bra OUT;
	add.u32 %r3, %r3, 1; add.u32 %r5, %r5, %r3;
	bra LOOP;
OUT:
	bar.warp.sync -1;`, func(l int) uint32 { return uint32(l * (l + 1) / 2) })
	// This code comes after the point where its lanes reconverge.
	wantLanes(t, `mov.u32 %r5, 1;
	setp.lt.u32 %p1, %r0, 10;
	@%p1 bra FAR;
BACK:
	bar.sync 0;
	movmatrix.sync.aligned.m8n8.trans.b16 %r6, %r5;
	bra END;
FAR:
	mov.u32 %r5, 2;
	bra BACK;
END:`, func(l int) uint32 {
		if l < 10 {
			return 2
		}
		return 1
	})
}
