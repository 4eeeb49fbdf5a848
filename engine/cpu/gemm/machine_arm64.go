package gemm

import (
	"unsafe"

	"github.com/snug-ml/snug/internal/isa"
)

// machines are the kernels by the level that has them.
var machines = map[isa.Level]*machine{
	isa.NEON:       &machineNEON,
	isa.NEONBF16:   &machineNEONBF16,
	isa.NEONBFMMLA: &machineNEONBFMMLA,
}

// machineNEON packs whole vectors in assembly and the rest in Go.
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
}, wholeTranspose[uint32](transposeNEON, 4)}

// roundBF16 does what machineNEON's does, in one instruction for four elements.
var roundBF16 = wholeRows(F32, BF16, rowsF32ToBF16BFCVTN)

// machineNEONBF16, like machineAVX512BF16, does not convert float16 to words.
var machineNEONBF16 = machine{
	word: BF16, mr: 6, nr: 16, unit: 4,
	kern:    []kernelFunc{nil, kernBF16x1NEON, kernBF16x2NEON, kernBF16x3NEON, kernBF16x4NEON, kernBF16x5NEON, kernBF16x6NEON},
	tilesA:  [3]tilesFunc{tilePairsF32NEON, tilePairsBF16NEON, nil},
	panelA:  [3]panelFunc{groupsGo(F32, 6, 2), groupsGo(BF16, 6, 2), nil},
	own:     packNEONBF16,
	shared:  packNEONBF16,
	lanes:   8,
	toWord:  [3]rowsFunc{roundBF16, copyRows(2), nil},
	toF32:   machineNEON.toF32,
	fromF32: [3]rowsFunc{copyRows(4), roundBF16, machineNEON.fromF32[F16]},
}

var packNEONBF16 = packer{[3]panelFunc{
	wholePanels(pairsF3216NEON, groupsGo(F32, 16, 2)),
	wholePanels(pairsBF1616NEON, groupsGo(BF16, 16, 2)),
	nil,
}, wholeTranspose[uint32](transposeNEON, 4)}

// machineNEONBFMMLA multiplies with BFMMLA if K is a whole number of quads, otherwise
// with BFDOT. By the architecture manual BFMMLA accumulates two dot products of pairs,
// one after the other and rounded like those of BFDOT.
var machineNEONBFMMLA = func() machine {
	m := machineNEONBF16
	m.byQuads = &machineQuadsNEON
	return m
}()

// machineQuadsNEON multiplies quads. Rows of A that are packed as tiles need no
// instruction to join two of them in a register.
var machineQuadsNEON = machine{
	word: BF16, quads: true, mr: 6, nr: 16,
	kern:    []kernelFunc{nil, kernQuadsx1NEON, kernQuadsx2NEON, kernQuadsx3NEON, kernQuadsx4NEON, kernQuadsx5NEON, kernQuadsx6NEON},
	inRows:  []kernelFunc{nil, kernQuadRowsx1NEON, kernQuadRowsx2NEON, kernQuadRowsx3NEON, kernQuadRowsx4NEON, kernQuadRowsx5NEON, kernQuadRowsx6NEON},
	tilesA:  [3]tilesFunc{wholeQuadTiles(F32), wholeQuadTiles(BF16), nil},
	panelA:  [3]panelFunc{partQuads(F32), partQuads(BF16), nil},
	rowTile: [3]rowTileFunc{rowQuadsF32NEON, rowQuadsBF16NEON, nil},
	own:     packQuadsNEON,
	shared:  packQuadsNEON,
	lanes:   8,
	toWord:  machineNEONBF16.toWord,
	toF32:   machineNEON.toF32,
	fromF32: [3]rowsFunc{copyRows(4), roundBF16, machineNEON.fromF32[F16]},
}

var packQuadsNEON = packer{[3]panelFunc{
	wholePanels(wholeQuads(quadsF3216NEON, F32), groupsGo(F32, 16, 4)),
	wholePanels(wholeQuads(quadsBF1616NEON, BF16), groupsGo(BF16, 16, 4)),
	nil,
}, wholeTranspose[uint64](transposeQuadsNEON, 2)}

// partQuads returns the panelFunc of a tile of fewer than 6 rows, zero beyond cols: it
// packs some of k at a time, with room for what tileQuads reads.
func partQuads(from DType) panelFunc {
	const some = 16
	size := from.Size()
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		var part [some * 6 * 4]byte
		for x := 0; x < k; x += some {
			n := min(some, k-x)
			clear(part[n*6*size:]) // what the last quad lacks
			for i := range n {
				copy(part[i*6*size:], unsafe.Slice(add(src, (x+i)*stride), cols*size))
			}
			if from == F32 {
				tileQuadsF32NEON(roundUp(n, 4), 1, &part[0], 6*size, add(dst, x/4*dstStride), 0)
			} else {
				tileQuadsBF16NEON(roundUp(n, 4), 1, &part[0], 6*size, add(dst, x/4*dstStride), 0)
			}
		}
	}
}

// wholeQuads uses whole for the multiple of 4 rows of 16 columns and Go for the rest.
func wholeQuads(whole panelFunc, from DType) panelFunc {
	rest := groupsGo(from, 16, 4)
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		n := k &^ 3
		if n > 0 {
			whole(n, cols, src, stride, dst, dstStride)
		}
		if n < k {
			rest(k-n, cols, add(src, n*stride), stride, add(dst, n/4*dstStride), dstStride)
		}
	}
}

// wholeQuadTiles does the same for tiles of 6 rows.
func wholeQuadTiles(from DType) tilesFunc {
	whole, rest := tileQuadsF32NEON, groupsGo(from, 6, 4)
	if from == BF16 {
		whole = tileQuadsBF16NEON
	}
	return func(k, tiles int, src *byte, stride int, dst *byte, tileStride int) {
		n := k &^ 3
		if n > 0 {
			whole(n, tiles, src, stride, dst, tileStride)
		}
		for t := range tiles {
			if n < k {
				rest(k-n, 6, add(src, n*stride+6*t*from.Size()), stride, add(dst, t*tileStride+n/4*48), 48)
			}
		}
	}
}

// groupsGo returns the panelFunc of rows of width pairs or quads of bfloat16, zero
// beyond cols and k.
func groupsGo(from DType, width, elems int) panelFunc {
	size := from.Size()
	return func(k, cols int, src *byte, stride int, dst *byte, dstStride int) {
		for x := 0; x < k; x += elems {
			for j := range width {
				for e := range elems {
					v := float32(0)
					if j < cols && x+e < k {
						v = load(src, from, (x+e)*stride+j*size)
					}
					store(dst, BF16, x/elems*dstStride+2*(elems*j+e), v)
				}
			}
		}
	}
}
