package gemm

import "github.com/snug-ml/snug/internal/armcpu"

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

// machineNEONBF16, like machineAVX512BF16, does not convert float16 to words.
var machineNEONBF16 = machine{
	word: BF16, mr: 6, nr: 16,
	kern:    []kernelFunc{nil, kernBF16x1NEON, kernBF16x2NEON, kernBF16x3NEON, kernBF16x4NEON, kernBF16x5NEON, kernBF16x6NEON},
	tilesA:  [3]tilesFunc{tilePairsF32NEON, tilePairsBF16NEON, nil},
	panelA:  [3]panelFunc{pairsGo(F32, 6), pairsGo(BF16, 6), nil},
	own:     packNEONBF16,
	shared:  packNEONBF16,
	lanes:   8,
	toWord:  [3]rowsFunc{wholeRows(F32, BF16, rowsF32ToBF16NEON), copyRows(2), nil},
	toF32:   machineNEON.toF32,
	fromF32: machineNEON.fromF32,
}

var packNEONBF16 = packer{[3]panelFunc{
	wholePanels(pairsF3216NEON, pairsGo(F32, 16)),
	wholePanels(pairsBF1616NEON, pairsGo(BF16, 16)),
	nil,
}, wholeTranspose(transposeNEON, 4)}

// pairsGo returns the panelFunc of rows of width pairs of bfloat16, zero beyond
// cols and k.
func pairsGo(from DType, width int) panelFunc {
	size := from.Size()
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		for x := 0; x < k; x += 2 {
			for j := range width {
				for half := range 2 {
					v := float32(0)
					if j < cols && x+half < k {
						v = load(src, from, (x+half)*stride+j*size)
					}
					store(dst, BF16, x/2*dstStride+4*j+2*half, v)
				}
			}
		}
	}
}

// detect returns the levels: every processor of arm64 has NEON.
func detect() []ISA {
	if armcpu.BF16() {
		return []ISA{Portable, NEON, NEONBF16}
	}
	return []ISA{Portable, NEON}
}

// machineFor returns the kernels of a resolved level for words of the given
// type. Levels without bfloat16 products multiply in float32.
func machineFor(isa ISA, word DType) *machine {
	switch {
	case isa == NEONBF16 && word == BF16:
		return &machineNEONBF16
	case isa >= NEON:
		return &machineNEON
	}
	return &machinePortable
}
