package main

// toBF16 rounds to bfloat16, to nearest even, in the low half of each lane.
func (a *asm) toBF16(x vec) vec {
	upper := a.shr(x, 16)
	odd := a.and(upper, a.kbits(1))
	rounded := a.shr(a.addi(a.addi(odd, a.kbits(0x7fff)), x), 16)
	quiet := a.or(upper, a.kbits(1<<6))
	return a.blend(a.cmp(unord, x, x), quiet, rounded)
}

// as rounds what is to be stored in the format.
func (a *asm) as(format string, x vec) vec {
	if format == "bf16" {
		return a.toBF16(x)
	}
	return x
}

// exactly is as for what is a number of the format already.
func (a *asm) exactly(format string, x vec) vec {
	if format == "bf16" {
		return a.shr(x, 16)
	}
	return x
}

func (a *asm) roundF16(x vec) vec {
	half, d := a.YMM(), a.vec()
	if a.wide {
		a.VCVTPS2PH(nearestEven, x, half)
		a.VCVTPH2PS(half, d)
	} else {
		a.VCVTPS2PH(nearestEven, x, half.AsX())
		a.VCVTPH2PS(half.AsX(), d)
	}
	return d
}

func identity(_ *asm, in []vec) vec { return in[0] }

var (
	codeBF16ToF32 = each(light, "dst", "src:bf16", one(identity))
	codeF32ToBF16 = each(2, "dst:bf16", "src", one(func(a *asm, in []vec) vec { return a.toBF16(in[0]) }))
	codeF16ToF32  = each(light, "dst", "src:f16", one(identity))
	codeF32ToF16  = each(light, "dst:f16", "src", one(identity))
	codeRoundBF16 = each(2, "dst", "src", one(func(a *asm, in []vec) vec { return a.shl(a.toBF16(in[0]), 16) }))
	codeRoundF16  = each(light, "dst", "src", one(func(a *asm, in []vec) vec { return a.roundF16(in[0]) }))
	codeI32ToF32  = each(light, "dst", "src", one(func(a *asm, in []vec) vec { return a.toFloat(in[0]) }))
	codeU8ToF32   = each(light, "dst", "src:u8", one(func(a *asm, in []vec) vec {
		return a.add(a.mul(a.toFloat(in[0]), a.scalars["scale"]), a.scalars["shift"])
	}))
)
