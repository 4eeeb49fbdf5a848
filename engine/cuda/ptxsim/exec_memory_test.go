package ptxsim

import (
	"encoding/binary"
	"fmt"
	"testing"
)

func TestLoadsAndStores(t *testing.T) {
	in := uint64(0x8182838485868788)
	for text, want := range map[string]uint64{
		"ld.global.u8 %r2, [%rd0+1]; cvt.u64.u32 %rd2, %r2;":                                                                                                                   0x87,
		"ld.global.s8 %r2, [%rd0+1]; cvt.u64.u32 %rd2, %r2;":                                                                                                                   0xffffff87,
		"ld.global.s8 %h2, [%rd0+1]; cvt.u64.u16 %rd2, %h2;":                                                                                                                   0xff87,
		"ld.global.u16 %h2, [%rd0+2]; cvt.u64.u16 %rd2, %h2;":                                                                                                                  0x8586,
		"ld.global.s16 %rd2, [%rd0+2];":                                                                                                                                        0xffffffffffff8586,
		"ld.global.nc.b32 %r2, [%rd0+4]; cvt.u64.u32 %rd2, %r2;":                                                                                                               0x81828384,
		"ld.global.v2.u32 {%r2, %r3}, [%rd0]; add.u32 %r2, %r2, %r3; cvt.u64.u32 %rd2, %r2;":                                                                                   0x07090b0c,
		"ld.global.v4.u8 {%r2, %r3, %r4, %r5}, [%rd0+4]; add.u32 %r2, %r2, %r5; cvt.u64.u32 %rd2, %r2;":                                                                        0x84 + 0x81,
		"ld.u32 %r2, [%rd0+4]; cvt.u64.u32 %rd2, %r2;":                                                                                                                         0x81828384,
		"ld.global.L1::evict_last.L2::128B.b64 %rd2, [%rd0];":                                                                                                                  in,
		"ld.global.v2.b16 {%h2, %h3}, [%rd0]; mov.b32 %r2, {%h3, %h2}; cvt.u64.u32 %rd2, %r2;":                                                                                 0x87888586,
		"ld.global.u64 %rd3, [%rd0]; mov.b64 {%r2, %r3}, %rd3; mov.b64 %rd2, {%r3, %r2};":                                                                                      0x8586878881828384,
		"ld.global.u64 %rd3, [%rd0]; mov.b64 {%h1,%h2,%h3,%h4}, %rd3; mov.b64 %rd2, {%h4,%h3,%h2,%h1};":                                                                        0x8788858683848182,
		"ld.global.u64 %rd3, [%rd0]; st.global.u8 [%rd0+3], %rd3; ld.global.u64 %rd2, [%rd0];":                                                                                 0x8182838488868788,
		"mov.b32 %r2, 7; st.global.v2.b32 [%rd0], {%r2, %r2}; ld.global.u64 %rd2, [%rd0];":                                                                                     0x0000000700000007,
		".local .align 8 .b8 stack[16]; mov.u64 %rd4, stack; st.local.u64 [stack+8], 5; ld.local.u64 %rd2, [%rd4+8];":                                                          5,
		".local .align 8 .b8 stack[16]; mov.u64 %rd4, stack; cvta.local.u64 %rd4, %rd4; st.u64 [%rd4], 6; ld.local.u64 %rd2, [stack];":                                         6,
		".shared .align 8 .b8 buf[16]; mov.u64 %rd4, buf; cvta.shared.u64 %rd4, %rd4; st.u64 [%rd4+8], 8; ld.shared.u64 %rd2, [buf+8];":                                        8,
		".shared .align 8 .b8 buf[16]; mov.u64 %rd4, buf; cvta.shared.u64 %rd4, %rd4; isspacep.shared %p1, %rd4; cvta.to.shared.u64 %rd3, %rd4; selp.u64 %rd2, %rd3, 99, %p1;": 0,
		"mov.u32 %r2, %clock; mov.u32 %r3, %clock; setp.lt.u32 %p1, %r2, %r3; selp.u64 %rd2, 1, 0, %p1;":                                                                       1,
	} {
		out, err := simulate(t, text+"\nst.global.u64 [%rd1], %rd2;", []uint64{in}, Options{Checks: CheckAll})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if out[0] != want {
			t.Errorf("%s: %#x, want %#x", text, out[0], want)
		}
	}
}

func TestGridsAndParameters(t *testing.T) {
	m := mustParse(t, header+`.const .align 4 .u32 table[3] = {5, 6, 7};
.global .align 8 .b8 counter[8];
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u8 a, .param .f32 b, .param .align 8 .b8 block[20], .param .u64 .ptr .global .align 16 out) .maxntid 64, 1, 1
{
	.reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<4>;
	.shared .align 4 .b8 fixed[12];
	ld.param.u8 %r1, [a];
	ld.param.f32 %f1, [b];
	cvt.rzi.u32.f32 %r2, %f1;
	ld.param.u32 %r3, [block+16];
	mov.b64 %rd1, block;
	ld.param.u32 %r4, [%rd1+4];
	ld.param.u64 %rd2, [out];
	ld.const.u32 %r5, [table+8];
	mov.u32 %r6, %ctaid.x; mov.u32 %r7, %ctaid.y; mov.u32 %r8, %ctaid.z;
	mov.u32 %r9, %nctaid.x; mov.u32 %r10, %nctaid.y;
	mad.lo.u32 %r6, %r7, %r9, %r6;
	mul.lo.u32 %r10, %r9, %r10; mad.lo.u32 %r6, %r8, %r10, %r6;
	mov.u32 %r11, %tid.x; mov.u32 %r12, %tid.y; mov.u32 %r13, %tid.z; mov.u32 %r14, %ntid.x; mov.u32 %r15, %ntid.y;
	mad.lo.u32 %r12, %r13, %r15, %r12; mad.lo.u32 %r11, %r12, %r14, %r11;
	mov.u32 %r16, dynamic;
	shl.b32 %r17, %r11, 2; add.u32 %r16, %r16, %r17;
	st.shared.u32 [%r16], %r11;
	bar.sync 0;
	mov.u32 %r18, %dynamic_smem_size; add.u32 %r18, %r18, -4; sub.u32 %r18, %r18, %r17;
	mov.u32 %r16, dynamic; add.u32 %r16, %r16, %r18;
	ld.shared.u32 %r18, [%r16];
	add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4; add.u32 %r1, %r1, %r5;
	mad.lo.u32 %r1, %r18, 1000, %r1;
	mad.lo.u32 %r6, %r6, 24, %r11;
	mad.wide.u32 %rd2, %r6, 4, %rd2;
	st.global.u32 [%rd2], %r1;
	mov.u64 %rd3, counter; red.global.add.u64 [%rd3], 1;
	ret;
}`)
	k := m.Kernel("k")
	want := []Param{{"a", 0, 1, 1}, {"b", 4, 4, 4}, {"block", 8, 20, 8}, {"out", 32, 8, 8}}
	if fmt.Sprint(k.Params) != fmt.Sprint(want) || k.ParamBytes != 40 || k.StaticShared != 0 || k.MaxThreads != 64 {
		t.Errorf("%v, %d bytes, %d shared, %d threads", k.Params, k.ParamBytes, k.StaticShared, k.MaxThreads)
	}
	mem := NewMemory(1 << 20)
	out := alloc(t, mem, 4*24*24)
	params := make([]byte, 40)
	params[0] = 1
	copy(params[4:], args(float32(2.5)))
	binary.LittleEndian.PutUint32(params[8+4:], 20)
	binary.LittleEndian.PutUint32(params[8+16:], 100)
	binary.LittleEndian.PutUint64(params[32:], out)
	g := Grid{Grid: [3]uint32{2, 3, 4}, Block: [3]uint32{4, 3, 2}, Shared: 96}
	if err := Launch(mem, k, g, params, Options{Checks: CheckAll}); err != nil {
		t.Fatal(err)
	}
	b := bytesOf(t, mem, out, 4*24*24)
	for i := range 24 * 24 {
		if got, want := binary.LittleEndian.Uint32(b[4*i:]), uint32(1+2+100+20+7+1000*(23-i%24)); got != want {
			t.Fatalf("element %d: %d, want %d", i, got, want)
		}
	}
	addr, n, err := mem.Symbol(m, "counter")
	if err != nil || n != 8 || binary.LittleEndian.Uint64(bytesOf(t, mem, addr, 8)) != 24*24 {
		t.Errorf("counter: %v, %d bytes", err, n)
	}
	for _, bad := range []struct {
		g Grid
		p int
	}{{Grid{Block: [3]uint32{65}}, 40}, {Grid{Block: [3]uint32{2000}}, 40}, {g, 39}, {Grid{Shared: 300 << 10}, 40}, {Grid{Grid: [3]uint32{1, 70000}}, 40}} {
		if Launch(mem, k, bad.g, params[:bad.p], Options{}) == nil {
			t.Errorf("%v with %d bytes is taken", bad.g, bad.p)
		}
	}
}

func TestAtomics(t *testing.T) {
	// 40 threads update one word of shared memory; a counter's old values all differ.
	for text, want := range map[string]uint64{
		"red.shared.add.u32 [cell], 3;":                                          120,
		"red.shared.max.s32 [cell], %r0;":                                        39,
		"red.shared.or.b32 [cell], %r0;":                                         63,
		"red.shared.xor.b32 [cell], %r0;":                                        0,
		"atom.shared.inc.u32 %r2, [cell], 9;":                                    0,
		"atom.shared.exch.b32 %r2, [cell], 5;":                                   5,
		"atom.shared.cas.b32 %r2, [cell], 0, 77;":                                77,
		"red.shared.add.f32 [cell], 0f3F800000;":                                 0x42200000,
		"mov.u64 %rd5, cell; cvta.shared.u64 %rd5, %rd5; red.add.u32 [%rd5], 1;": 40,
	} {
		out, err := simulate(t, ".shared .align 4 .u32 cell; setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [cell], 0; bar.sync 0;"+text+
			"bar.sync 0; ld.shared.u32 %r3, [cell]; cvt.u64.u32 %rd2, %r3; st.global.u64 [%rd1], %rd2;", make([]uint64, 40), Options{Checks: CheckAll})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if out[17] != want {
			t.Errorf("%s: %#x, want %#x", text, out[17], want)
		}
	}
}

// TestCopyAsync copies in all sizes, with zeros after a source that is too short.
func TestCopyAsync(t *testing.T) {
	in := make([]uint64, 32)
	for i := range in {
		in[i] = 0x1111111111111111 * uint64(i%15+1)
	}
	out, err := simulate(t, `.shared .align 16 .b8 buf[1024];
	mov.u32 %r1, buf; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2;
	cp.async.ca.shared.global [%r1], [%rd0], 8;
	cp.async.ca.shared.global [%r1+8], [%rd0], 8, 3;
	cp.async.commit_group;
	cp.async.ca.shared.global [%r1+512], [%rd0], 4, 0;
	cp.async.commit_group;
	cp.async.wait_group 1;
	ld.shared.v2.u64 {%rd2, %rd3}, [%r1];
	cp.async.wait_all;
	ld.shared.u32 %r3, [%r1+512];
	cvt.u64.u32 %rd4, %r3;
	add.u64 %rd2, %rd2, %rd3; add.u64 %rd2, %rd2, %rd4;
	st.global.u64 [%rd1], %rd2;`, in, Options{Checks: CheckAll})
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out {
		if want := in[i] + in[i]&0xffffff; v != want {
			t.Fatalf("thread %d: %#x, want %#x", i, v, want)
		}
	}
	// Without a wait nothing has landed.
	out, err = simulate(t, `.shared .align 16 .b8 buf[1024];
	mov.u32 %r1, buf; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2;
	cp.async.ca.shared.global [%r1], [%rd0], 8;
	ld.shared.u64 %rd2, [%r1];
	st.global.u64 [%rd1], %rd2;`, in, Options{})
	if err != nil || out[3] != 0 {
		t.Errorf("%#x, %v: the copy landed before it was waited for", out, err)
	}
}
