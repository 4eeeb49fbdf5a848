package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"
)

// TrainOptions say what TrainBPE makes.
type TrainOptions struct {
	VocabSize    int       // tokens in all: special tokens, the 256 bytes and merges; at least the first two
	MinFrequency int       // a pair seen less often is not merged; 0 is 2
	Specials     []Special // get the first ids, in this order
	Workers      int       // goroutines that count words; 0 is GOMAXPROCS. It does not change the result.
}

// A Special is a token that is markup and not text, with the roles it plays.
type Special struct {
	Content string
	Roles   []Role
}

// ErrNoText is the error of [TrainBPE] for documents without any text.
var ErrNoText = errors.New("train tokenizer: the files have no text")

// TrainBPE learns a byte-level BPE tokenizer from documents: GPT-2's split pattern and, step by
// step, the most frequent pair of tokens becomes a token; among equals, the pair with the lowest
// ids. The slices that docs yields are not kept, and its first error is returned as it is. It
// makes fewer merges than requested if no pair that is frequent enough is left.
//
// The result equals that of Hugging Face's BpeTrainer with the ByteLevel pre-tokenizer and
// alphabet, with one exception: no merge makes a special token, so that text in which one is
// written does not become it unless it is looked for.
func TrainBPE(ctx context.Context, docs iter.Seq2[[]byte, error], opt TrainOptions) (*Tokenizer, error) {
	if opt.MinFrequency == 0 {
		opt.MinFrequency = 2
	}
	if opt.Workers == 0 {
		opt.Workers = runtime.GOMAXPROCS(0)
	}
	least := len(opt.Specials) + 256
	switch {
	case opt.VocabSize < least:
		return nil, fmt.Errorf("train tokenizer: vocabulary size %d; %d special tokens and 256 bytes need at least %d", opt.VocabSize, len(opt.Specials), least)
	case opt.VocabSize > 1<<24:
		return nil, fmt.Errorf("train tokenizer: vocabulary size %d; at most %d is supported", opt.VocabSize, 1<<24)
	case opt.MinFrequency < 1 || opt.Workers < 1:
		return nil, fmt.Errorf("train tokenizer: minimum frequency %d and workers %d must be positive", opt.MinFrequency, opt.Workers)
	}
	counts, err := countWords(ctx, docs, opt.Workers)
	if err != nil {
		return nil, err
	}
	if len(counts) == 0 {
		return nil, ErrNoText
	}
	b := newBPEFile()
	for _, s := range opt.Specials {
		if err := b.special(s); err != nil {
			return nil, fmt.Errorf("train tokenizer: %w", err)
		}
	}
	first := b.bytes()
	l := newLearner(counts, first)
	for b.size() < opt.VocabSize {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("train tokenizer: %w", err)
		}
		p, ok := l.best(opt.MinFrequency)
		if !ok {
			break
		}
		if into, ok := b.merge(p.left, p.right); ok {
			l.apply(p, into)
		}
	}
	return b.tokenizer()
}

// countWords counts the words of all documents, split as GPT-2 does.
func countWords(ctx context.Context, docs iter.Seq2[[]byte, error], workers int) (map[string]int, error) {
	const batchSize = 1 << 20
	type batch struct {
		text []byte
		ends []int // of the documents
	}
	full := make(chan *batch, workers)
	free := make(chan *batch, 2*workers+1)
	for range cap(free) {
		free <- &batch{}
	}
	results := make([]map[string]int, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			// A map of pointers, because Go can look up a slice of bytes without a copy
			// but not increment under it.
			counts := map[string]*int{}
			for b := range full {
				start := 0
				for _, end := range b.ends {
					countDoc(counts, b.text[start:end])
					start = end
				}
				b.text, b.ends = b.text[:0], b.ends[:0]
				free <- b
			}
			results[i] = make(map[string]int, len(counts))
			for word, n := range counts {
				results[i][word] = *n
			}
		})
	}
	var err error
	b := <-free
	for doc, failed := range docs {
		if err = failed; err != nil {
			break
		}
		if err = ctx.Err(); err != nil {
			err = fmt.Errorf("train tokenizer: %w", err)
			break
		}
		b.text = append(b.text, doc...)
		b.ends = append(b.ends, len(b.text))
		if len(b.text) >= batchSize {
			full <- b
			b = <-free
		}
	}
	full <- b
	close(full)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	total := results[0]
	for _, r := range results[1:] {
		for word, n := range r {
			total[word] += n
		}
	}
	return total, nil
}

func countDoc(counts map[string]*int, doc []byte) {
	s := unsafe.String(unsafe.SliceData(doc), len(doc))
	for i := 0; i < len(s); {
		end := scanGPT2(s, i)
		if n := counts[s[i:end]]; n != nil {
			*n++
		} else {
			n := 1
			counts[strings.Clone(s[i:end])] = &n
		}
		i = end
	}
}

// A pairCount is a pair and how often it occurs, or did when the pairCount was queued.
type pairCount struct {
	left, right int32
	count       int
}

func (p pairCount) Before(q pairCount) bool {
	if p.count != q.count {
		return p.count > q.count
	}
	return cmp.Or(cmp.Compare(p.left, q.left), cmp.Compare(p.right, q.right)) < 0
}

// A learner keeps the words as sequences of tokens, with how often and where each pair of
// neighbors occurs.
type learner struct {
	words  [][]int32
	counts []int // of the words
	pairs  map[uint64]*pairUse
	queue  queue[pairCount]
	seen   []int32 // word -> last round that touched it
	round  int32
	gained map[uint64]bool // pairs with a higher count since the last round
}

type pairUse struct {
	count int
	words []int32 // where the pair occurs or used to occur
}

func newLearner(counts map[string]int, first [256]int32) *learner {
	l := &learner{pairs: map[uint64]*pairUse{}, gained: map[uint64]bool{}}
	for _, word := range slices.Sorted(maps.Keys(counts)) {
		ids := make([]int32, len(word))
		for i := range len(word) {
			ids[i] = first[word[i]]
		}
		w := int32(len(l.words))
		l.words = append(l.words, ids)
		l.counts = append(l.counts, counts[word])
		for i := range len(ids) - 1 {
			l.use(w, ids[i], ids[i+1], 1)
		}
	}
	l.seen = make([]int32, len(l.words))
	l.requeue()
	return l
}

// use records that the pair occurs n times more, or less, in word w.
func (l *learner) use(w, left, right int32, n int) {
	key := pairKey(left, right)
	u := l.pairs[key]
	if u == nil {
		u = &pairUse{}
		l.pairs[key] = u
	}
	u.count += n * l.counts[w]
	if n > 0 {
		if len(u.words) == 0 || u.words[len(u.words)-1] != w {
			u.words = append(u.words, w)
		}
		l.gained[key] = true
	}
}

// requeue queues the pairs whose counts have risen. Pairs whose counts have fallen are
// corrected when they come first.
func (l *learner) requeue() {
	for key := range l.gained {
		if n := l.pairs[key].count; n > 0 {
			l.queue.push(pairCount{int32(key >> 32), int32(uint32(key)), n})
		}
	}
	clear(l.gained)
}

// best removes the most frequent pair. It comes back only if its count rises.
func (l *learner) best(least int) (pairCount, bool) {
	for len(l.queue) > 0 {
		p := l.queue.pop()
		u := l.pairs[pairKey(p.left, p.right)]
		switch {
		case u == nil || u.count <= 0:
			continue
		case p.count != u.count:
			p.count = u.count
			l.queue.push(p)
			continue
		case p.count < least:
			return p, false
		}
		return p, true
	}
	return pairCount{}, false
}

// apply merges the pair wherever it occurs.
func (l *learner) apply(p pairCount, into int32) {
	key := pairKey(p.left, p.right)
	u := l.pairs[key]
	delete(l.pairs, key)
	l.round++
	for _, w := range u.words {
		if l.seen[w] == l.round {
			continue
		}
		l.seen[w] = l.round
		l.words[w] = l.mergeWord(w, p.left, p.right, into)
	}
	delete(l.gained, key)
	l.requeue()
}

func (l *learner) mergeWord(w, left, right, into int32) []int32 {
	ids := l.words[w]
	out := ids[:0]
	for i := 0; i < len(ids); i++ {
		if i+1 == len(ids) || ids[i] != left || ids[i+1] != right {
			out = append(out, ids[i])
			continue
		}
		if n := len(out); n > 0 {
			l.use(w, out[n-1], left, -1)
			l.use(w, out[n-1], into, 1)
		}
		i++
		if i+1 < len(ids) {
			if right != left || ids[i+1] != right { // in a a a, the second pair went with the first
				l.use(w, right, ids[i+1], -1)
			}
			l.use(w, into, ids[i+1], 1)
		}
		out = append(out, into)
	}
	return out
}
