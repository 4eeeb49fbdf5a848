package plan

import (
	"math"

	"github.com/snug-ml/snug/device"
)

// LossChunk returns how many rows of logits, with the given number of classes, the loss should hold at a time
// on t when it computes in p.
func (t Target) LossChunk(p device.Precision, classes int) int {
	if t.Card == nil {
		return hostLossChunk(classes)
	}
	return LossChunk(t.Speed(p), p)
}

// hostLossChunk is LossChunk for the CPU: 32 MiB of logits, as a power of two from 64 to 1024 rows. It must
// not depend on the measured speed: chunks decide the order of sums, and a resumed run must repeat them bit
// for bit.
func hostLossChunk(classes int) int {
	rows := 64
	for rows < 1024 && 2*rows*classes*4 <= 32<<20 {
		rows *= 2
	}
	return rows
}

// LossChunk returns how many rows of logits the loss should hold at a time. For each chunk, the output layer
// is read and its gradient added to; the chunk is large enough that this takes at most a quarter of the time
// of its matmuls. It is rounded up to a power of two.
func LossChunk(s Speed, p device.Precision) int {
	weight := 4.0
	if p == device.BF16 || p == device.FP16 {
		weight = 2
	}
	// A row costs 3 matmuls (6 V D operations), a chunk costs V D (weight + 8) bytes.
	rows := 4 * s.Half * (weight + 8) / (6 * s.Bandwidth)
	if math.IsNaN(rows) || rows < 64 {
		rows = 64
	}
	return 1 << int(math.Ceil(math.Log2(min(rows, 1<<20))))
}
