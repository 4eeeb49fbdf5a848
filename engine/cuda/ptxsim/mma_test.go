package ptxsim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
)

// fragments says where each element of an mma's matrices is: its element of the fragment and its lane, from
// an independent source (named in testdata/fragments.json).
type fragments struct {
	Source string
	Shapes map[string]struct {
		K       int
		A, B, C [][][2]int
	}
}

func readFragments(t *testing.T) fragments {
	t.Helper()
	var f fragments
	text, err := os.ReadFile("testdata/fragments.json")
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// matrixKernel is a kernel that loads fragments of na, nb and nc registers per lane, multiplies, and stores
// nc.
func matrixKernel(op string, na, nb, nc int) string {
	var b strings.Builder
	list := func(prefix string, n int) string {
		var l []string
		for i := range n {
			l = append(l, fmt.Sprintf("%%%s%d", prefix, i))
		}
		return "{" + strings.Join(l, ",") + "}"
	}
	b.WriteString(header + ".visible .entry k(.param .u64 in, .param .u64 out){ .reg .b32 %a<4>, %b<4>, %c<4>, %d<4>, %t; .reg .b64 %i, %o; mov.u32 %t, %laneid; ld.param.u64 %i, [in]; ld.param.u64 %o, [out]; mad.wide.u32 %i, %t, 64, %i; mad.wide.u32 %o, %t, 16, %o;\n")
	at := 0
	for _, x := range []struct {
		p string
		n int
	}{{"a", na}, {"b", nb}, {"c", nc}} {
		for i := range x.n {
			fmt.Fprintf(&b, "ld.global.b32 %%%s%d, [%%i+%d];\n", x.p, i, at+4*i)
		}
		at += 16
	}
	fmt.Fprintf(&b, "%s %s, %s, %s, %s;\n", op, list("d", nc), list("a", na), list("b", nb), list("c", nc))
	for i := range nc {
		fmt.Fprintf(&b, "st.global.b32 [%%o+%d], %%d%d;\n", 4*i, i)
	}
	return b.String() + "}"
}

// TestMMALayout multiplies small whole numbers, which all formats hold exactly, placed by the independent
// source's tables.
func TestMMALayout(t *testing.T) {
	tables := readFragments(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, x := range []struct {
		op, table  string
		in, acc    format
		na, nb, nc int
	}{
		{"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "m16n8k8", half, single, 2, 1, 4},
		{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "m16n8k16", half, single, 4, 2, 4},
		{"mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", "m16n8k8", half, half, 2, 1, 2},
		{"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "m16n8k16", half, half, 4, 2, 2},
		{"mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k8", brain, single, 2, 1, 4},
		{"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "m16n8k16", brain, single, 4, 2, 4},
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "m16n8k8.tf32", single, single, 4, 2, 4},
	} {
		shape, ok := tables.Shapes[x.table]
		if !ok {
			t.Fatalf("no table %s", x.table)
		}
		in := make([]byte, 32*64)
		put := func(base int, f format, at [2]int, v float64) {
			n := (f.exponent + f.fraction + 1) / 8
			storeBytes(in[at[1]*64+base+at[0]*n:], n, f.round(v, toNearest))
		}
		matrix := func(rows, cols, base int, f format, table [][][2]int) [][]float64 {
			m := make([][]float64, rows)
			for i := range m {
				m[i] = make([]float64, cols)
				for j := range m[i] {
					m[i][j] = float64(r.IntN(9) - 4)
					put(base, f, table[i][j], m[i][j])
				}
			}
			return m
		}
		a := matrix(16, shape.K, 0, x.in, shape.A)
		b := matrix(shape.K, 8, 16, x.in, shape.B)
		c := matrix(16, 8, 32, x.acc, shape.C)
		for _, fast := range []bool{true, false} {
			out := multiplyFragments(t, matrixKernel(x.op, x.na, x.nb, x.nc), in, fast)
			n := (x.acc.exponent + x.acc.fraction + 1) / 8
			for i := range 16 {
				for j := range 8 {
					want := c[i][j]
					for k := range shape.K {
						want += a[i][k] * b[k][j]
					}
					at := shape.C[i][j]
					if got := x.acc.value(loadBytes(out[at[1]*16+at[0]*n:], n)); got != want {
						t.Fatalf("%s (fast %v): row %d, column %d: %g, want %g", x.op, fast, i, j, got, want)
					}
				}
			}
		}
	}
}

// multiplyFragments runs a matrixKernel with or without the processor's own functions.
func multiplyFragments(t *testing.T, text string, in []byte, fast bool) []byte {
	t.Helper()
	if !fast {
		old := mmaKernels
		mmaKernels = nil
		defer func() { mmaKernels = old }()
	}
	m := mustParse(t, text)
	mem := NewMemory(1 << 20)
	a, out := alloc(t, mem, len(in)), alloc(t, mem, 32*16)
	copy(bytesOf(t, mem, a, len(in)), in)
	if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{32}}, args(a, out), Options{Checks: CheckAll}); err != nil {
		t.Fatal(err)
	}
	return bytesOf(t, mem, out, 32*16)
}

// TestMMABits checks the assembly against plain Go on all kinds of numbers.
func TestMMABits(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for op, n := range map[string][3]int{
		"m16n8k8.row.col.f32.f16.f16.f32": {2, 1, 4}, "m16n8k16.row.col.f32.f16.f16.f32": {4, 2, 4},
		"m16n8k8.row.col.f16.f16.f16.f16": {2, 1, 2}, "m16n8k16.row.col.f16.f16.f16.f16": {4, 2, 2},
		"m16n8k8.row.col.f32.bf16.bf16.f32": {2, 1, 4}, "m16n8k16.row.col.f32.bf16.bf16.f32": {4, 2, 4},
		"m16n8k8.row.col.f32.tf32.tf32.f32": {4, 2, 4},
	} {
		text := matrixKernel("mma.sync.aligned."+op, n[0], n[1], n[2])
		for round := range 6 {
			in := make([]byte, 32*64)
			for i := 0; i < len(in); i += 4 {
				v := r.Uint32()
				if round > 1 { // no exponents at the ends of the range, so that few results are NaN
					v = v&0x8fff8fff | 0x30003000
				}
				binary.LittleEndian.PutUint32(in[i:], v)
			}
			if got, want := multiplyFragments(t, text, in, true), multiplyFragments(t, text, in, false); !slices.Equal(got, want) {
				t.Errorf("%s: the assembly gives other bits", op)
			}
		}
	}
}

// TestLaneBits checks the other assembly functions against plain Go.
func TestLaneBits(t *testing.T) {
	s := specimens(single)
	r := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		var a, b, c, got, want lanes32
		for l := range a {
			a[l], b[l], c[l] = uint32(s[r.IntN(len(s))]), uint32(s[r.IntN(len(s))]), uint32(s[r.IntN(len(s))])
		}
		check := func(name string) {
			t.Helper()
			if got != want {
				t.Fatalf("%s of %x, %x, %x: %x, want %x", name, a, b, c, got, want)
			}
		}
		add32(&got, &a, &b)
		add32Go(&want, &a, &b)
		check("add")
		sub32(&got, &a, &b)
		sub32Go(&want, &a, &b)
		check("sub")
		mul32(&got, &a, &b)
		mul32Go(&want, &a, &b)
		check("mul")
		fused32(&got, &a, &b, &c)
		fused32Go(&want, &a, &b, &c)
		check("fma")
		toHalf32(&got, &a)
		toHalf32Go(&want, &a)
		check("to half")
		fromHalf32(&got, &a)
		fromHalf32Go(&want, &a)
		check("from half")
		addWords(&got, &a, &b)
		addWordsGo(&want, &a, &b)
		check("integer sum")
		for l := range a {
			if r.IntN(2) == 0 {
				b[l] = a[l]
			}
		}
		got[0], want[0] = equal32(&a, &b), equal32Go(&a, &b)
		check("equal")
		for _, flip := range []uint32{0, 1 << 31} {
			got[0], want[0] = less32(&a, &b, flip), less32Go(&a, &b, flip)
			check("less")
		}
	}
}

// TestSpan checks that every access out of bounds is seen, and each address that is not aligned.
func TestSpan(t *testing.T) {
	const base, last = 1 << 40, 1000
	r := rand.New(rand.NewPCG(15, 16))
	for i := range 500 {
		var addr, sum, wantSum lanes64
		var off, wantOff offsets
		for l := range addr {
			addr[l] = base + 4*r.Uint64N(last/4+1)
		}
		special := []uint64{0, 1, base - 1, base - 4, base + last + 1, base + last + 4, 1 << 62, 1<<63 - 1, 1 << 63, math.MaxUint64}
		inside := i%2 == 0
		if !inside {
			addr[r.IntN(32)] = special[r.IntN(len(special))]
		}
		low, outside := span(&off, &addr, base, last)
		wantLow, wantOutside := spanGo(&wantOff, &addr, base, last)
		if off != wantOff || low != wantLow || outside>>63 != wantOutside>>63 || (outside>>63 == 0) != inside {
			t.Fatalf("%x: %x, %x, %x, want %x, %x, %x", addr, off, low, outside, wantOff, wantLow, wantOutside)
		}
		addWide(&sum, &addr, &addr)
		addWideGo(&wantSum, &addr, &addr)
		if sum != wantSum {
			t.Fatalf("the sums are %x, want %x", sum, wantSum)
		}
	}
}

// TestMMAOverlap puts the result into registers of the operands.
func TestMMAOverlap(t *testing.T) {
	text := matrixKernel("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 2, 1, 4)
	in := make([]byte, 32*64)
	r := rand.New(rand.NewPCG(13, 14))
	for i := range in {
		in[i] = byte(r.Uint32()) & 0x3f
	}
	want := slices.Clone(multiplyFragments(t, text, in, true))
	swapped := strings.NewReplacer("{%d0,%d1,%d2,%d3}", "{%a1,%c0,%b0,%a0}", "], %d0", "], %a1", "], %d1", "], %c0", "], %d2", "], %b0", "], %d3", "], %a0").Replace(text)
	if got := multiplyFragments(t, swapped, in, true); !slices.Equal(got, want) {
		t.Error("a result that overlaps the operands differs")
	}
}

// TestMMATensor4 tests m16n8k4, which the independent source lacks: it is m16n8k8 with half of the columns
// zero.
func TestMMATensor4(t *testing.T) {
	in := make([]byte, 32*64)
	for l := range 32 {
		for i := range 2 { // A: row l/4+8i, column l%4
			binary.LittleEndian.PutUint32(in[l*64+4*i:], math.Float32bits(float32(l/4+8*i+100*(l%4))))
		}
		binary.LittleEndian.PutUint32(in[l*64+16:], math.Float32bits(float32(l%4*10+l/4))) // B: row l%4, column l/4
	}
	out := multiplyFragments(t, matrixKernel("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 2, 1, 4), in, true)
	for row := range 16 {
		for col := range 8 {
			want := float32(0)
			for k := range 4 {
				want += float32(row+100*k) * float32(10*k+col)
			}
			at := (row%8*4+col/2)*16 + (row/8*2+col%2)*4
			if got := f32(binary.LittleEndian.Uint32(out[at:])); got != want {
				t.Fatalf("row %d, column %d: %g, want %g", row, col, got, want)
			}
		}
	}
}

// TestLdmatrix loads matrices whose element in row r and column c is 100 i + 10 r + c and checks the
// fragments against the layout that mma takes, for which ldmatrix is made.
func TestLdmatrix(t *testing.T) {
	for n := range map[int]bool{1: true, 2: true, 4: true} {
		for _, trans := range []string{"", ".trans"} {
			regs := []string{"%r10", "%r11", "%r12", "%r13"}[:n]
			// Rows are 16 bytes apart; each lane writes the row whose address it gives.
			text := `.shared .align 16 .b8 buf[512];
			mov.u32 %r1, buf; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2;
			shr.u32 %r3, %r0, 3; mul.lo.u32 %r3, %r3, 100; and.b32 %r4, %r0, 7; mad.lo.u32 %r3, %r4, 10, %r3;
			mad.lo.u32 %r3, %r3, 0x10001, 0x10000;
			add.u32 %r4, %r3, 0x20002; add.u32 %r5, %r3, 0x40004; add.u32 %r6, %r3, 0x60006;
			st.shared.v4.b32 [%r1], {%r3, %r4, %r5, %r6};
			bar.warp.sync -1;
			` + fmt.Sprintf("ldmatrix.sync.aligned.m8n8.x%d%s.shared.b16 {%s}, [%%r1];\n", n, trans, strings.Join(regs, ","))
			for i, r := range regs {
				if i%2 == 0 {
					text += fmt.Sprintf("cvt.u64.u32 %%rd2, %s;", r)
				} else {
					text += fmt.Sprintf("cvt.u64.u32 %%rd3, %s; shl.b64 %%rd3, %%rd3, 32; or.b64 %%rd2, %%rd2, %%rd3;", r)
				}
				if i == n-1 || i == 1 {
					text += fmt.Sprintf("st.global.b64 [%%rd1+%d], %%rd2;", i/2*256)
				}
			}
			m := mustParse(t, entry(text))
			mem := NewMemory(1 << 20)
			a, out := alloc(t, mem, 256), alloc(t, mem, 512)
			if err := Launch(mem, m.Kernel("k"), Grid{Block: [3]uint32{32}}, args(a, out), Options{Checks: CheckAll}); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				for l := range 32 {
					b := bytesOf(t, mem, out+uint64(i/2*256+l*8+i%2*4), 4)
					row, col := l/4, l%4*2
					want := [2]int{100*i + 10*row + col, 100*i + 10*row + col + 1}
					if trans != "" {
						want = [2]int{100*i + 10*col + row, 100*i + 10*(col+1) + row}
					}
					got := [2]int{int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))}
					if got != want {
						t.Fatalf("x%d%s, matrix %d, lane %d: %v, want %v", n, trans, i, l, got, want)
					}
				}
			}
		}
	}
}
