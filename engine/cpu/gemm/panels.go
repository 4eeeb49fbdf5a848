package gemm

// Panels returns an op(B) of k rows that several calls of [Micro.PackB] packed one after
// the other, each with a multiple of Cols columns except the last: columns from j on
// begin at PackedBytes(k, j). This way several workers can pack one operand.
func (u Micro) Panels(k int, packed []byte) Panels {
	return Panels{&packed[0], u.m.nr * u.m.bytes(), u.m.nr * u.Words(k) * u.m.bytes()}
}
