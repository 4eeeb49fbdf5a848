package token

import (
	"math"
	"unicode/utf8"
)

// A symbol is a partial token: its id and how many bytes of the word it covers.
type symbol struct{ id, size int32 }

// bpe merges neighboring symbols, the best ranked pair first, until no pair is left
// that has a merge (Sennrich, Haddow and Birch 2016).
type bpe struct {
	ids   map[string]int32
	pairs pairTable
	into  []int32 // rank -> id of the merged symbol

	prefix, suffix string // of a symbol that does not begin its word, or that ends it
	unk            int32  // -1: characters outside the vocabulary are dropped
	fuseUnk        bool
	byteFallback   bool
	fallback       [256]int32 // ids of <0x00> to <0xFF>; -1: none
	wholeWords     bool       // ignore_merges: a word that is a token is not built from merges

	// bytes means that words come as raw bytes instead of the characters that spell them; byteID
	// and words are then indexed by raw bytes, too.
	bytes  bool
	byteID [256]int32
	words  map[string]int32
}

const noRank = math.MaxUint32

func (m *bpe) tokenize(dst []symbol, word string) []symbol {
	if m.wholeWords {
		ids := m.ids
		if m.bytes {
			ids = m.words
		}
		if id, ok := ids[word]; ok {
			return append(dst, symbol{id, int32(len(word))})
		}
	}
	n := len(dst)
	if m.bytes {
		dst = m.byteSymbols(dst, word)
	} else {
		dst = m.runeSymbols(dst, word)
	}
	return dst[:n+len(m.merge(dst[n:]))]
}

// byteSymbols is runeSymbols for a word of raw bytes, none of which is unknown.
func (m *bpe) byteSymbols(dst []symbol, word string) []symbol {
	for i := range len(word) {
		dst = append(dst, symbol{m.byteID[word[i]], 1})
	}
	return dst
}

// unknown records one more unknown character of size bytes. A pending unknown symbol is held back
// until the next known one, to be fused with those that follow it, or is appended.
func (m *bpe) unknown(dst []symbol, pending symbol, size int32) ([]symbol, symbol) {
	switch {
	case m.unk < 0:
		return dst, pending
	case pending.id < 0:
	case m.fuseUnk:
		pending.size += size
		return dst, pending
	default:
		dst = append(dst, pending)
	}
	return dst, symbol{m.unk, size}
}

func (m *bpe) runeSymbols(dst []symbol, word string) []symbol {
	unk := symbol{id: -1}
	var spelled []byte
	for i := 0; i < len(word); {
		_, n := utf8.DecodeRuneInString(word[i:])
		s := word[i : i+n]
		if i > 0 && m.prefix != "" || i+n == len(word) && m.suffix != "" {
			spelled = spelled[:0]
			if i > 0 {
				spelled = append(spelled, m.prefix...)
			}
			spelled = append(spelled, s...)
			if i+n == len(word) {
				spelled = append(spelled, m.suffix...)
			}
			s = string(spelled)
		}
		i += n
		if id, ok := m.ids[s]; ok {
			if unk.id >= 0 {
				dst = append(dst, unk)
				unk.id = -1
			}
			dst = append(dst, symbol{id, int32(n)})
			continue
		}
		if m.byteFallback && m.allBytes(s) {
			// As in the reference, a pending unknown symbol comes after the bytes.
			for j := range len(s) {
				dst = append(dst, symbol{m.fallback[s[j]], 1})
			}
			continue
		}
		dst, unk = m.unknown(dst, unk, int32(n))
	}
	if unk.id >= 0 {
		dst = append(dst, unk)
	}
	return dst
}

func (m *bpe) allBytes(s string) bool {
	for i := range len(s) {
		if m.fallback[s[i]] < 0 {
			return false
		}
	}
	return true
}

// shortWord is the longest word, in symbols, for which looking at every pair again
// after a merge is faster than a heap.
const shortWord = 96

// merge merges s in place.
func (m *bpe) merge(s []symbol) []symbol {
	switch {
	case len(m.into) == 0:
		return s
	case len(s) > shortWord:
		return m.mergeLong(s)
	}
	var ranks [shortWord]uint32
	for i := range len(s) - 1 {
		ranks[i] = m.pairs.rank(s[i].id, s[i+1].id)
	}
	for {
		best, at := uint32(noRank), -1
		for i, r := range ranks[:max(len(s)-1, 0)] {
			if r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return s
		}
		s[at] = symbol{m.into[best], s[at].size + s[at+1].size}
		copy(s[at+1:], s[at+2:])
		copy(ranks[at:], ranks[at+1:len(s)-1])
		s = s[:len(s)-1]
		if at > 0 {
			ranks[at-1] = m.pairs.rank(s[at-1].id, s[at].id)
		}
		ranks[at] = noRank
		if at+1 < len(s) {
			ranks[at] = m.pairs.rank(s[at].id, s[at+1].id)
		}
	}
}

// A candidate is a pair that may be merged: it begins at symbol at, and is stale unless
// its two symbols are still left and right.
type candidate struct {
	rank        uint32
	at          int32
	left, right int32
}

func (c candidate) Before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// mergeLong is merge in O(n log n).
func (m *bpe) mergeLong(s []symbol) []symbol {
	next := make([]int32, len(s)) // len(s): none
	prev := make([]int32, len(s)) // -1: none
	for i := range s {
		next[i], prev[i] = int32(i+1), int32(i-1)
	}
	var waiting queue[candidate]
	offer := func(at int32) candidate {
		c := candidate{rank: noRank, at: at}
		if at >= 0 && int(next[at]) < len(s) {
			c.left, c.right = s[at].id, s[next[at]].id
			c.rank = m.pairs.rank(c.left, c.right)
		}
		return c
	}
	for i := range len(s) - 1 {
		if c := offer(int32(i)); c.rank != noRank {
			waiting = append(waiting, c)
		}
	}
	waiting.order()
	for len(waiting) > 0 {
		c := waiting.pop()
		if s[c.at].size == 0 || offer(c.at) != c {
			continue
		}
		gone := next[c.at]
		s[c.at] = symbol{m.into[c.rank], s[c.at].size + s[gone].size}
		s[gone].size = 0
		next[c.at] = next[gone]
		if int(next[gone]) < len(s) {
			prev[next[gone]] = c.at
		}
		for _, at := range [...]int32{prev[c.at], c.at} {
			if c := offer(at); c.rank != noRank {
				waiting.push(c)
			}
		}
	}
	kept := s[:0]
	for i := int32(0); int(i) < len(s); i = next[i] {
		kept = append(kept, s[i])
	}
	return kept
}

// pairTable finds the rank of a merge: a hash table with open addressing, at most half full.
type pairTable struct {
	keys  []uint64 // left<<32 | right
	ranks []uint32 // noRank: free
}

func newPairTable(n int) pairTable {
	size := 4
	for size < 2*n {
		size *= 2
	}
	t := pairTable{make([]uint64, size), make([]uint32, size)}
	for i := range t.ranks {
		t.ranks[i] = noRank
	}
	return t
}

// slot returns the place of the pair, or the free place where it belongs.
func (t *pairTable) slot(key uint64) int {
	mask := len(t.keys) - 1
	h := key * 0x9E3779B97F4A7C15 // 2^64 / golden ratio
	for i := int(h>>32) & mask; ; i = (i + 1) & mask {
		if t.ranks[i] == noRank || t.keys[i] == key {
			return i
		}
	}
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

// set gives the pair a rank; a pair that is set twice keeps the last one, as in the
// reference.
func (t *pairTable) set(left, right int32, rank uint32) {
	key := pairKey(left, right)
	i := t.slot(key)
	t.keys[i], t.ranks[i] = key, rank
}

func (t *pairTable) rank(left, right int32) uint32 {
	return t.ranks[t.slot(pairKey(left, right))]
}
