package token

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// A wordCache remembers the ids of words, in at most 30 MB. It has a fixed number of slots, and a
// word evicts another; slots change atomically, so readers need no lock. Its content never changes
// a result.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int32
}

const (
	cacheSlots  = 1 << 16
	longestWord = 64 // bytes; longer words are rarely seen twice
)

func newWordCache() *wordCache {
	return &wordCache{maphash.MakeSeed(), make([]atomic.Pointer[cachedWord], cacheSlots)}
}

func (c *wordCache) slot(word string) *atomic.Pointer[cachedWord] {
	return &c.slots[maphash.String(c.seed, word)%cacheSlots]
}

// remember keeps a copy of both.
func (c *wordCache) remember(slot *atomic.Pointer[cachedWord], word string, ids []int32) {
	slot.Store(&cachedWord{strings.Clone(word), append([]int32(nil), ids...)})
}
