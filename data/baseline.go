package data

import (
	"context"
	"fmt"
	"math"
	"math/bits"
)

// Baseline is the loss of counting models on held-out windows, in nats per token and
// weighted like the training loss: what a network must beat to have learned more than
// frequencies.
type Baseline struct {
	// Unigram is the cross-entropy of p(y) = (c(y) + 1/2) / (N + V/2), the
	// Krichevsky-Trofimov estimate.
	Unigram float64 `json:"unigram_loss"`
	// Bigram is the cross-entropy of p(y|x) = (c(x,y) + Beta p(y)) / (c(x) + Beta):
	// counts of pairs, interpolated with the unigram (MacKay and Peto, "A hierarchical
	// Dirichlet language model", 1995).
	Bigram float64 `json:"bigram_loss"`
	// Beta is the value in a grid that best predicts each training token from all the
	// others.
	Beta float64 `json:"beta"`
	// Counted and Scored are the label weights of the training and the
	// held-out windows.
	Counted float64 `json:"counted"`
	Scored  float64 `json:"scored"`
}

// Baselines counts the training windows exactly and scores the held-out ones.
// Its memory is one table entry of 16 bytes or two for each distinct pair.
func Baselines(ctx context.Context, train, heldOut *Windows) (Baseline, error) {
	vocab := train.Corpus().VocabSize()
	if v := heldOut.Corpus().VocabSize(); v != vocab {
		return Baseline{}, fmt.Errorf("data: baselines: vocabulary of %d in training, %d held out", vocab, v)
	}
	c := counts{of: make([]uint64, vocab), as: make([]uint64, vocab)}
	c.pairs.grow(1 << 12)
	err := eachPair(ctx, train, func(x, y int32) { c.add(x, y) })
	if err != nil {
		return Baseline{}, err
	}
	b := Baseline{Counted: float64(c.total), Beta: c.bestBeta()}
	err = eachPair(ctx, heldOut, func(x, y int32) {
		p := c.unigram(y)
		b.Unigram -= math.Log(p)
		n := float64(c.pairs.get(pairKey(x, y)))
		b.Bigram -= math.Log((n + b.Beta*p) / (float64(c.of[x]) + b.Beta))
		b.Scored++
	})
	if err != nil {
		return Baseline{}, err
	}
	if b.Scored == 0 {
		return Baseline{}, fmt.Errorf("data: baselines: no label of the held-out windows counts in the loss")
	}
	b.Unigram /= b.Scored
	b.Bigram /= b.Scored
	return b, nil
}

// eachPair calls f with the input and label of every position that has weight.
func eachPair(ctx context.Context, w *Windows, f func(x, y int32)) error {
	t := w.Length()
	tokens, labels, weights := make([]int32, t), make([]int32, t), make([]float32, t)
	for i := range w.Len() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := w.Fill(i, tokens, labels, weights, nil); err != nil {
			return err
		}
		for k, weight := range weights {
			if weight > 0 {
				f(tokens[k], labels[k])
			}
		}
	}
	return nil
}

// counts are the counts of the training windows.
type counts struct {
	total uint64
	of    []uint64 // as an input
	as    []uint64 // as a label
	pairs pairTable
}

func (c *counts) add(x, y int32) {
	c.total++
	c.of[x]++
	c.as[y]++
	c.pairs.add(pairKey(x, y))
}

func (c *counts) unigram(y int32) float64 {
	return (float64(c.as[y]) + 0.5) / (float64(c.total) + 0.5*float64(len(c.as)))
}

// bestBeta minimizes the leave-one-out loss of the training pairs: each pair
// of count n is scored n times by counts that lack one of it.
//
// The sum of n log((n-1 + beta p(y)) / (c(x)-1 + beta)) over the pairs is split:
// the denominators go by input, and the pairs of count 1 together give their number
// times log(beta) and a constant, so only the others need a logarithm each.
func (c *counts) bestBeta() float64 {
	best, bestLoss := 1.0, math.Inf(1)
	for beta := 0.25; beta <= 1<<16; beta *= 2 {
		var loss, single float64
		for _, n := range c.of {
			if n > 0 {
				loss += float64(n) * math.Log(float64(n)-1+beta)
			}
		}
		for i := range c.pairs.slots {
			switch s := &c.pairs.slots[i]; s.count {
			case 0:
			case 1:
				single++
			default:
				n, y := float64(s.count), int32(uint32(s.key))
				loss -= n * math.Log(n-1+beta*c.unigram(y))
			}
		}
		if loss -= single * math.Log(beta); loss < bestLoss {
			best, bestLoss = beta, loss
		}
	}
	return best
}

func pairKey(x, y int32) uint64 { return uint64(uint32(x))<<32 | uint64(uint32(y)) }

// pairTable counts pairs of ids: open addressing with linear probing, at most
// half full. A count of 0 marks a free slot.
type pairTable struct {
	slots []pairSlot
	used  int
	shift uint // 64 - log2 of the number of slots
}

type pairSlot struct {
	key   uint64
	count uint64
}

// find is the slot of key, or the free one where it belongs. The
// multiplier is Fibonacci hashing's (Knuth, TAOCP 3, 6.4).
func (t *pairTable) find(key uint64) *pairSlot {
	mask := uint64(len(t.slots) - 1)
	for i := key * 0x9E3779B97F4A7C15 >> t.shift; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.count == 0 || s.key == key {
			return s
		}
	}
}

func (t *pairTable) get(key uint64) uint64 { return t.find(key).count }

func (t *pairTable) add(key uint64) {
	s := t.find(key)
	if s.count == 0 {
		if 2*(t.used+1) > len(t.slots) {
			t.grow(2 * len(t.slots))
			s = t.find(key)
		}
		s.key = key
		t.used++
	}
	s.count++
}

// grow moves the counts to a table of n slots, a power of two.
func (t *pairTable) grow(n int) {
	old := t.slots
	t.slots = make([]pairSlot, n)
	t.shift = 64 - uint(bits.TrailingZeros(uint(n)))
	for _, s := range old {
		if s.count > 0 {
			*t.find(s.key) = s
		}
	}
}
