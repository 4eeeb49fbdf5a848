package pass

import "github.com/snug-ml/snug/engine/graph"

// Fusion says what the kernels of a device can take on next to their own work.
// It is plain data, so that a program for a device can be made without it.
type Fusion struct {
	// Epilogues are elementwise work on the result of a product, done while a
	// tile of it is at hand.
	Epilogues bool
	// Operands are functions that a product puts an operand through as it reads
	// it: worth it where reading costs more than computing the function again.
	Operands bool
	// OperandSums are sums over the columns of an operand that a product reads
	// transposed: the gradient of a bias next to that of its weight.
	OperandSums bool
	// Addends are gradients that the gradient of a norm is added to.
	Addends bool
	// LoopSums are sums over the columns of what an elementwise loop makes or reads.
	LoopSums bool
	// Registers are the most inputs and steps of a fused body, Results its most
	// results.
	Registers, Results int
}

// FuseAll is everything that operations can express.
var FuseAll = Fusion{
	Epilogues: true, Operands: true, OperandSums: true, Addends: true, LoopSums: true,
	Registers: graph.MaxRegisters, Results: graph.MaxBodyResults,
}
