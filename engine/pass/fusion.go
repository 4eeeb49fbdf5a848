package pass

import "github.com/snug-ml/snug/engine/graph"

// Fusion is what the kernels of a device can fuse with their own work. It is plain
// data, so that a program can be compiled for an absent device.
type Fusion struct {
	// Epilogues are elementwise work on the result of a matmul, done while a
	// tile of it is in cache.
	Epilogues bool
	// Operands are functions that a matmul applies to an operand as it reads it:
	// worthwhile if reading costs more than computing the function again.
	Operands bool
	// OperandReductions are column sums of an operand that a matmul reads
	// transposed: the gradient of a bias next to that of its weight.
	OperandReductions bool
	// Addends are gradients that are added to the gradient of a norm.
	Addends bool
	// LoopReductions are column sums of what an elementwise loop computes or reads.
	LoopReductions bool
	// Exponentials are those of logits, which the matmul that computes them also sums up.
	Exponentials bool
	// Normalizations are those of batches, as statistics and elementwise work.
	Normalizations bool
	// Pools are elementwise work on what pools read.
	Pools bool
	// Registers is the maximum number of inputs and instructions of a fused body, Results
	// the maximum number of its results.
	Registers, Results int
}

// fusion is what may be fused.
func (u *Unit) fusion() Fusion {
	if u.Fusion == nil {
		return FuseAll
	}
	return *u.Fusion
}

// FuseAll allows everything that operations can express, except what changes the order of
// sums or what is rounded.
var FuseAll = Fusion{
	Epilogues: true, Operands: true, OperandReductions: true, Addends: true, LoopReductions: true,
	Registers: graph.MaxRegisters, Results: graph.MaxBodyResults,
}
