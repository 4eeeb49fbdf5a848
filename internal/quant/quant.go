// Package quant implements the formats of frozen matrices in 4 and 8 bits: codes, and the
// scales that they are multiplied by.
//
// NF4 is the format of QLoRA (Dettmers et al. 2023, arXiv:2305.14314) with double
// quantization, as bitsandbytes defines it: blocks of 64 elements in the order in which
// they are stored, each divided by its largest magnitude and replaced by the nearest of
// 16 numbers. The largest magnitudes, less their mean, are in turn numbers of the dynamic
// data type of 8 bits ([codebook.Signed]) in blocks of 256.
//
// Int8 is the format of the weights of LLM.int8() (Dettmers et al. 2022,
// arXiv:2208.07339), without its decomposition of outliers: each row has integers from
// -127 to 127 and its largest magnitude.
package quant

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/snug-ml/snug/internal/codebook"
	"github.com/snug-ml/snug/internal/simd"
)

// Format is NF4 or Int8.
type Format uint8

// The formats.
const (
	NF4 Format = iota
	Int8
)

// The elements that share a scale in NF4, and the scales in a block of scales.
const (
	Block  = 64
	Nested = 256
)

// nf4 are the numbers of NF4 in ascending order: quantiles of the normal distribution,
// in [-1, 1], 0 among them (appendix E of the paper).
var nf4 = [16]float32{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
	-0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}

// Numbers returns the numbers of NF4 by their codes.
func Numbers() [16]float32 { return nf4 }

// zero is the code of 0 in nf4.
const zero = 7

var (
	// pairs are the two numbers that a byte of codes stands for; the first has the upper
	// four bits.
	pairs [256][2]float32
	// middles[i] is the largest number whose code in NF4 is i.
	middles [15]float32
)

func init() {
	for i := range pairs {
		pairs[i] = [2]float32{nf4[i>>4], nf4[i&15]}
	}
	for i := range middles {
		middles[i] = (nf4[i] + nf4[i+1]) / 2
	}
}

// perUnit is 1/127 as in bitsandbytes.
const perUnit = float32(7.874015718698502e-3)

// Matrix says how a matrix with these numbers of rows and columns is stored: first the
// codes, in whole words of 4 bytes, then the data of their scales.
//
//	NF4:  codes, two a byte | scale of each nested block, F32 | mean, F32 | a byte a block
//	Int8: codes             | largest magnitude of each row, F32
type Matrix struct {
	Format     Format
	Rows, Cols int
}

// Elems is the number of elements.
func (m Matrix) Elems() int { return m.Rows * m.Cols }

func (m Matrix) blocks() int { return ceil(m.Elems(), Block) }

// Codes returns the size of the codes in bytes, which is also where the scales begin.
func (m Matrix) Codes() int {
	n := m.Elems()
	if m.Format == NF4 {
		n = ceil(n, 2)
	}
	return 4 * ceil(n, 4)
}

// Bytes is the size of the matrix.
func (m Matrix) Bytes() int {
	if m.Format == Int8 {
		return m.Codes() + 4*m.Rows
	}
	return m.Codes() + 4*ceil(m.blocks(), Nested) + 4 + m.blocks()
}

// Parts returns where, in NF4, the scales of blocks of scales, their mean and their codes
// begin.
func (m Matrix) Parts() (nested, mean, codes int) {
	nested = m.Codes()
	mean = nested + 4*ceil(m.blocks(), Nested)
	return nested, mean, mean + 4
}

// Encode stores the elements x in dst, which must have the size of m.
func (m Matrix) Encode(dst []byte, x []float32) {
	clear(dst)
	if m.Format == Int8 {
		for i := range m.Rows {
			m.EncodeRow(dst, i, x[i*m.Cols:(i+1)*m.Cols])
		}
		return
	}
	if len(x)%2 != 0 {
		dst[len(x)/2] = zero
	}
	tops, sum := make([]float32, m.blocks()), 0.0
	for b := range tops {
		block := x[b*Block : min((b+1)*Block, len(x))]
		tops[b] = simd.MaxMagnitude(block)
		sum += float64(tops[b])
		inv := float32(0)
		if tops[b] > 0 {
			inv = 1 / tops[b]
		}
		for i, v := range block {
			code, _ := slices.BinarySearch(middles[:], v*inv)
			dst[(b*Block+i)/2] |= byte(code << (4 - 4*(i&1)))
		}
	}
	mean := float32(sum / float64(max(1, len(tops))))
	nested, at, codes := m.Parts()
	putFloat(dst[at:], mean)
	for i := range tops {
		tops[i] -= mean
	}
	for b := 0; b < len(tops); b += Nested {
		end := min(b+Nested, len(tops))
		putFloat(dst[nested+b/Nested*4:], codebook.Signed.Encode(dst[codes+b:codes+end], tops[b:end]))
	}
}

// toInteger, added to a number of at most 2^22, leaves the nearest integer, ties to even, in the
// lowest bits of the sum.
const toInteger = 0x1.8p23

// leastTop is the smallest magnitude whose 127ths are distinguished.
const leastTop = 0x1p-100

// EncodeRow stores row i of a matrix in Int8, x, in dst, which must have the size of m.
func (m Matrix) EncodeRow(dst []byte, i int, x []float32) {
	top := simd.MaxMagnitude(x)
	putFloat(dst[m.Codes()+4*i:], top)
	inv := float32(0)
	if top >= leastTop {
		inv = 127 / top
	}
	codes := dst[i*m.Cols:][:len(x)]
	for j, v := range x {
		codes[j] = byte(math.Float32bits(float32(v*inv) + toInteger))
	}
}

// Decode writes the elements from at on, in the order in which they are stored, to dst.
func (m Matrix) Decode(dst []float32, src []byte, at int) {
	if m.Format == Int8 {
		for len(dst) > 0 {
			n := min(len(dst), m.Cols-at%m.Cols)
			simd.Integers8(dst[:n], src[at:at+n], float(src[m.Codes()+at/m.Cols*4:]), perUnit)
			dst, at = dst[n:], at+n
		}
		return
	}
	nested, mean, codes := m.Parts()
	offset := float(src[mean:])
	for len(dst) > 0 {
		b := at / Block
		n := min(len(dst), (b+1)*Block-at)
		// Two roundings, as defined by the format.
		scale := float32(codebook.Signed.Values[src[codes+b]]*float(src[nested+b/Nested*4:])) + offset
		expand(dst[:n], src, at)
		simd.MulScalar(dst[:n], dst[:n], scale)
		dst, at = dst[n:], at+n
	}
}

// expand writes the numbers of NF4 that the codes from the given one on stand for.
func expand(dst []float32, codes []byte, at int) {
	if at&1 != 0 {
		dst[0] = nf4[codes[at/2]&15]
		dst, at = dst[1:], at+1
	}
	n := len(dst) / 2
	codes = codes[at/2:]
	for i, c := range codes[:n] {
		copy(dst[2*i:2*i+2], pairs[c][:])
	}
	if len(dst)&1 != 0 {
		dst[2*n] = nf4[codes[n]>>4]
	}
}

func putFloat(dst []byte, v float32) {
	binary.LittleEndian.PutUint32(dst, math.Float32bits(v))
}

func float(src []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(src)) }

func ceil(a, b int) int { return (a + b - 1) / b }
