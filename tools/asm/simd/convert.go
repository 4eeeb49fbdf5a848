package main

// toBF16 rounds to bfloat16, to nearest even, in the low half of each lane.
func (a *asm) toBF16(x vec) vec { return a.shr(a.roundBF16(x), 16) }

// roundBF16 is toBF16 in the high half of each lane; the low half is anything.
// It adds half of the last kept place, less one if that place is even already.
func (a *asm) roundBF16(x vec) vec {
	const place, quiet = 1 << 16, 1 << 22
	nan := a.cmp(unord, x, x)
	if !a.wide {
		odd := a.and(a.shr(x, 16), a.kbits(1))
		return a.blend(nan, a.or(x, a.kbits(quiet)), a.addi(a.addi(odd, a.kbits(place/2-1)), x))
	}
	rounded, odd := a.addi(x, a.kbits(place/2-1)), a.K()
	a.VPTESTMD(a.kbits(place), x, odd)
	a.VPADDD(a.kbits(1), rounded, odd, rounded)
	a.VPORD(a.kbits(quiet), x, nan, rounded)
	return rounded
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
	} else { // in NEON code, of four
		a.VCVTPS2PH(nearestEven, x, half.AsX())
		a.VCVTPH2PS(half.AsX(), d)
	}
	return d
}

func identity(_ *asm, in []vec) vec { return in[0] }

var (
	codeBF16ToF32 = each(light, "dst", "src:bf16", one(identity))
	codeF32ToBF16 = each(2, "dst:bf16", "src", one(func(a *asm, in []vec) vec { return a.toBF16(in[0]) }))
	// Random bits are read as bfloat16: they come in the high half.
	codeStochasticBF16 = each(2, "dst:bf16", "src random:bf16", one(func(a *asm, in []vec) vec {
		x, random := in[0], in[1]
		nan := a.cmp(unord, x, x)
		sum := a.addi(x, a.shr(random, 16))
		return a.shr(a.blend(nan, a.or(x, a.kbits(1<<22)), sum), 16)
	}))
	codeF16ToF32  = each(light, "dst", "src:f16", one(identity))
	codeF32ToF16  = each(light, "dst:f16", "src", one(identity))
	codeRoundBF16 = each(2, "dst", "src", one(func(a *asm, in []vec) vec { return a.and(a.roundBF16(in[0]), a.kbits(0xffff0000)) }))
	codeRoundF16  = each(light, "dst", "src", one(func(a *asm, in []vec) vec { return a.roundF16(in[0]) }))
	codeI32ToF32  = each(light, "dst", "src", one(func(a *asm, in []vec) vec { return a.toFloat(in[0]) }))
)
