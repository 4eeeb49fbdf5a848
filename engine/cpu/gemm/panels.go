package gemm

// Panels reads an op(B) of k rows that calls of [Micro.PackB], each of a
// multiple of Cols columns but the last, packed one after the other: columns
// from j on at PackedBytes(k, j). So several workers can pack one operand.
func (u Micro) Panels(k int, packed []byte) Panels {
	return Panels{&packed[0], u.m.nr * u.m.bytes(), u.m.nr * u.Words(k) * u.m.bytes()}
}
