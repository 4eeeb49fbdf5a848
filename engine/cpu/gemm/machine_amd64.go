package gemm

import "github.com/snug-ml/snug/internal/isa"

// machines are the kernels by the level that has them.
var machines = map[isa.Level]*machine{
	isa.AVX2:       &machineAVX2,
	isa.AVX512:     &machineAVX512,
	isa.AVX512BF16: &machineAVX512BF16,
}

var machineAVX512 = machine{
	word: F32, mr: 12, nr: 32, exact: 32,
	kern: []kernelFunc{nil,
		kernF32x1AVX512, kernF32x2AVX512, kernF32x3AVX512, kernF32x4AVX512, kernF32x5AVX512, kernF32x6AVX512,
		kernF32x7AVX512, kernF32x8AVX512, kernF32x9AVX512, kernF32x10AVX512, kernF32x11AVX512, kernF32x12AVX512},
	tilesA:  [3]tilesFunc{tilesF32AVX512, tilesBF16AVX512, tilesF16AVX512},
	panelA:  [3]panelFunc{panelF3216AVX512, panelBF1616AVX512, panelF1616AVX512},
	own:     packer{[3]panelFunc{panelF3232AVX512, panelBF1632AVX512, panelF1632AVX512}, transposeAVX512},
	shared:  packer{[3]panelFunc{panelF3232StreamAVX512, panelBF1632StreamAVX512, panelF1632StreamAVX512}, transposeStreamAVX512},
	lanes:   16,
	toWord:  [3]rowsFunc{copyRows(4), rowsBF16ToF32AVX512, rowsF16ToF32AVX512},
	toF32:   [3]rowsFunc{copyRows(4), rowsBF16ToF32AVX512, rowsF16ToF32AVX512},
	fromF32: [3]rowsFunc{copyRows(4), rowsF32ToBF16AVX512, rowsF32ToF16AVX512},
}

// machineAVX512BF16 cannot convert float16 to words: a matmul with a float16 operand is
// computed in float32.
var machineAVX512BF16 = machine{
	word: BF16, mr: 12, nr: 32, exact: 32,
	kern: []kernelFunc{nil,
		kernBF16x1AVX512, kernBF16x2AVX512, kernBF16x3AVX512, kernBF16x4AVX512, kernBF16x5AVX512, kernBF16x6AVX512,
		kernBF16x7AVX512, kernBF16x8AVX512, kernBF16x9AVX512, kernBF16x10AVX512, kernBF16x11AVX512, kernBF16x12AVX512},
	tilesA:  [3]tilesFunc{tilePairsF32AVX512, tilePairsBF16AVX512, nil},
	panelA:  [3]panelFunc{pairsF3216AVX512, pairsBF1616AVX512, nil},
	own:     packer{[3]panelFunc{pairsF3232AVX512, pairsBF1632AVX512, nil}, transposeAVX512},
	shared:  packer{[3]panelFunc{pairsF3232StreamAVX512, pairsBF1632StreamAVX512, nil}, transposeStreamAVX512},
	lanes:   16,
	toWord:  [3]rowsFunc{rowsF32ToBF16AVX512, copyRows(2), nil},
	toF32:   machineAVX512.toF32,
	fromF32: machineAVX512.fromF32,
}

// machineAVX2 packs whole vectors in assembly and the rest in Go.
var machineAVX2 = machine{
	word: F32, mr: 6, nr: 16, exact: 8,
	kern:   []kernelFunc{nil, kernF32x1AVX2, kernF32x2AVX2, kernF32x3AVX2, kernF32x4AVX2, kernF32x5AVX2, kernF32x6AVX2},
	tilesA: [3]tilesFunc{tilesF32AVX2, tilesBF16AVX2, tilesF16AVX2},
	panelA: [3]panelFunc{panelGo(F32, 6), panelGo(BF16, 6), panelGo(F16, 6)},
	own: packer{[3]panelFunc{
		wholePanels(panelF3216AVX2, panelGo(F32, 16)),
		wholePanels(panelBF1616AVX2, panelGo(BF16, 16)),
		wholePanels(panelF1616AVX2, panelGo(F16, 16)),
	}, wholeTranspose[uint32](transposeAVX2, 8)},
	// A transposition writes half lines, which is slow with streaming stores.
	shared: packer{[3]panelFunc{
		wholePanels(panelF3216StreamAVX2, panelGo(F32, 16)),
		wholePanels(panelBF1616StreamAVX2, panelGo(BF16, 16)),
		wholePanels(panelF1616StreamAVX2, panelGo(F16, 16)),
	}, wholeTranspose[uint32](transposeAVX2, 8)},
	lanes:   8,
	toWord:  [3]rowsFunc{copyRows(4), wholeRows(BF16, F32, rowsBF16ToF32AVX2), wholeRows(F16, F32, rowsF16ToF32AVX2)},
	toF32:   [3]rowsFunc{copyRows(4), wholeRows(BF16, F32, rowsBF16ToF32AVX2), wholeRows(F16, F32, rowsF16ToF32AVX2)},
	fromF32: [3]rowsFunc{copyRows(4), wholeRows(F32, BF16, rowsF32ToBF16AVX2), wholeRows(F32, F16, rowsF32ToF16AVX2)},
}
