package simd

import "math"

// normalAt returns normal element i of a stream.
func normalAt(seed, stream, i uint64) float32 {
	w := philoxBlock(seed, stream, i/4)
	pair := i % 4 &^ 1
	z0, z1 := boxMullerPair(w[pair], w[pair+1])
	if i%2 == 0 {
		return z0
	}
	return z1
}

// boxMullerGo replaces pairs of random words by pairs of normal numbers;
// len(dst) is even.
func boxMullerGo(dst []float32) {
	for i := 0; i < len(dst); i += 2 {
		dst[i], dst[i+1] = boxMullerPair(math.Float32bits(dst[i]), math.Float32bits(dst[i+1]))
	}
}

// boxMullerPair rounds after every operation, so that every level and
// architecture computes the same weights from the same seed.
func boxMullerPair(w0, w1 uint32) (z0, z1 float32) {
	radius := sqrt32(-2 * logExact(float32(w0>>8+1)*0x1p-24))
	// A full turn is 2^24 units: the nearest quarter, and the remainder in [-1/2, 1/2]
	// quarters.
	angle := int32(w1 >> 8)
	quarter := (angle + 1<<21) >> 22
	sin, cos := sinCosExact(float32(angle-quarter<<22) * 0x1p-22 * (math.Pi / 2))
	if quarter&1 != 0 {
		sin, cos = cos, sin
	}
	if (quarter+1)&2 != 0 {
		cos = -cos
	}
	if quarter&2 != 0 {
		sin = -sin
	}
	return radius * cos, radius * sin
}

// logExact is the natural logarithm of a normal positive u, as f - f^2/2 +
// f^3 P(f) + e ln 2 with u = (1+f) 2^e and 1+f in [0.75, 1.5).
func logExact(u float32) float32 {
	b := int32(math.Float32bits(u))
	e := (b - 0x3f400000) >> 23
	f := math.Float32frombits(uint32(b-e<<23)) - 1
	sq := float32(f * f)
	y := float32(float32(horner(boxMullerLog[:], f)*f)*sq) - float32(0.5*sq)
	return (f + y) + float32(float32(e)*math.Ln2)
}

// sinCosExact returns sine and cosine of r in [-pi/4, pi/4].
func sinCosExact(r float32) (sin, cos float32) {
	z := float32(r * r)
	sin = r + float32(horner(boxMullerSin[:], z)*float32(z*r))
	cos = (1 - float32(0.5*z)) + float32(horner(boxMullerCos[:], z)*float32(z*z))
	return sin, cos
}

// horner evaluates c[0] + c[1]x + ... with every product and sum rounded.
func horner(c []float32, x float32) float32 {
	p := c[len(c)-1]
	for i := len(c) - 2; i >= 0; i-- {
		p = float32(p*x) + c[i]
	}
	return p
}
