package graph

import "fmt"

// Dropout zeroes elements with probability P and multiplies the rest by
// 1/(1-P). Operands: x, the run counter I32 [2].
//
// Element i is decided by word i mod 4 of the Philox4x32-10 block (Salmon et
// al. 2011) with key Seed (low word first) and the counter words i/4 low, i/4
// high, Stream, run counter word 0: it stays if the word's upper 24 bits, as a
// fraction u = (word >> 8) * 2^-24, are below 1-P in float32. So the gradient
// and a recomputation see the same choice. Run counter word 1 is not used.
//
// The operand may be a part of a larger tensor, from its element First on, a multiple of
// 4: elements are then numbered as in that tensor.
type Dropout struct {
	P      float64
	Seed   uint64
	Stream uint32
	First  uint64
}

// Name is "dropout".
func (Dropout) Name() string { return "dropout" }

// Infer keeps the type.
func (d Dropout) Infer(in []Type) ([]Type, error) {
	if len(in) != 2 || !in[1].Equal(T(I32, 2)) {
		return nil, fmt.Errorf("wants x and the run counter i32[2], got %v", in)
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	if d.P < 0 || d.P >= 1 {
		return nil, fmt.Errorf("drops with probability %v, want [0, 1)", d.P)
	}
	if d.First%4 != 0 {
		return nil, fmt.Errorf("begins with element %d of a larger tensor, want a multiple of 4", d.First)
	}
	return []Type{in[0]}, nil
}

// Grad drops the same elements.
func (d Dropout) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(d, dout[0], n.In[1]), nil}
}

// Cost is one pass over memory.
func (Dropout) Cost(in, out []Type) Cost { return traffic(in, out, 12) }

// Autocast keeps the format.
func (d Dropout) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), d }

// InplaceOperands: the result may overwrite x.
func (Dropout) InplaceOperands(*Node) []int { return []int{0} }

// RunCounter is the input that numbers the runs of a training program (update times
// accumulation plus micro-batch, low and high word): the time coordinate of every random
// number.
const RunCounter = "run_counter"

// Dropout drops elements of x with probability p; seed is the run's seed.
func (b *Builder) Dropout(x *Value, p float64, seed uint64) *Value {
	if p == 0 {
		return x
	}
	rng := b.Input(RunCounter, T(I32, 2))
	return b.emit1(Dropout{P: p, Seed: seed, Stream: b.Stream()}, x, rng)
}
