package ptxsim

import (
	"fmt"
	"strings"
	"testing"
)

// alone runs a body and returns the clocks that a block of one warp takes by itself.
func alone(t *testing.T, body string) int64 {
	t.Helper()
	m := mustParse(t, entry(body))
	mem := NewMemory(1 << 20)
	var c Counters
	if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{32}}, args(alloc(t, mem, 4096), alloc(t, mem, 4096)), Options{Counters: &c}); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	return c.Kernels["k"].Alone
}

// Independent instructions proceed while loads that they do not read are under way.
func TestAlone(t *testing.T) {
	load := func(to, at int) string { return fmt.Sprintf("ld.global.b32 %%r%d, [%%rd1+%d];\n", to, at) }
	use := func(r int) string { return fmt.Sprintf("add.u32 %%r9, %%r9, %%r%d;\n", r) }
	nothing := alone(t, "mov.u32 %r9, 0;")
	one := alone(t, "mov.u32 %r9, 0;\n"+load(1, 0)+use(1)+"bar.sync 0;") - nothing
	if one < latencies[PipeGlobal] || one > latencies[PipeGlobal]+20 {
		t.Errorf("a load and its use take %d clocks, the load alone %d", one, latencies[PipeGlobal])
	}
	if two := alone(t, "mov.u32 %r9, 0;\n"+load(1, 0)+load(2, 4)+use(1)+use(2)+"bar.sync 0;") - nothing; two > one+20 {
		t.Errorf("two loads take %d clocks, one %d: they are under way together", two, one)
	}
	if late := alone(t, "mov.u32 %r9, 0;\n"+load(1, 0)+use(1)+load(2, 4)+use(2)+"bar.sync 0;") - nothing; late > one+20 {
		t.Errorf("two loads take %d clocks, one %d: the assembler lets the second begin early", late, one)
	}
	if apart := alone(t, "mov.u32 %r9, 0;\n"+load(1, 0)+use(1)+"bar.sync 0;\n"+load(2, 4)+use(2)+"bar.sync 0;") - nothing; apart < 2*one-20 {
		t.Errorf("two loads with a barrier between them take %d clocks, one %d", apart, one)
	}
	chain := strings.Repeat("add.u32 %r9, %r9, 1;\n", 100)
	if c := alone(t, "mov.u32 %r9, 0;\n"+chain) - nothing; c < 95*latencies[PipeInteger] || c > 105*latencies[PipeInteger] {
		t.Errorf("a hundred additions to one sum take %d clocks", c)
	}
}

// Small loops run four rounds at once, as ptxas unrolls them, unless they store or must not be unrolled.
func TestAloneOfLoops(t *testing.T) {
	loop := func(pragma, rest string) int64 {
		return alone(t, "mov.u32 %r9, 0;\nmov.u32 %r8, 0;\n$loop:\n"+pragma+"ld.global.b32 %r1, [%rd1];\nadd.u32 %r9, %r9, %r1;\n"+rest+
			"add.u64 %rd1, %rd1, 4;\nadd.u32 %r8, %r8, 1;\nsetp.lt.u32 %p1, %r8, 64;\n@%p1 bra $loop;")
	}
	plain, rolled, stores := loop("", ""), loop(".pragma \"nounroll\";\n", ""), loop("", "st.global.b32 [%rd0], %r9;\n")
	if plain*3 > rolled {
		t.Errorf("64 loads take %d clocks in a loop, %d in one that is not unrolled", plain, rolled)
	}
	if stores < rolled {
		t.Errorf("64 loads take %d clocks in a loop with stores, %d in one without that is not unrolled", stores, rolled)
	}
}

// An instruction is counted as the several that ptxas compiles it to.
func TestExpansions(t *testing.T) {
	for text, want := range map[string]takes{
		"add.u32 %r1, %r2, %r3;":       {PipeInteger: 1},
		"add.u64 %rd3, %rd1, %rd2;":    {PipeInteger: 2},
		"div.u32 %r1, %r2, %r3;":       {PipeInteger: 15, PipeXU: 3},
		"div.u32 %r1, %r2, 77;":        {PipeInteger: 7},
		"sqrt.rn.f32 %f1, %f2;":        {PipeFP32: 4, PipeXU: 1, PipeInteger: 5, PipeControl: 3},
		"ex2.approx.ftz.f32 %f1, %f2;": {PipeXU: 1},
	} {
		m := mustParse(t, entry("mov.u32 %r2, 6;\nmov.u32 %r3, 3;\nmov.f32 %f2, 0f3F800000;\n"+text))
		k := m.Kernel("k")
		for i := range k.code {
			if in := &k.code[i]; strings.HasPrefix(in.st.text, text[:8]) && in.takes != want {
				t.Errorf("%s takes %v, want %v", text, in.takes, want)
			}
		}
	}
}
