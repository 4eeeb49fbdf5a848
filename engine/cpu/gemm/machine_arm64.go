package gemm

// machineNEON packs whole vectors in assembly and what is left over in Go.
var machineNEON = machine{
	word: F32, mr: 6, nr: 16,
	kern:    []kernelFunc{nil, kernF32x1NEON, kernF32x2NEON, kernF32x3NEON, kernF32x4NEON, kernF32x5NEON, kernF32x6NEON},
	tilesA:  [3]tilesFunc{tilesF32NEON, tilesBF16NEON, tilesF16NEON},
	panelA:  [3]panelFunc{panelGo(F32, 6), panelGo(BF16, 6), panelGo(F16, 6)},
	own:     packNEON,
	shared:  packNEON,
	lanes:   8,
	toWord:  [3]rowsFunc{copyRows(4), wholeRows(BF16, F32, rowsBF16ToF32NEON), wholeRows(F16, F32, rowsF16ToF32NEON)},
	toF32:   [3]rowsFunc{copyRows(4), wholeRows(BF16, F32, rowsBF16ToF32NEON), wholeRows(F16, F32, rowsF16ToF32NEON)},
	fromF32: [3]rowsFunc{copyRows(4), wholeRows(F32, BF16, rowsF32ToBF16NEON), wholeRows(F32, F16, rowsF32ToF16NEON)},
}

var packNEON = packer{[3]panelFunc{
	wholePanels(panelF3216NEON, panelGo(F32, 16)),
	wholePanels(panelBF1616NEON, panelGo(BF16, 16)),
	wholePanels(panelF1616NEON, panelGo(F16, 16)),
}, wholeTranspose(transposeNEON, 4)}

// detect has nothing to ask: every processor of arm64 has NEON.
func detect() []ISA { return []ISA{Portable, NEON} }

// machineFor returns the kernels of a resolved level for words of the given
// type. Levels without bfloat16 products multiply in float32.
func machineFor(isa ISA, _ DType) *machine {
	if isa == NEON {
		return &machineNEON
	}
	return &machinePortable
}
