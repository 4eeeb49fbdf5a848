package train

import (
	"encoding/binary"
	"math"
)

// Elements sent in 8 bits: blocks of codeBlock elements, each a scale in float32 and a code from -127 to
// 127 per element, rounded to nearest. An element is off by at most half a step, 1/254 of the largest
// magnitude in its block. The last block may be shorter; a single element is sent as it is.
const codeBlock = 256

const codedBlock = 4 + codeBlock // bytes

// leastCoded is the smallest magnitude in a block that has a scale: below, float32 has too few bits for
// one, and elements become zero.
const leastCoded = 0x1p-100

// codedBytes returns the bytes of n elements.
func codedBytes(n int64) int64 {
	if n <= 1 {
		return 4 * n
	}
	full, rest := n/codeBlock, n%codeBlock
	if rest > 0 {
		rest += 4
	}
	return full*codedBlock + rest
}

// encode rounds float32 elements in place: the result is the first part of b.
func encode(b []byte) []byte {
	x := floats(b)
	if len(x) <= 1 {
		return b
	}
	end := 0
	var codes [codeBlock]byte
	for len(x) > 0 {
		block := x[:min(codeBlock, len(x))]
		scale := scaleOf(block)
		for i, v := range block {
			if scale > 0 {
				codes[i] = byte(int8(math.RoundToEven(float64(v / scale))))
			} else {
				codes[i] = 0
			}
		}
		x = x[len(block):]
		binary.LittleEndian.PutUint32(b[end:], math.Float32bits(scale)) // at most where the block was
		end += 4
		end += copy(b[end:], codes[:len(block)])
	}
	return b[:end]
}

// scaleOf returns the step of a block: 0 if all are zero, NaN if one is not finite.
func scaleOf(block []float32) float32 {
	most := uint32(0) // as integers, magnitudes have their order, with infinity and NaN last
	for _, v := range block {
		most = max(most, math.Float32bits(v)&math.MaxInt32)
	}
	switch largest := math.Float32frombits(most); {
	case !finite(float64(largest)):
		return float32(math.NaN())
	case largest < leastCoded:
		return 0
	default:
		return largest / 127
	}
}

// decode is the reverse of encode: its result becomes all of b.
func decode(b []byte) {
	x := floats(b)
	if len(x) <= 1 {
		return
	}
	var codes [codeBlock]byte
	for i := (len(x) - 1) / codeBlock; i >= 0; i-- {
		to := x[i*codeBlock : min((i+1)*codeBlock, len(x))]
		from := b[i*codedBlock:]
		scale := math.Float32frombits(binary.LittleEndian.Uint32(from))
		copy(codes[:len(to)], from[4:]) // begins before to
		for k := range to {
			to[k] = float32(int8(codes[k])) * scale
		}
	}
}

// addCoded adds encoded elements to a sum, or makes them the sum.
func addCoded(to []float32, sent []byte, first bool) {
	if len(to) == 1 {
		if x := floats(sent)[0]; first {
			to[0] = x
		} else {
			to[0] += x
		}
		return
	}
	for len(to) > 0 {
		block := to[:min(codeBlock, len(to))]
		scale := math.Float32frombits(binary.LittleEndian.Uint32(sent))
		for i := range block {
			x := float32(float32(int8(sent[4+i])) * scale) // the conversion forbids fusing the sum
			if first {
				block[i] = x
			} else {
				block[i] += x
			}
		}
		to, sent = to[len(block):], sent[4+len(block):]
	}
}
