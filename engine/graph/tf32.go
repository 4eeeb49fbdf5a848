package graph

// TF32Rule is an operation whose matmuls can round their float32 factors to TF32 as they
// are read: to a mantissa of 10 bits, to nearest, with ties away from zero. Products and
// sums are in float32. It does not affect matmuls of 16-bit factors.
type TF32Rule interface {
	Op
	// WithTF32 returns the operation with such rounding.
	WithTF32() Op
	// IsTF32 reports whether it rounds so.
	IsTF32() bool
}

// IsTF32 reports whether the matmuls of an operation round their factors to TF32.
func IsTF32(op Op) bool {
	r, ok := op.(TF32Rule)
	return ok && r.IsTF32()
}

// WithTF32 implements [TF32Rule].
func (m MatMul) WithTF32() Op {
	m.TF32 = true
	return m
}

// IsTF32 implements [TF32Rule].
func (m MatMul) IsTF32() bool { return m.TF32 }

// WithTF32 implements [TF32Rule].
func (g GroupedMatMul) WithTF32() Op {
	g.TF32 = true
	return g
}

// IsTF32 implements [TF32Rule].
func (g GroupedMatMul) IsTF32() bool { return g.TF32 }

// WithTF32 implements [TF32Rule].
func (GroupedOuter) WithTF32() Op { return GroupedOuter{TF32: true} }

// IsTF32 implements [TF32Rule].
func (g GroupedOuter) IsTF32() bool { return g.TF32 }

// WithTF32 implements [TF32Rule].
func (l LinearCrossEntropy) WithTF32() Op {
	l.TF32 = true
	return l
}

// IsTF32 implements [TF32Rule].
func (l LinearCrossEntropy) IsTF32() bool { return l.TF32 }

// WithTF32 implements [TF32Rule].
func (l LinearCrossEntropyGrad) WithTF32() Op {
	l.TF32 = true
	return l
}

// IsTF32 implements [TF32Rule].
func (l LinearCrossEntropyGrad) IsTF32() bool { return l.TF32 }
