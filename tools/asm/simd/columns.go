package main

// The passes of a norm over columns, on memory of the given format.

func codeAddColumns(format string) func(*asm) {
	return each(light, "acc", "acc x:"+format, one(func(a *asm, in []vec) vec { return a.add(in[0], in[1]) }))
}

func codeColumnSqDev(format string) func(*asm) {
	return each(light, "acc", "acc x:"+format+" mean", one(func(a *asm, in []vec) vec {
		d := a.sub(in[1], in[2])
		return a.add(in[0], a.mul(d, d))
	}))
}

func codeColumnNorm(format string) func(*asm) {
	return each(2, "y:"+format, "x:"+format+" mean scale shift", one(func(a *asm, in []vec) vec {
		return a.as(format, a.add(a.mul(a.sub(in[0], in[1]), in[2]), in[3]))
	}))
}

func codeColumnGradSums(format string) func(*asm) {
	return each(2, "sum dot", "sum dot dy:"+format+" x:"+format+" mean", func(a *asm, in []vec) []vec {
		dy := in[2]
		return []vec{a.add(in[0], dy), a.add(in[1], a.mul(a.sub(in[3], in[4]), dy))}
	})
}

func codeColumnNormGrad(format string) func(*asm) {
	return each(2, "dx:"+format, "dy:"+format+" x:"+format+" mean a b c", one(func(a *asm, in []vec) vec {
		along := a.mul(a.sub(in[1], in[2]), in[4])
		return a.as(format, a.add(a.add(a.mul(in[0], in[3]), along), in[5]))
	}))
}
