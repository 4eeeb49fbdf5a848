// Package attention computes softmax(scale*Q*K^T + mask)*V and its gradients
// on the CPU, tile by tile in cache: no [Tq, Tk] tensor is ever stored.
//
// The forward pass keeps O and, for each query, the log-sum-exp of its masked
// scores (LSE); the backward pass recomputes the probabilities from them
// (Dao, "FlashAttention-2", 2023). A [Plan] cuts the work into tasks that any
// workers may run in any order:
//
//	p := attention.NewPlan(attention.Config{Batch: b, Heads: h, Tq: t, Tk: t, Size: k, Causal: true, Scale: s})
//	for task := range p.ForwardTasks() {
//		p.Forward(task, &args, scratch) // p.ForwardBytes() for each worker, 64-byte aligned
//	}
//
// Promises:
//   - Scores, softmax and all sums are float32; results are rounded once, when
//     stored. With bfloat16 products (see [Config]) the probabilities and the
//     gradients of the scores are rounded to bfloat16 as operands.
//   - A result depends neither on the number of workers nor on which of them
//     ran a task; each element is written by one task.
//   - A query that sees no key has output 0, LSE -Inf and no gradient.
//   - Tiles that are wholly masked are skipped, so causal attention costs half.
//   - Nothing is allocated after NewPlan, and nothing outside the views, LSE
//     and the scratch is touched.
package attention

import (
	"fmt"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/isa"
)

//go:generate go -C ../../../tools/asm/attention run . -file rows512 -out ../../../engine/cpu/attention/rows512_amd64.s -stubs ../../../engine/cpu/attention/rows512_amd64.go -pkg attention
//go:generate go -C ../../../tools/asm/attention run . -file rows256 -out ../../../engine/cpu/attention/rows256_amd64.s -stubs ../../../engine/cpu/attention/rows256_amd64.go -pkg attention
//go:generate go -C ../../../tools/asm/attention run . -file rows128 -out ../../../engine/cpu/attention/rows128_arm64.s -stubs ../../../engine/cpu/attention/rows128_arm64.go -pkg attention
//go:generate go -C ../../../tools/asm/attention run . -tables ../../../engine/cpu/attention

// Config is the shape of one attention.
type Config struct {
	Batch, Heads int
	// KVHeads is the number of heads of keys and values, a divisor of Heads: each
	// serves as many heads of queries, next to each other. 0 means Heads.
	KVHeads int
	Tq, Tk  int // numbers of queries and keys
	Size    int // of a head
	Scale   float32
	// Causal lets query i see keys up to i+max(len-Tq, 0) of the len valid keys
	// (Tk unless KeyLengths say otherwise): the queries are the last Tq
	// positions of a key-value cache, or the rows of a padded batch.
	Causal bool
	// Type is the stored type of Q, K, V and dO. Outputs carry their own.
	Type gemm.DType
	// Compute, if BF16, rounds float32 operands to bfloat16 where the hardware multiplies
	// bfloat16; bfloat16 operands are multiplied as such in any case.
	Compute gemm.DType
	ISA     isa.Level
	// Workers is the number of workers the tasks are meant for; it does not
	// change results. 0 means 1.
	Workers int
}

// View is an operand [Batch, T, Heads or KVHeads, Size] with arbitrary strides in
// elements: element (b, t, h, k) is at b*Batch + t*Row + h*Head + k. Heads may be
// within wider rows, as in a fused [B, T, 3*H*K] projection.
type View struct {
	Data             unsafe.Pointer
	Type             gemm.DType
	Batch, Row, Head int
}

// matrix returns the [T, Size] matrix of one head from position t on.
func (v *View) matrix(b, h, t int) gemm.Matrix {
	off := b*v.Batch + t*v.Row + h*v.Head
	return gemm.Matrix{Data: unsafe.Add(v.Data, off*v.Type.Size()), Type: v.Type, Stride: v.Row}
}

// Args are the operands of one run.
type Args struct {
	Q, K, V View
	O       View      // written by Forward, read by Backward
	LSE     []float32 // [Batch, Heads, Tq], written by Forward, read by Backward

	DO         View // read by Backward
	DQ, DK, DV View // written by Backward

	// KeyLengths, when not nil, masks the keys of batch row b from KeyLengths[b] on.
	KeyLengths []int32
	// SegmentsQ [Batch, Tq] and SegmentsK [Batch, Tk], when not nil, mask the
	// keys whose segment differs from the query's.
	SegmentsQ, SegmentsK []int32
	// Dropout, when not nil, drops probabilities, in Backward as in Forward.
	Dropout Dropout
}

// Dropout supplies the random multipliers of probabilities. Keep sets out[x]
// to 0 or 1/(1-p) for the element with counter first+x; the probability of
// query i and key j of head h in batch row b has counter ((b*H+h)*Tq+i)*Tk+j.
// It may be called by several workers at once and must not allocate.
type Dropout interface {
	Keep(first uint64, out []float32)
}

// Tile sizes. A tile of queries and a block of keys keep the scores, the
// packed operands and the sums in the second-level cache.
const (
	tileRows  = 96  // queries of one tile, a multiple of the rows of every kernel
	chunkRows = 384 // queries of one forward task, at most

	narrowRows = 4 // most queries for which keys are read in place
)

// Plan is the decomposition of one attention into tasks. It is immutable and
// may be shared by concurrent runs.
type Plan struct {
	Config
	u        gemm.Micro
	rows     *rowKernels
	group    int  // heads of queries that share keys
	block    int  // keys of one block
	chunk    int  // queries of one forward task
	pitch    int  // floats from row to row of scores
	outPitch int  // floats from row to row of outputs and gradients
	narrow   bool // so few queries that keys are not worth packing in Forward
	fwd, bwd scratch
}

// NewPlan plans one attention. It panics on sizes below 1 and on a scale that
// is not positive: the caller has checked them.
func NewPlan(c Config) *Plan {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if min(c.Batch, c.Heads, c.KVHeads, c.Tq, c.Tk, c.Size) < 1 || c.Heads%c.KVHeads != 0 || !(c.Scale > 0) {
		panic(fmt.Sprintf("attention: sizes must be at least 1 and fit, and the scale be positive, got batch %d, %d heads on %d, %d queries, %d keys, size %d and scale %v",
			c.Batch, c.Heads, c.KVHeads, c.Tq, c.Tk, c.Size, c.Scale))
	}
	word := gemm.F32
	if c.Type == gemm.BF16 || c.Type == gemm.F32 && c.Compute == gemm.BF16 {
		word = gemm.BF16
	}
	narrow := c.Tq <= narrowRows
	if narrow {
		word = gemm.F32
	}
	p := &Plan{Config: c, group: c.Heads / c.KVHeads, narrow: narrow, u: gemm.NewMicro(c.ISA, word, c.Size), rows: rowsFor(c.ISA)}
	p.block = 256
	if c.Size > 96 {
		p.block = 128
	}
	p.block = min(p.block, roundUp(c.Tk, 32))
	p.pitch = roundUp(p.block, 32) + 16 // rows start in different cache sets
	p.outPitch = roundUp(c.Size, 32) + 16
	// Several tasks per head when there are few heads; each packs the keys again.
	p.chunk = min(chunkRows, roundUp(c.Tq, tileRows))
	for p.chunk > tileRows && c.Batch*c.Heads*ceil(c.Tq, p.chunk) < 4*c.Workers {
		p.chunk -= tileRows
	}
	p.fwd, p.bwd = p.layoutForward(), p.layoutBackward()
	return p
}

// ForwardTasks returns the number of independent tasks of the forward pass.
func (p *Plan) ForwardTasks() int { return p.Batch * p.Heads * ceil(p.Tq, p.chunk) }

// BackwardTasks returns the number of independent tasks of the backward pass.
func (p *Plan) BackwardTasks() int { return p.Batch * p.KVHeads }

// ForwardBytes returns the scratch, 64-byte aligned, of each worker in Forward.
func (p *Plan) ForwardBytes() int { return p.fwd.bytes }

// BackwardBytes returns the scratch, 64-byte aligned, of each worker in Backward.
func (p *Plan) BackwardBytes() int { return p.bwd.bytes }

func ceil(a, b int) int { return (a + b - 1) / b }

func roundUp(a, b int) int { return ceil(a, b) * b }
