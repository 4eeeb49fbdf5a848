package graph

// Detach is its operand as a constant: no gradient flows through it.
type Detach struct{}

// Name is "detach".
func (Detach) Name() string { return "detach" }

// Infer keeps the type.
func (Detach) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	return []Type{{in[0].DType, in[0].Shape.Clone()}}, nil
}

// Grad: none.
func (Detach) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is nothing.
func (Detach) Cost(_, _ []Type) Cost { return Cost{} }

// Autocast keeps the format.
func (d Detach) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), d }

// Detach is x as a constant; see [Detach].
func (b *Builder) Detach(x *Value) *Value { return b.emit1(Detach{}, x) }
