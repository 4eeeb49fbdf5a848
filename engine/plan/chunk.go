package plan

import (
	"math"

	"github.com/snug-ml/snug/device"
)

// HostLossChunk is how many rows of logits the loss holds at a time on the CPU:
// enough that the output layer is read rarely, few enough that a chunk of a
// small vocabulary stays in the cache. It is a constant because chunks decide
// the order of sums: a run that is resumed must not follow a measured speed.
const HostLossChunk = 256

// LossChunk is how many rows of logits the loss should hold at a time on t when
// it computes in p.
func (t Target) LossChunk(p device.Precision) int {
	if t.Card == nil {
		return HostLossChunk
	}
	return LossChunk(t.Speed(p), p)
}

// LossChunk is how many rows of logits the loss should hold at a time: so many
// that reading the output layer and adding to its gradient once a chunk takes a
// quarter of the time of the chunk's products, rounded up to a power of two.
func LossChunk(s Speed, p device.Precision) int {
	weight := 4.0
	if p == device.BF16 || p == device.FP16 {
		weight = 2
	}
	// A row costs 3 products (6 V D operations), a chunk V D (weight + 8) bytes.
	rows := 4 * s.Half * (weight + 8) / (6 * s.Bandwidth)
	if math.IsNaN(rows) || rows < 64 {
		rows = 64
	}
	return 1 << int(math.Ceil(math.Log2(min(rows, 1<<20))))
}
