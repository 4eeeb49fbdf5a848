package train

import (
	"github.com/snug-ml/snug/internal/simd"
)

// Gradients added up in pairs are the sum of two halves, each of which is the sum of its halves,
// down to single micro-batches. If the number of ranks is a power of two, a rank has neighbors,
// which are one half, a quarter, ... of all: it adds these up by itself and sends one sum, which
// is also a part of the sums for fewer ranks. This gives the same bits for all such numbers. A
// rank keeps the sums of halves whose other half is not computed yet.

// leaf returns how many sums wait when micro-batch k of a block is computed, and how many of them
// it completes. The first half of an odd number is the larger one.
func leaf(k, block int) (wait, completes int) {
	for n := block; n > 1; {
		if left := (n + 1) / 2; k < left {
			n, completes = left, 0
		} else {
			k, n = k-left, n-left
			wait++
			completes++
		}
	}
	return wait, completes
}

// levels returns how many sums of a block wait at most. A block of one never waits.
func levels(block int) (n int) {
	for k := range block {
		if wait, completes := leaf(k, block); completes == 0 && block > 1 {
			n = max(n, wait+1)
		}
	}
	return n
}

// waiting are the sums of a rank's block that wait for their other halves.
type waiting struct {
	block int
	sums  [][][][]byte // by bucket, level and the rank whose shard it is, in float32
	count []int        // by bucket: those that wait
}

// newWaiting places the sums in memory.
func newWaiting(buckets []bucket, block int, memory []byte) *waiting {
	p := &waiting{block: block, sums: make([][][][]byte, len(buckets)), count: make([]int, len(buckets))}
	for i := range buckets {
		for range levels(block) {
			var shards [][]byte
			for r := range buckets[i].shards {
				n := buckets[i].floatBytes(r)
				shards = append(shards, memory[:n:n])
				memory = memory[line(n):]
			}
			p.sums[i] = append(p.sums[i], shards)
		}
	}
	return p
}

// waitingBytes returns the memory of the sums of buckets that wait.
func waitingBytes(buckets []bucket, block int) (n int64) {
	for i := range buckets {
		for r := range buckets[i].shards {
			n += line(buckets[i].floatBytes(r))
		}
	}
	return n * int64(levels(block))
}

// fold adds micro-batch k of the block, by shards, to the waiting sums.
func (p *waiting) fold(bucket, k int, shard func(rank int) []byte) {
	if p.block == 1 {
		return
	}
	wait, completes := leaf(k, p.block)
	for r := range p.sums[bucket][0] {
		if completes == 0 {
			copy(p.sums[bucket][wait][r], shard(r))
			continue
		}
		addFloats(p.sums[bucket][wait-1][r], shard(r))
	}
	if completes == 0 {
		p.count[bucket] = wait + 1
		return
	}
	p.count[bucket] = wait
	p.merge(bucket, wait-completes+1)
}

// merge adds up the newest sums until only count wait.
func (p *waiting) merge(bucket, count int) {
	n := p.count[bucket]
	for ; n > count; n-- {
		for r, sum := range p.sums[bucket][n-2] {
			addFloats(sum, p.sums[bucket][n-1][r])
		}
	}
	p.count[bucket] = n
}

// addPairs adds up what ranks sent, into the first. Those of the second half may have sent
// nothing.
func addPairs(sums [][]byte) {
	for step := 1; step < len(sums); step *= 2 {
		for i := 0; i+step < len(sums); i += 2 * step {
			addFloats(sums[i], sums[i+step])
		}
	}
}

func addFloats(to, b []byte) { simd.Add(floats(to), floats(to), floats(b)) }
