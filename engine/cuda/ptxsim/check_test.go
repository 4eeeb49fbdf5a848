package ptxsim

import (
	"strings"
	"testing"
)

// TestPlantedBugs runs one bug of every kind that the checks find, and the correct form of each.
func TestPlantedBugs(t *testing.T) {
	const buf = `.shared .align 16 .b8 buf[1024]; mov.u32 %r1, buf; shl.b32 %r2, %r0, 2; add.u32 %r3, %r1, %r2; xor.b32 %r4, %r3, 128; xor.b32 %r5, %r3, 4;`
	for name, x := range map[string]struct {
		text, bug, right string // BUG in text is replaced by bug or by right
		threads          int
		message          string
	}{
		"barrier missing": {
			buf + "st.shared.u32 [%r3], %r0; BUG ld.shared.u32 %r6, [%r4];",
			"", "bar.sync 0;", 64, "nothing has been written"}, // by the first warp to arrive
		"barrier missing, second use": {
			buf + "st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r6, [%r4]; bar.sync 0; st.shared.u32 [%r3], %r6; BUG ld.shared.u32 %r6, [%r4];",
			"", "bar.sync 0;", 64, "was read by thread"},
		"barrier missing before the buffer is used again": {
			buf + "st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r6, [%r4]; BUG st.shared.u32 [%r3], %r6;",
			"", "bar.sync 0;", 64, "was written by thread"},
		"bar.warp missing": {
			buf + "st.shared.u32 [%r3], %r0; BUG ld.shared.u32 %r6, [%r5];",
			"", "bar.warp.sync -1;", 32, "no bar.warp"},
		"bar.warp missing before a word that others read is overwritten, and which the lane read last": {
			buf + "st.shared.u32 [%r3], %r0; bar.warp.sync -1; ld.shared.u32 %r6, [%r5]; ld.shared.u32 %r7, [%r3]; BUG st.shared.u32 [%r3], %r6;",
			"", "bar.warp.sync -1;", 32, "was read by thread [1 0 0] and no bar.warp"},
		"bar.warp missing before the last lane overwrites what all read": {
			buf + "setp.eq.u32 %p1, %r0, 31; @%p1 st.shared.u32 [%r1], %r0; bar.warp.sync -1; ld.shared.u32 %r6, [%r1]; BUG @%p1 st.shared.u32 [%r1], %r0;",
			"", "bar.warp.sync -1;", 32, "was read by thread [0 0 0] and no bar.warp"},
		"barrier of half the block": {
			buf + "st.shared.u32 [%r3], %r0; shr.u32 %r7, %r0, 6; BUG xor.b32 %r4, %r3, 256; ld.shared.u32 %r6, [%r4];",
			"bar.sync %r7, 64;", "bar.sync 0;", 128, "no barrier"},
		"two writers of a byte": {
			buf + "BUG st.shared.u8 [%r8], %r0;",
			"shr.u32 %r8, %r0, 1; and.b32 %r8, %r8, 15; add.u32 %r8, %r8, %r1;", "add.u32 %r8, %r0, %r1;", 64, "race"},
		"shared memory never written": {
			buf + "BUG bar.sync 0; ld.shared.u32 %r6, [%r3];",
			"setp.ne.u32 %p1, %r0, 3; @%p1 st.shared.u32 [%r3], %r0;", "st.shared.u32 [%r3], %r0;", 32, "nothing has been written"},
		"register never written": {
			buf + "setp.lt.u32 %p1, %r0, 4; BUG @%p1 mov.u32 %r9, 1; add.u32 %r6, %r9, 1;",
			"", "mov.u32 %r9, 0;", 32, "reads %r9"},
		"predicate never written": {
			buf + "BUG @%p5 mov.u32 %r9, 1;", "", "setp.lt.u32 %p5, %r0, 4;", 32, "reads %p5"},
		"wait missing": {
			buf + "cp.async.ca.shared.global [%r3], [%rd0], 4; cp.async.commit_group; BUG bar.sync 0; ld.shared.u32 %r6, [%r4];",
			"", "cp.async.wait_group 0;", 64, "cp.async of warp"},
		"one group waited for too few": {
			buf + "cp.async.ca.shared.global [%r3], [%rd0], 4; cp.async.commit_group; cp.async.ca.shared.global [%r3+512], [%rd0], 4; cp.async.commit_group; BUG bar.sync 0; ld.shared.u32 %r6, [%r4+512];",
			"cp.async.wait_group 1;", "cp.async.wait_group 0;", 64, "cp.async of warp"},
		"barrier missing behind the wait": {
			buf + "cp.async.ca.shared.global [%r3], [%rd0], 4; cp.async.wait_all; BUG ld.shared.u32 %r6, [%r4];",
			"", "bar.sync 0;", 64, "nothing has been written"},
		"beyond shared memory": {
			buf + "BUG st.shared.u32 [%r3+1016], %r0;", "", "sub.u32 %r3, %r3, %r2;", 4, "out of bounds"},
		"beyond dynamic shared memory": {
			"mov.u32 %r3, dyn; BUG", "st.shared.u32 [%r3], 1;", "", 1, "out of bounds"},
		"misaligned vector": {
			buf + "add.u32 %r3, %r1, BUG; st.shared.v4.u32 [%r3], {%r0,%r0,%r0,%r0};", "8", "16", 1, "misaligned: 16 bytes"},
		"misaligned row of ldmatrix": {
			buf + "shl.b32 %r2, %r0, 4; add.u32 %r3, %r1, %r2; st.shared.v4.u32 [%r3], {%r0,%r0,%r0,%r0}; bar.warp.sync -1; BUG ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r6}, [%r3];",
			"add.u32 %r3, %r3, 2;", "", 32, "misaligned"},
		"beyond local memory": {
			".local .align 4 .b8 stack[8]; mov.u64 %rd4, stack; st.local.u32 [%rd4+BUG], 1;", "8", "4", 1, "out of bounds"},
		"null pointer":        {"mov.u64 %rd4, BUG; ld.global.u32 %r1, [%rd4];", "16", "%rd0", 1, "no allocation"},
		"write to a constant": {"mov.u64 %rd4, BUG; st.global.u32 [%rd4], 1;", "fixed", "%rd0", 1, "a write to a constant"},
	} {
		run := func(in string) error {
			text := strings.Replace(entry(strings.ReplaceAll(x.text, "BUG", in)), ".visible", ".const .align 8 .b8 fixed[8];\n.extern .shared .align 16 .b8 dyn[];\n.visible", 1)
			m := mustParse(t, text)
			mem := NewMemory(1 << 20)
			n := 8 * x.threads
			return Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{uint32(x.threads)}}, args(alloc(t, mem, n), alloc(t, mem, n)), Options{Checks: CheckAll})
		}
		err := run(x.bug)
		if err == nil || !strings.Contains(err.Error(), x.message) {
			t.Errorf("%s: error %v, %q wanted", name, err, x.message)
		}
		if err := run(x.right); err != nil {
			t.Errorf("%s: without the bug: %v", name, err)
		}
	}
}

// blocks runs a body on four blocks of 32 threads; %rd0 is the address of a buffer of a kilobyte, %r9 the
// block's number.
func blocks(t *testing.T, body string, shadow bool) error {
	t.Helper()
	m := mustParse(t, entry("mov.u32 %r9, %ctaid.x; ld.param.u64 %rd0, [in];\n"+body))
	mem := NewMemory(1 << 20)
	if shadow {
		mem.Shadow()
	}
	return Launch(mem, m.Kernel("k"), Grid{Grid: [3]uint32{4}, Block: [3]uint32{32}}, args(alloc(t, mem, 1024), alloc(t, mem, 1024)), Options{Checks: CheckAll})
}

func TestRacesBetweenBlocks(t *testing.T) {
	const mine = "shl.b32 %r2, %r0, 2; shl.b32 %r3, %r9, 7; add.u32 %r2, %r2, %r3; cvt.u64.u32 %rd2, %r2; add.u64 %rd2, %rd2, %rd0;"
	for body, want := range map[string]string{
		mine + "st.global.u32 [%rd2], %r0; ld.global.u32 %r5, [%rd2];":                 "",
		"st.global.u32 [%rd0], %r9;":                                                   "was written by block 0",
		mine + "ld.global.u32 %r5, [%rd0]; bar.warp.sync -1; st.global.u32 [%rd2], 1;": "was written by block 0",
		// The next block reads a word last that it then writes, and the one before it reads the same word.
		mine + "ld.global.u32 %r5, [%rd2+128]; ld.global.u32 %r5, [%rd2]; st.global.u32 [%rd2], 1;": "was read by block 0",
		"red.global.add.u32 [%rd0], 1;":                            "",
		"red.global.add.u32 [%rd0], 1; ld.global.u32 %r5, [%rd0];": "race",
		// The last block to arrive adds up what the others left.
		mine + `st.global.u32 [%rd2], %r0; membar.gl; bar.sync 0;
		setp.ne.u32 %p1, %r0, 0; @%p1 exit;
		atom.global.inc.u32 %r5, [%rd0+512], 3; setp.ne.u32 %p2, %r5, 3; @%p2 exit;
		ld.global.u32 %r6, [%rd0+4];`: "",
		mine + `st.global.u32 [%rd2], %r0; bar.sync 0;
		setp.ne.u32 %p1, %r0, 0; @%p1 exit;
		atom.global.inc.u32 %r5, [%rd0+512], 3; setp.ne.u32 %p2, %r5, 3; @%p2 exit;
		ld.global.u32 %r6, [%rd0+4];`: "race",
	} {
		err := blocks(t, body, false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, %q wanted", body, err, want)
		}
	}
}

// TestRacesWithinBlocks runs bodies on 64 threads; %rd2 is the address of the thread's word in a buffer, %rd3
// of that of the same lane in the other warp, %rd4 of that of the neighbor.
func TestRacesWithinBlocks(t *testing.T) {
	const words = "ld.param.u64 %rd0, [in]; mul.wide.u32 %rd2, %r0, 4; xor.b64 %rd3, %rd2, 128; xor.b64 %rd4, %rd2, 4;" +
		"add.u64 %rd2, %rd2, %rd0; add.u64 %rd3, %rd3, %rd0; add.u64 %rd4, %rd4, %rd0; setp.eq.u32 %p1, %r0, 0;\n"
	for _, c := range []struct{ text, bug, right, want string }{
		{"st.global.u32 [%rd2], %r0; BUG ld.global.u32 %r5, [%rd3];", "", "bar.sync 0;", "was read by thread [0 0 0] and no barrier"},
		{"ld.global.u32 %r5, [%rd3]; ld.global.u32 %r5, [%rd2]; BUG st.global.u32 [%rd2], 1;", "", "bar.sync 0;", "was written by thread [0 0 0] and no barrier"},
		{"st.global.u32 [%rd2], %r0; BUG ld.global.u32 %r5, [%rd4];", "", "bar.warp.sync -1;", "was written by thread [1 0 0] and no bar.warp"},
		{"ld.global.u32 %r5, [%rd4]; ld.global.u32 %r5, [%rd2]; BUG st.global.u32 [%rd2], 1;", "", "bar.warp.sync -1;", "was read by thread [1 0 0] and no bar.warp"},
		{"ld.global.u16 %r5, [%rd4]; BUG st.global.u32 [%rd2], 1;", "", "bar.warp.sync -1;", "was read by thread [1 0 0]"},
		{"st.global.u8 [%rd2+1], 1; BUG ld.global.u16 %r5, [%rd4];", "", "bar.warp.sync -1;", "was written by thread [1 0 0]"},
		{"@%p1 st.global.u32 [%rd0], 1; BUG red.global.add.u32 [%rd0], 1;", "", "bar.sync 0;", "was written by thread [31 0 0]"},
		{"@%p1 st.volatile.global.u32 [%rd0], 1; BUG", "ld.global.u32 %r5, [%rd0];", "ld.volatile.global.u32 %r5, [%rd0];", "was written by thread [0 0 0]"},
		{"BUG st.global.u32 [%rd0], 1;", "", "setp.ge.u32 %p1, %r0, 32; @%p1 exit;", "was written by thread [31 0 0]"}, // lanes of one instruction may
	} {
		run := func(in string) error {
			m := mustParse(t, entry(words+strings.ReplaceAll(c.text, "BUG", in)))
			mem := NewMemory(1 << 20)
			return Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{64}}, args(alloc(t, mem, 256), alloc(t, mem, 512)), Options{Checks: CheckAll})
		}
		if err := run(c.bug); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, %q wanted", c.text, err, c.want)
		}
		if err := run(c.right); err != nil {
			t.Errorf("%s: without the bug: %v", c.text, err)
		}
	}
}

// Neither a barrier nor the order of a thread's own accesses lets ld.global.nc see what the launch writes.
func TestConstantLoads(t *testing.T) {
	const mine = "shl.b32 %r2, %r0, 2; shl.b32 %r3, %r9, 7; add.u32 %r2, %r2, %r3; cvt.u64.u32 %rd2, %r2; add.u64 %rd2, %rd2, %rd0;"
	for body, want := range map[string]string{
		"st.global.u32 [%rd2], %r0; bar.sync 0; ld.global.nc.u32 %r5, [%rd2];": "is read by ld.global.nc and was written",
		"ld.global.nc.u32 %r5, [%rd2]; bar.sync 0; st.global.u32 [%rd2], %r0;": "is written and was read by ld.global.nc",
		// The last read is another.
		"ld.global.nc.u32 %r5, [%rd2]; ld.global.u32 %r5, [%rd2]; bar.sync 0; st.global.u32 [%rd2], %r0;": "is written and was read by ld.global.nc",
		"st.global.u16 [%rd2], 1; bar.sync 0; ld.global.nc.u32 %r5, [%rd2];":                              "is read by ld.global.nc and was written",
		"st.global.u32 [%rd2], %r0; ld.global.u32 %r5, [%rd2]; ld.global.nc.u32 %r5, [%rd2+512];":         "",
	} {
		err := blocks(t, mine+body, false)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, %q wanted", body, err, want)
		}
	}
}

// A launch does not race with an earlier one, even when the numbers of blocks start again.
func TestRacesAreOfOneLaunch(t *testing.T) {
	m := mustParse(t, entry("st.global.u32 [%rd1], 1; ld.param.u64 %rd0, [in]; ld.global.u32 %r5, [%rd0];"))
	mem := NewMemory(1 << 20)
	a, b := alloc(t, mem, 1024), alloc(t, mem, 1024)
	for i := range 8 {
		if i == 4 {
			mem.blocks = strongBit - 4
		}
		if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{32}}, args(a, b), Options{Checks: CheckAll}); err != nil {
			t.Fatal(i, err)
		}
		a, b = b, a
	}
	if mem.blocks > 8 {
		t.Errorf("block %d", mem.blocks)
	}
}

func TestGlobalShadow(t *testing.T) {
	err := blocks(t, "ld.global.u32 %r1, [%rd0];", true)
	if err == nil || !strings.Contains(err.Error(), "nothing has been written") {
		t.Error(err)
	}
	if err := blocks(t, "red.global.add.u32 [%rd0], 1;", true); err == nil {
		t.Error("an atomic on undefined memory is taken")
	}
	mem := NewMemory(1 << 20)
	mem.Shadow()
	m := mustParse(t, entry("ld.global.u64 %rd2, [%rd0]; st.global.u64 [%rd1], %rd2; ld.global.u64 %rd2, [%rd1];"))
	a, out := alloc(t, mem, 64), alloc(t, mem, 64)
	run := func() error {
		return Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{8}}, args(a, out), Options{Checks: CheckAll})
	}
	if err := mem.Written(a, 64, true); err != nil {
		t.Fatal(err)
	}
	if err := run(); err != nil {
		t.Error(err)
	}
	if err := mem.Written(a, 8, false); err != nil {
		t.Fatal(err)
	}
	if run() == nil {
		t.Error("memory that is undefined again is read")
	}
}

func TestMemoryBounds(t *testing.T) {
	mem := NewMemory(1000)
	a := alloc(t, mem, 600)
	if _, err := mem.Alloc(500); err == nil {
		t.Error("more than there is")
	}
	if _, err := mem.Bytes(a+590, 11); err == nil {
		t.Error("a view beyond the end")
	}
	if err := mem.Free(a + 1); err == nil {
		t.Error("free within an allocation")
	}
	if err := mem.Free(a); err != nil || mem.Used() != 0 {
		t.Error(err, mem.Used())
	}
	if _, err := mem.Bytes(a, 1); err == nil {
		t.Error("a view of what was freed")
	}
}

// TestWorkers checks that results, and the error that is reported, do not depend on the number of workers.
func TestWorkers(t *testing.T) {
	m := mustParse(t, entry(`mov.u32 %r9, %ctaid.x; mad.wide.u32 %rd1, %r9, 256, %rd1; st.global.u64 [%rd1], %rd1;
	setp.ne.u32 %p1, %r9, 5; @%p1 bra OK; ld.param.u64 %rd2, [in]; ld.global.u64 %rd2, [%rd2+99999]; OK: mov.u32 %r1, 1;
	setp.lt.u32 %p1, %r9, 7; @%p1 bra FINE; trap; FINE: mov.u32 %r1, 1;`))
	for _, n := range []int{1, 2, 7} {
		mem := NewMemory(1 << 20)
		err := Launch(mem, m.Kernel("k"), Grid{Grid: [3]uint32{40}, Block: [3]uint32{32}}, args(alloc(t, mem, 256), alloc(t, mem, 40*256)), Options{Workers: n})
		if err == nil || !strings.Contains(err.Error(), "block [5 0 0]") {
			t.Errorf("%d workers: %v", n, err)
		}
	}
}
