package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// kernel256 writes the float32 kernel for tiles of mr <= 6 rows by 16 columns, with a
// loop of its own for 8 or fewer, which reads no more columns of B than there are.
func kernel256(mr int) {
	name := fmt.Sprintf("kernF32x%dAVX2", mr)
	TEXT(name, NOSPLIT, kernelSignature)
	Pragma("noescape")
	Doc(fmt.Sprintf("%s multiplies float32 words in tiles of %d rows by 16 columns; see kernelFunc.", name, mr))
	tiles, a, csa, bs := gp("tiles"), gp("a"), gp("csa"), gp("bs")
	c, ldc, ahead := gp("c"), gp("ldc"), gp("ahead")
	ar := newRows(mr, a, gp("rsa"))

	var acc [6][2]reg.VecVirtual
	for i := range mr {
		acc[i] = [2]reg.VecVirtual{YMM(), YMM()}
	}
	Label("tile")
	TESTQ(tiles, tiles)
	JZ(LabelRef("done"))
	pc := GP64()
	MOVQ(c, pc)
	for i := range mr {
		VXORPS(acc[i][0], acc[i][0], acc[i][0])
		VXORPS(acc[i][1], acc[i][1], acc[i][1])
		PREFETCHT0(Mem{Base: pc})
		if i < mr-1 {
			ADDQ(ldc, pc)
		}
	}
	b, k := gp("b"), gp("k")
	// masks are those of the columns of the first vectors of a row.
	masks := func(vectors int) []reg.VecVirtual {
		n, table := gp("n"), GP64()
		NEGQ(n)
		LEAQ(prefixMask(), table)
		m := make([]reg.VecVirtual, vectors)
		for j := range m {
			m[j] = YMM()
			VMOVDQU(Mem{Base: table, Index: n, Scale: 4, Disp: 64 + 32*j}, m[j])
		}
		return m
	}
	// loop multiplies k words of A with as many rows of B, which load reads, and goes on at
	// the label write.
	loop := func(label string, vectors int, load func(j int, v reg.VecVirtual)) {
		step := func() {
			row := []reg.VecVirtual{YMM(), YMM()}[:vectors]
			for j, v := range row {
				load(j, v)
			}
			x := YMM()
			for i := range mr {
				VBROADCASTSS(ar.at(i), x)
				for j, v := range row {
					VFMADD231PS(v, x, acc[i][j])
				}
			}
			ADDQ(bs, b)
			for _, r := range ar.base {
				ADDQ(csa, r)
			}
		}
		SUBQ(Imm(4), k)
		JLT(LabelRef("rest" + label))
		Label("loop" + label)
		for range 4 {
			step()
		}
		PREFETCHT1(Mem{Base: ahead})
		ADDQ(paramMem("step"), ahead)
		SUBQ(Imm(4), k)
		JGE(LabelRef("loop" + label))
		Label("rest" + label)
		ADDQ(Imm(4), k)
		JZ(LabelRef("write" + label))
		Label("one" + label)
		step()
		DECQ(k)
		JNZ(LabelRef("one" + label))
		Label("write" + label)
	}
	// write adds and stores the parts of the rows that the masks leave.
	write := func(label string, mask []reg.VecVirtual) {
		writeTile(mr, len(mask), 32, c, ldc, gp("acc"), label, func(i, j int, m Mem, add bool) {
			if add {
				old := YMM()
				VMASKMOVPS(m, mask[j], old)
				VADDPS(old, acc[i][j], acc[i][j])
			} else {
				VMASKMOVPS(acc[i][j], mask[j], m)
			}
		}, func(j int, m Mem) {
			v := YMM()
			VMASKMOVPS(m, mask[j], v)
			for i := range mr {
				VADDPS(v, acc[i][j], acc[i][j])
			}
		})
	}

	CMPQ(paramMem("n"), Imm(8))
	JLE(LabelRef("narrow"))
	loop("", 2, func(j int, v reg.VecVirtual) { VMOVUPS(Mem{Base: b, Disp: 32 * j}, v) })
	CMPQ(paramMem("n"), Imm(16))
	JLT(LabelRef("edge"))
	writeTile(mr, 2, 32, c, ldc, gp("acc"), "", func(i, j int, m Mem, add bool) {
		if add {
			VADDPS(m, acc[i][j], acc[i][j])
		} else {
			VMOVUPS(acc[i][j], m)
		}
	}, func(j int, m Mem) {
		v := YMM()
		VMOVUPS(m, v)
		for i := range mr {
			VADDPS(v, acc[i][j], acc[i][j])
		}
	})
	JMP(LabelRef("next"))
	Label("edge")
	write("edge", masks(2))
	JMP(LabelRef("next"))

	Label("narrow")
	mask := masks(1)
	loop("narrow", 1, func(_ int, v reg.VecVirtual) { VMASKMOVPS(Mem{Base: b}, mask[0], v) })
	write("narrow", mask)
	Label("next")
	ADDQ(paramMem("ta"), a)
	for range mr {
		ADDQ(ldc, c)
	}
	ar.reset(a)
	DECQ(tiles)
	JMP(LabelRef("tile"))
	Label("done")
	VZEROUPPER()
	RET()
}

var prefixTable *Mem

// prefixMask is 16 set words, then 16 clear ones: from word 16-n on it is the
// mask of the first n of 16 columns.
func prefixMask() Mem {
	if prefixTable == nil {
		m := GLOBL("prefix", RODATA|NOPTR)
		for i := range 32 {
			word := uint32(0)
			if i < 16 {
				word = 1<<32 - 1
			}
			DATA(4*i, U32(word))
		}
		prefixTable = &m
	}
	return *prefixTable
}
