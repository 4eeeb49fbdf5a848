package simd

import "math"

// numbers8 are the 256 numbers that 8-bit codes stand for, the dynamic data type of Dettmers
// (2016, arXiv:1511.04561) as bitsandbytes defines it. Those above 0 are entries in ascending
// order: decade e has 2^e of them, the midpoints of as many equal parts of it, and the last is
// 1. So the entry q = 2^e + k is (1 + 9 (k + 1/2) / 2^e) / 10^(decades-e), and q + 1/2 has
// the exponent e and the mantissa 1 + (k + 1/2) / 2^e. Computing that is several times faster
// than gathering from a table of 256, and is rounded once.
type numbers8 struct {
	decades        int32
	zero, greatest int32      // the entries of 0 and 1
	powers, ninths [8]float32 // 10^(decades-e), and a ninth of it, indexed by the lowest bits of the exponent
	logShift       float32
}

var (
	// Code c is the entry c - 127, or minus that of 127 - c.
	signed8 = numbersOf8(7, 0, 128)
	// Code c is the entry c + 1.
	unsigned8 = numbersOf8(8, 1, 256)
)

func numbersOf8(decades, zero, greatest int32) *numbers8 {
	n := &numbers8{decades: decades, zero: zero, greatest: greatest}
	for i := range n.powers {
		n.powers[i], n.ninths[i] = 1, 1
		if e := (int32(i) + 1) % 8; e < decades {
			power := math.Pow10(int(decades - e))
			n.powers[i], n.ninths[i] = float32(power), float32(power/9)
		}
	}
	n.logShift = float32(-127*math.Log10(2) + float64(decades-1) + 0.5 - 0x1p-10)
	return n
}

// at returns the number of the entry q.
func (n *numbers8) at(q int32) float32 {
	switch {
	case q <= n.zero:
		return 0
	case q >= n.greatest:
		return 1
	}
	bits := math.Float32bits(float32(q) + 0.5)
	return (9*math.Float32frombits(bits&(1<<23-1)|0x3f800000) - 8) / n.powers[bits>>23&7]
}

// toInteger8, added, leaves an integer in the lowest bits.
const toInteger8 = 0x1.8p23

// position returns where x lies among the entries, on a scale on which an entry lies at its
// index plus one half, and where its decade begins. x is from 0 to 1: for anything else the
// result is meaningless, but has the same bits at every level.
func (n *numbers8) position(x float32) (y, begin float32) {
	// The bits of a float32 are about its logarithm: this is its decade or the one before.
	log := float32(float32(int32(math.Float32bits(x)))*float32(math.Log10(2)*0x1p-23)) + n.logShift
	decade := int32(math.Float32bits(log+toInteger8) - math.Float32bits(toInteger8))
	decade = max(decade, 0)
	z := x * n.ninths[(decade+7)&7]
	if z > 10.0/9 {
		z *= 0.1
		decade++
	}
	exponent := uint32(decade) << 23
	return math.Float32frombits(math.Float32bits(z+8.0/9) + exponent), math.Float32frombits(math.Float32bits(1) + exponent)
}

// DecodeSigned8 writes the numbers that signed codes stand for, times scale.
func DecodeSigned8(dst []float32, codes []uint8, scale float32) {
	same(len(dst), len(codes), len(codes))
	decodeSigned8(dst, codes, scale)
}

// DecodeUnsigned8 writes the numbers that unsigned codes stand for, times scale.
func DecodeUnsigned8(dst []float32, codes []uint8, scale float32) {
	same(len(dst), len(codes), len(codes))
	decodeUnsigned8(dst, codes, scale)
}

// EncodeSigned8 writes the codes of the numbers nearest to x[i] * inv. Within a thousandth of
// their distance of the midpoint of two, it may be either.
func EncodeSigned8(codes []uint8, x []float32, inv float32) {
	same(len(codes), len(x), len(x))
	encodeSigned8(codes, x, inv)
}

// EncodeUnsigned8 writes the codes of the numbers above and below x[i] * inv, which is not
// negative, with probabilities given by their distances: the one above if x[i] * inv is at
// least the fraction (random[i] + 1/2) / 65536 of the way from one to the other, to within a
// thousandth. Numbers above 0 get no code below 1.
func EncodeUnsigned8(codes []uint8, x []float32, random []uint16, inv float32) {
	same(len(codes), len(x), len(random))
	encodeUnsigned8(codes, x, random, inv)
}

// Integers8 writes dst[i] = codes[i] * scale * unit, each code a signed byte, rounded after
// each product.
func Integers8(dst []float32, codes []uint8, scale, unit float32) {
	same(len(dst), len(codes), len(codes))
	integers8(dst, codes, scale, unit)
}

func integers8Go(dst []float32, codes []uint8, scale, unit float32) {
	for i, c := range codes {
		dst[i] = float32(float32(int8(c))*scale) * unit
	}
}

func decodeSigned8Go(dst []float32, codes []uint8, scale float32) {
	for i, c := range codes {
		if c < 127 {
			dst[i] = -signed8.at(127-int32(c)) * scale
		} else {
			dst[i] = signed8.at(int32(c)-127) * scale
		}
	}
}

func decodeUnsigned8Go(dst []float32, codes []uint8, scale float32) {
	for i, c := range codes {
		dst[i] = unsigned8.at(int32(c)+1) * scale
	}
}

func encodeSigned8Go(codes []uint8, x []float32, inv float32) {
	for i, v := range x {
		v *= inv
		y, begin := signed8.position(math.Float32frombits(math.Float32bits(v) &^ (1 << 31)))
		q := int32(math.Float32bits(y-0.5+toInteger8) - math.Float32bits(toInteger8))
		// The midpoint of two neighboring numbers lies halfway between their entries, except
		// from one decade to the next, from 0 to the first number and from the last to 1.
		near := float32(0.2)
		if begin <= 1 {
			near = 1.75 / 9
		}
		if y-begin < near {
			q--
		}
		if q = max(q, 0); y > float32(signed8.greatest)-0.25 {
			q = signed8.greatest
		}
		if math.Signbit(float64(v)) {
			q = -q
		}
		codes[i] = uint8(max(127+q, 0))
	}
}

func encodeUnsigned8Go(codes []uint8, x []float32, random []uint16, inv float32) {
	for i, v := range x {
		v *= inv
		y, begin := unsigned8.position(v)
		sum := y + (toInteger8 - 1)
		way := y - 0.5 - (sum - toInteger8)                    // from the entry below to the one above
		if since := y - begin; min(since, begin-since) < 0.5 { // to the next decade, whose numbers are five times as far apart
			bent := max(way, float32(way*5)-2)
			if way = bent * (1.0 / 3); y >= float32(unsigned8.greatest)-0.5 { // to 1, half as far as an entry would be
				way = bent * 2
			}
		}
		q := int32(math.Float32bits(sum) - math.Float32bits(toInteger8))
		if way >= float32(random[i])*0x1p-16+0x1p-17 { // exact
			q++
		}
		if codes[i] = 0; v > 0 {
			codes[i] = uint8(min(max(q-1, 1), 255))
		}
	}
}
