package graph

import "fmt"

// SelectiveScan is the state-space recurrence of Mamba (Gu and Dao 2023,
// algorithm 2, zero-order hold for A and Euler for B), S states for each of D
// channels:
//
//	h[t,d,s] = exp(dt[t,d]*A[d,s]) * h[t-1,d,s] + dt[t,d]*B[t,s]*u[t,d]
//	y[t,d]   = sum over s of C[t,s]*h[t,d,s] + D[d]*u[t,d]
//
// with h 0 before the first step of each row of the batch. Operands, all F32:
// u and dt [N,T,D], A [D,S], B and C [N,T,S], D [D]. Results: y [N,T,D] and the
// states [N,ceil(T/Chunk),S,D] before every Chunk-th step, from which the gradient
// recomputes the others.
type SelectiveScan struct{ Chunk int }

// Name is "selective_scan".
func (SelectiveScan) Name() string { return "selective_scan" }

// Chunks is how many states are kept for t steps.
func (s SelectiveScan) Chunks(t int) int { return (t + s.Chunk - 1) / s.Chunk }

// Infer returns y and the states.
func (s SelectiveScan) Infer(in []Type) ([]Type, error) {
	if err := want(in, 6); err != nil {
		return nil, err
	}
	if err := full(in...); err != nil {
		return nil, err
	}
	if s.Chunk < 1 || len(in[0].Shape) != 3 || len(in[2].Shape) != 2 {
		return nil, fmt.Errorf("wants u [N,T,D], A [D,S] and chunks of at least 1 step, got %v, %v and %d", in[0], in[2], s.Chunk)
	}
	n, t, d, states := in[0].Shape[0], in[0].Shape[1], in[0].Shape[2], in[2].Shape[1]
	bc := T(F32, n, t, states)
	if !in[1].Equal(in[0]) || in[2].Shape[0] != d || !in[3].Equal(bc) || !in[4].Equal(bc) || !in[5].Equal(T(F32, d)) {
		return nil, fmt.Errorf("u %v and %d states want dt %v, A [%d,%d], B and C %v and D [%d]; got %v", in[0], states, in[0], d, states, bc, d, in[1:])
	}
	return []Type{in[0], T(F32, n, s.Chunks(t), states, d)}, nil
}

// Grad recomputes the states, chunk by chunk from the last.
func (s SelectiveScan) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	onlyFirst(b, s, dout)
	return b.Emit(SelectiveScanGrad(s), append([]*Value{dout[0], n.Out[1]}, n.In...)...)
}

// Cost counts the exponential as 12 operations.
func (s SelectiveScan) Cost(in, out []Type) Cost {
	return traffic(in, out, 19*float64(in[2].Shape[1]))
}

// SelectiveScanGrad is the gradient of SelectiveScan. Operands: dy, the kept
// states, and those of SelectiveScan. Results: the gradients of u, dt, A, B, C
// and D.
type SelectiveScanGrad SelectiveScan

// Name is "selective_scan_grad".
func (SelectiveScanGrad) Name() string { return "selective_scan_grad" }

// Infer returns the operands' types.
func (s SelectiveScanGrad) Infer(in []Type) ([]Type, error) {
	if err := want(in, 8); err != nil {
		return nil, err
	}
	out, err := SelectiveScan(s).Infer(in[2:])
	if err != nil {
		return nil, err
	}
	if !in[0].Equal(out[0]) || !in[1].Equal(out[1]) {
		return nil, fmt.Errorf("dy and states are %v, want %v", in[:2], out)
	}
	return append([]Type(nil), in[2:]...), nil
}

// Grad: second derivatives are not provided.
func (s SelectiveScanGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, s) }

// Cost counts the recomputed states too.
func (s SelectiveScanGrad) Cost(in, out []Type) Cost {
	return traffic(in, out, 38*float64(in[4].Shape[1]))
}

// SelectiveScan runs the recurrence; see [SelectiveScan].
func (b *Builder) SelectiveScan(u, dt, a, bs, cs, d *Value) *Value {
	return b.emit1(SelectiveScan{Chunk: min(16, u.Shape()[1])}, u, dt, a, bs, cs, d)
}
