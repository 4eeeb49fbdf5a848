package main

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
		return a.upper(x)
	}
	return x
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
		return a.upper(a.blend(nan, a.or(x, a.kbits(1<<22)), sum))
	}))
	codeF16ToF32  = each(light, "dst", "src:f16", one(identity))
	codeF32ToF16  = each(light, "dst:f16", "src", one(identity))
	codeRoundBF16 = each(2, "dst", "src", one(func(a *asm, in []vec) vec { return a.and(a.roundBF16(in[0]), a.kbits(0xffff0000)) }))
	codeRoundF16  = each(light, "dst", "src", one(func(a *asm, in []vec) vec { return a.roundF16(in[0]) }))
	codeI32ToF32  = each(light, "dst", "src", one(func(a *asm, in []vec) vec { return a.toFloat(in[0]) }))
)
