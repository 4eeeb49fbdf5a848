package ptxsim

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

var matrixOps = map[string]func(c *compiler) error{
	"mma": (*compiler).mma, "ldmatrix": (*compiler).ldmatrix, "movmatrix": (*compiler).movmatrix,
}

// tile holds an mma's operands as matrices.
type tile struct {
	a [16][16]float32 // row, k
	b [16][8]float32  // k, column
	c [16][8]float32  // row, column
}

// multiply adds the products of the first n values of k to c, one k after another: products are exact, and
// each sum is rounded to float32.
func (t *tile) multiply(n int) {
	for r := range t.c {
		for col := range t.c[r] {
			sum := math.Float32bits(t.c[r][col])
			for k := range n {
				sum = fma32(math.Float32bits(t.a[r][k]), math.Float32bits(t.b[k][col]), sum)
			}
			t.c[r][col] = f32(sum)
		}
	}
}

// mmaShape is what an instruction multiplies: k and the type of A and B.
type mmaShape struct {
	k int
	t typ
}

var mmaShapes = map[string]mmaShape{
	"m16n8k8.f16.f16": {8, tF16}, "m16n8k16.f16.f16": {16, tF16},
	"m16n8k8.bf16.bf16": {8, tBF16}, "m16n8k16.bf16.bf16": {16, tBF16},
	"m16n8k4.tf32.tf32": {4, tTF32}, "m16n8k8.tf32.tf32": {8, tTF32},
}

// mma compiles mma.sync.aligned.SHAPE.row.col.D.A.B.C. Of lane l, with g = l/4 and t =
// l%4, the fragments hold
//
//	A of 16 bits: register i the columns 2t, 2t+1 (+8 from register 2 on) of row g (+8 where i is odd)
//	B of 16 bits: register i the rows 2t, 2t+1 (+8i) of column g
//	A of tf32:    register i column t (+4 from register 2 on) of row g (+8 where i is odd)
//	B of tf32:    register i row t (+4i) of column g
//	C and D:      row g, then row g+8, of columns 2t and 2t+1; of f16 both columns in one register
func (c *compiler) mma() error {
	p := c.parts
	if len(p) != 10 || strings.Join(p[1:3], ".") != "sync.aligned" || p[4] != "row" || p[5] != "col" {
		return c.errorf("only mma.sync.aligned.SHAPE.row.col.D.A.B.C is modeled")
	}
	s, ok := mmaShapes[p[3]+"."+p[7]+"."+p[8]]
	if !ok {
		return c.errorf("shape and types are not modeled")
	}
	tc := typeNames[p[9]]
	if p[6] != p[9] || tc != tF32 && (tc != tF16 || s.t != tF16) {
		return c.errorf("accumulators .%s and .%s are not modeled", p[6], p[9])
	}
	if len(c.args) != 4 {
		return c.errorf("%d operands, 4 are needed", len(c.args))
	}
	na, acc, te := s.k/4, 4, tB32
	if s.t == tTF32 {
		na = s.k / 2
	}
	if tc == tF16 {
		acc = 2
	} else {
		te = tF32
	}
	var regs [4][]ref
	for i, n := range []int{acc, na, na / 2, acc} {
		names := vector(c.args[i])
		if len(names) != n {
			return c.errorf("%d registers in operand %d, %d are needed", len(names), i+1, n)
		}
		for _, name := range names {
			var r ref
			var err error
			switch i {
			case 0:
				r, err = c.write(name, te)
			case 3:
				r, err = c.read(name, te)
			default:
				r, err = c.read(name, tB32)
			}
			if err != nil {
				return err
			}
			regs[i] = append(regs[i], r)
		}
	}
	c.in.control = converged
	if fast := mmaKernels[p[3]+"."+p[6]+"."+p[7]]; fast != nil {
		c.mmaFast(fast, regs)
		return nil
	}
	c.in.run = func(w *warp, _ uint32) {
		t := &w.tile
		if s.t == tTF32 {
			t.loadTF32(w, regs[1], regs[2])
		} else {
			t.load16(w, regs[1], regs[2], s.t)
		}
		t.loadC(w, regs[3])
		t.multiply(s.k)
		t.storeD(w, regs[0])
	}
	return nil
}

// mmaFast runs an mma with a function that takes registers unconverted. The result goes through separate
// registers if D shares some with the operands.
func (c *compiler) mmaFast(fast func(regs *lanes32, f *fragment), regs [4][]ref) {
	d := regs[0]
	for i, r := range d {
		shared := slices.Contains(regs[1], r) || slices.Contains(regs[2], r)
		if j := slices.Index(regs[3], r); shared || j >= 0 && j != i {
			d = c.scratch[:len(d)]
			break
		}
	}
	var f fragment
	for first, list := range map[int][]ref{0: regs[1], 4: regs[2], 6: regs[3], 10: d} {
		for i, r := range list {
			f[first+i] = uint64(r.index) * uint64(len(lanes32{})) * 4
		}
	}
	same := &d[0] == &regs[0][0]
	out := regs[0]
	c.in.run = func(w *warp, _ uint32) {
		fast(&w.r[0], &f)
		if same {
			return
		}
		for i, r := range out {
			w.r[r.index] = w.r[d[i].index]
		}
	}
}

// number16 is the value of a half or a bfloat16.
func number16(b uint32, t typ) float32 {
	if t == tF16 {
		return halfTable[uint16(b)]
	}
	return math.Float32frombits(b << 16)
}

func (t *tile) load16(w *warp, ra, rb []ref, ty typ) {
	for i, r := range ra {
		for l, x := range &w.r[r.index] {
			row, col := l/4+i%2*8, l%4*2+i/2*8
			t.a[row][col], t.a[row][col+1] = number16(x, ty), number16(x>>16, ty)
		}
	}
	for i, r := range rb {
		for l, x := range &w.r[r.index] {
			row, col := l%4*2+i*8, l/4
			t.b[row][col], t.b[row+1][col] = number16(x, ty), number16(x>>16, ty)
		}
	}
}

// loadTF32 loads A and B, ignoring the 13 low bits of each element.
func (t *tile) loadTF32(w *warp, ra, rb []ref) {
	for i, r := range ra {
		for l, x := range &w.r[r.index] {
			t.a[l/4+i%2*8][l%4+i/2*4] = f32(x &^ 0x1fff)
		}
	}
	for i, r := range rb {
		for l, x := range &w.r[r.index] {
			t.b[l%4+i*4][l/4] = f32(x &^ 0x1fff)
		}
	}
}

func (t *tile) loadC(w *warp, rc []ref) {
	if len(rc) == 2 {
		for i, r := range rc {
			for l, x := range &w.r[r.index] {
				c := &t.c[l/4+i*8]
				c[l%4*2], c[l%4*2+1] = halfTable[uint16(x)], halfTable[uint16(x>>16)]
			}
		}
		return
	}
	for i, r := range rc {
		for l, x := range &w.r[r.index] {
			t.c[l/4+i/2*8][l%4*2+i%2] = f32(x)
		}
	}
}

func (t *tile) storeD(w *warp, rd []ref) {
	if len(rd) == 2 {
		for i, r := range rd {
			for l := range 32 {
				c := &t.c[l/4+i*8]
				w.r[r.index][l] = toHalf(math.Float32bits(c[l%4*2])) | toHalf(math.Float32bits(c[l%4*2+1]))<<16
			}
		}
		return
	}
	for i, r := range rd {
		d := &w.r[r.index]
		for l := range d {
			d[l] = bits32(t.c[l/4+i/2*8][l%4*2+i%2])
		}
	}
}

// ldmatrix compiles ldmatrix, which loads 8x8 matrices of 16-bit elements. Lanes 8i to 8i+7 give the
// addresses of matrix i's rows; lane l gets elements 2(l%4) and 2(l%4)+1 of row l/4, or of column l/4 with
// .trans.
func (c *compiler) ldmatrix() error {
	if err := c.allow("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta"); err != nil {
		return err
	}
	if t, err := c.typ(0); err != nil || t != tB16 || !c.has("m8n8") {
		return c.errorf("only matrices .m8n8 of .b16 are modeled")
	}
	n := 1
	if c.has("x2") {
		n = 2
	} else if c.has("x4") {
		n = 4
	}
	names := vector(c.arg0())
	if len(names) != n || len(c.args) != 2 {
		return c.errorf("%d registers for %d matrices", len(names), n)
	}
	sp := generic
	if c.has("shared") || c.has("shared::cta") {
		sp = shared
	}
	at, err := c.pointer(1, sp)
	if err != nil {
		return err
	}
	var ds []ref
	for _, name := range names {
		d, err := c.write(name, tB32)
		if err != nil {
			return err
		}
		ds = append(ds, d)
	}
	trans := c.has("trans")
	rows := uint32(full)
	if n < 4 {
		rows = 1<<(8*n) - 1
	}
	everywhere := c.m.Target == "sm_75" // every lane must hold a valid address there
	c.in.control = converged
	c.in.run = func(w *warp, _ uint32) {
		w.addresses(&at)
		if everywhere && rows != full {
			w.rowAddresses(at.space)
		}
		w.collective = true
		mem, lanes := w.resolve(at.space, rows, 16, plainLoad)
		w.collective = false
		if lanes != rows || &mem[0] != &w.b.shared[0] {
			w.fail(0, "ldmatrix reads memory that is not shared")
		}
		for i, d := range ds {
			if trans {
				w.matrixColumns(&w.r[d.index], mem, 8*i)
			} else {
				w.matrixRows(&w.r[d.index], mem, 8*i)
			}
		}
	}
	return nil
}

func (c *compiler) arg0() string {
	if len(c.args) == 0 {
		return ""
	}
	return c.args[0]
}

// rowAddresses checks the addresses of lanes whose rows are not read.
func (w *warp) rowAddresses(sp space) {
	for l, a := range w.addr {
		if s, b := spaceOf(a); sp == generic && s == shared {
			a = b
		}
		if a%16 != 0 || a+16 > uint64(len(w.b.shared)) {
			w.fail(l, "the address %#x is not a row in shared memory; sm_75 needs valid ones in all lanes", a)
		}
	}
}

func (w *warp) matrixRows(d *lanes32, mem []byte, first int) {
	for r := range 8 {
		b := mem[w.off[first+r]:][:16]
		for j := range 4 {
			d[4*r+j] = binary.LittleEndian.Uint32(b[4*j:])
		}
	}
}

func (w *warp) matrixColumns(d *lanes32, mem []byte, first int) {
	for j := range 4 {
		lo, hi := mem[w.off[first+2*j]:][:16], mem[w.off[first+2*j+1]:][:16]
		for r := range 8 {
			d[4*r+j] = uint32(binary.LittleEndian.Uint16(lo[2*r:])) | uint32(binary.LittleEndian.Uint16(hi[2*r:]))<<16
		}
	}
}

// movmatrix compiles movmatrix, which transposes an 8x8 matrix of 16-bit elements across the warp.
func (c *compiler) movmatrix() error {
	if c.op != "movmatrix.sync.aligned.m8n8.trans.b16" {
		return c.errorf("only movmatrix.sync.aligned.m8n8.trans.b16 is modeled")
	}
	d, s, err := c.operands(tB32, tB32)
	if err != nil {
		return err
	}
	c.in.control = converged
	c.in.run = func(w *warp, _ uint32) {
		var m [8][8]uint32
		for l, x := range &w.r[s[0].index] {
			m[l/4][l%4*2], m[l/4][l%4*2+1] = x&0xffff, x>>16
		}
		for l := range 32 {
			w.r[d.index][l] = m[l%4*2][l/4] | m[l%4*2+1][l/4]<<16
		}
	}
	return nil
}
