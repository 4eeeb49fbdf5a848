package ptxsim

import (
	"strings"
	"testing"
	"time"
)

// FuzzParse checks that hostile text gives an error or a module, never a panic; small modules are also run
// for a while.
func FuzzParse(f *testing.F) {
	f.Add(entry("add.u32 %r1, %r0, 1;"))
	f.Add(entry(".shared .align 4 .b8 s[64]; @%p1 bra L; L: bar.sync 0;"))
	f.Add(header + ".global .u32 x[2] = {1, 2};\n.func (.reg .b32 a) f(.param .b32 b){ ret; }")
	f.Add(header + ".visible .entry k(.param .align 8 .b8 p[16]) .maxntid 1, 2, 3 { .loc 1 2 3\n.pragma \"nounroll\"; .reg .b32 %r<3>; ld.param.v2.b32 {%r1, %r2}, [p+8]; }\n.file 1 \"a/b.cu\"\n.section .debug { .b8 1 }")
	f.Add(header + ".visible .entry k(){ .reg .b32 %r<2>; .reg .pred %p; setp.eq.u32 %p|_, %r1, 0; shfl.sync.idx.b32 %r1|%p, %r1, 0, 31, -1; }")
	f.Add(header + ".visible .entry k(){ .reg .b16 %h<4>; .reg .b64 %d; mov.b64 {%h0,%h1,%h2,%h3}, %d; cvt.u64.u16 %d, %h1; // implicit-def: %d\n}")
	f.Add(header + ".visible .entry k(){ .reg .b32 %r<99999999999>; .local .b8 x[1<<40]; }")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "ptx") && !strings.Contains(err.Error(), "static shared") {
				t.Errorf("an error without a line: %v", err)
			}
			return
		}
		for _, name := range m.Kernels() {
			k := m.Kernel(name)
			if len(k.code) > 200 || k.MaxThreads > 64 {
				continue
			}
			// Whatever the kernel does, the result must be a Fault or nil.
			_ = Launch(NewMemory(1<<20), k, Grid{Block: [3]uint32{32}}, make([]byte, k.ParamBytes), Options{Checks: CheckAll, Limit: 1 << 12})
		}
	})
}

// TestHostileSizes parses texts that ask for more than there is.
func TestHostileSizes(t *testing.T) {
	double := header + ".func f0(){ ret; }\n"
	for i := range 40 { // each calls the one before twice
		a, b := string(rune('A'+i/26))+string(rune('a'+i%26)), "0"
		if i > 0 {
			b = string(rune('A'+(i-1)/26)) + string(rune('a'+(i-1)%26))
		}
		double += ".func f" + a + "(){ call f" + b + "; call f" + b + "; ret; }\n"
	}
	for name, text := range map[string]string{
		"calls":     double + ".visible .entry k(){ call fBn; ret; }",
		"registers": entry(".reg .b32 %x<1000000000>;"),
		"local":     entry(".local .b8 x[100000000000];"),
		"shared":    entry(".shared .b8 x[49153];"),
		"global":    header + ".global .b8 x[999999999999];",
		"many":      header + strings.Repeat(".global .b8 x[200000000];", 3),
		"params":    header + ".visible .entry k(.param .b8 x[5000]){ ret; }",
		"scopes":    header + ".visible .entry k()" + strings.Repeat("{", 100000),
		"string":    header + ".visible .entry k(){ .pragma \"",
		"vector":    entry("mov.b32 {" + strings.Repeat("%r1,", 100000) + "%r1}, %r0;"),
		"overflow":  header + ".visible .entry k(.param .b8 x[4294967296][4294967296]){ ret; }",
	} {
		start := time.Now()
		if _, err := Parse(text); err == nil {
			t.Errorf("%s: no error", name)
		} else if len(err.Error()) > 2000 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("%s: %v", name, d)
		}
	}
}
