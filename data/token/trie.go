package token

// A trie maps strings to values and finds the ones that a text begins with.
type trie struct {
	first [256]bool        // a string begins with this byte
	edges map[uint64]int32 // node<<8 | byte -> node
	value map[int32]int32  // node -> value
	nodes int32
}

func newTrie() trie {
	return trie{edges: map[uint64]int32{}, value: map[int32]int32{}, nodes: 1}
}

func edge(node int32, b byte) uint64 { return uint64(node)<<8 | uint64(b) }

// insert gives key, which is not empty, a value; the first value stays.
func (t *trie) insert(key string, value int32) {
	t.first[key[0]] = true
	at := int32(0)
	for i := range len(key) {
		e := edge(at, key[i])
		to, ok := t.edges[e]
		if !ok {
			to = t.nodes
			t.nodes++
			t.edges[e] = to
		}
		at = to
	}
	if _, ok := t.value[at]; !ok {
		t.value[at] = value
	}
}

// step follows one byte from node; ok is false if no key continues.
func (t *trie) step(node int32, b byte) (int32, bool) {
	to, ok := t.edges[edge(node, b)]
	return to, ok
}

// longest returns the value and the length of the longest key that s begins with; the
// length is 0 if there is none.
func (t *trie) longest(s string) (value int32, length int) {
	at := int32(0)
	for i := range len(s) {
		next, ok := t.step(at, s[i])
		if !ok {
			break
		}
		at = next
		if v, ok := t.value[at]; ok {
			value, length = v, i+1
		}
	}
	return value, length
}
