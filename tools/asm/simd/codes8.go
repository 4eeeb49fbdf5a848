package main

import "github.com/mmcloughlin/avo/reg"

// Where the tables of simd.Codes8 begin, and what their buckets are.
const (
	codesValues, codesAbove, codesFirst = 0, 1024, 2048
	codesLeast, codesMost               = 0x3400, 0x3f80
	codesBuckets                        = codesMost - codesLeast + 1
)

var (
	codeDecode8 = withScalarAndTable("dst", "codes:u8", "scale", func(a *asm, table reg.GPVirtual, scale vec, in []vec) vec {
		return a.mul(a.gather(table, codesValues, in[0]), scale)
	})
	codeEncode8 = withScalarAndTable("codes:u8", "x", "inv", func(a *asm, table reg.GPVirtual, inv vec, in []vec) vec {
		x := a.mul(in[0], inv)
		return a.notZero(x, a.codeOf(table, x))
	})
	// Random bits are read as bfloat16: they come in the high half.
	codeEncodeStochastic8 = withScalarAndTable("codes:u8", "x random:bf16", "inv", func(a *asm, table reg.GPVirtual, inv vec, in []vec) vec {
		x := a.mul(in[0], inv)
		code := a.codeOf(table, x)
		part := a.toFloat(a.shr(in[1], 16))
		part = a.add(a.mul(part, a.kreg(0x1p-16)), a.kreg(0x1p-17))
		below := a.gather(table, codesValues, code)
		width := a.sub(a.gather(table, codesAbove, code), below)
		return a.notZero(x, a.next(ge, code, x, a.add(a.mul(width, part), below)))
	})
)

// codeOf returns the codes of x by the tables.
func (a *asm) codeOf(table reg.GPVirtual, x vec) vec {
	magnitude := a.shr(a.shl(x, 1), 17)
	bucket := a.mini(a.maxi(magnitude, a.kregbits(codesLeast)), a.kregbits(codesMost))
	negative := a.and(a.sar(x, 31), a.kbits(codesBuckets))
	at := a.addi(a.subi(bucket, a.kregbits(codesLeast)), negative)
	code := a.gather(table, codesFirst, at)
	return a.next(gt, code, x, a.gather(table, codesAbove, code))
}

// next returns the code above the given one where x compares to the limit.
func (a *asm) next(predicate uint8, code, x, limit vec) vec {
	return a.blend(a.cmp(predicate, x, limit), a.addi(code, a.kregbits(1)), code)
}

// notZero returns the code 1 instead of 0 where x is above 0.
func (a *asm) notZero(x, code vec) vec {
	return a.blend(a.cmpZero(gt, x), a.maxi(code, a.kregbits(1)), code)
}

// codeIntegers8 gives signed bytes as numbers, times a scale and then times a unit.
var codeIntegers8 = each(2, "dst", "codes:u8", func(a *asm, in []vec) []vec {
	x := a.toFloat(a.sar(a.shl(in[0], 24), 24))
	return []vec{a.mul(a.mul(x, a.scalars["scale"]), a.scalars["unit"])}
})

// withScalarAndTable emits the loop of a kernel that has the tables t and a scalar.
func withScalarAndTable(out, in, scalar string, body func(a *asm, table reg.GPVirtual, scalar vec, in []vec) vec) func(*asm) {
	return func(a *asm) {
		table := a.load64("t")
		each(2, out, in, func(a *asm, regs []vec) []vec { return []vec{body(a, table, a.scalars[scalar], regs)} })(a)
	}
}
