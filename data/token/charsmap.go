package token

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// A charsMap is SentencePiece's precompiled character map: a double-array trie
// (darts-clone) that leads from a string to the offset of its replacement in a block of
// zero-terminated strings.
type charsMap struct {
	units  []uint32
	target string
}

func newCharsMap(raw []byte) (*charsMap, error) {
	if len(raw) < 4 {
		return nil, errors.New("the character map is shorter than its header")
	}
	size := uint64(binary.LittleEndian.Uint32(raw))
	raw = raw[4:]
	if size > uint64(len(raw)) || size%4 != 0 || size == 0 {
		return nil, fmt.Errorf("the character map says its trie has %d bytes, of %d in all", size, len(raw))
	}
	m := &charsMap{units: make([]uint32, size/4), target: string(raw[size:])}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	if !utf8.ValidString(m.target) {
		return nil, errors.New("the character map has replacements that are not UTF-8")
	}
	return m, nil
}

// lookup returns the replacement of the shortest string in the trie that s begins with.
func (m *charsMap) lookup(s string) (string, bool) {
	at := 0
	step := func(b byte) (uint32, bool) {
		at ^= int(b)
		if at >= len(m.units) {
			return 0, false
		}
		return m.units[at], true
	}
	offset := func(u uint32) int { return int(u >> 10 << (u & (1 << 9) >> 6)) }
	at = offset(m.units[0])
	for i := range len(s) {
		b := s[i]
		if b == 0 {
			break
		}
		u, ok := step(b)
		if !ok || u&(1<<31|0xFF) != uint32(b) {
			break
		}
		at ^= offset(u)
		if u>>8&1 == 1 {
			leaf, ok := step(0)
			if !ok {
				break
			}
			return m.replacement(int(leaf & (1<<31 - 1)))
		}
	}
	return "", false
}

func (m *charsMap) replacement(from int) (string, bool) {
	if from >= len(m.target) || !utf8.RuneStart(m.target[from]) {
		return "", from == len(m.target)
	}
	end := from
	for end < len(m.target) && m.target[end] != 0 {
		end++
	}
	return m.target[from:end], true
}

// normalize replaces whole grapheme clusters of less than 6 bytes, even if only their
// start is in the map, and otherwise single characters, like the reference.
func (m *charsMap) normalize(in stretch) stretch {
	var parts []part
	changed := false
	clusters := graphemes.FromString(in.s)
	for clusters.Next() {
		cluster := clusters.Value()
		if len(cluster) < 6 {
			if s, ok := m.lookup(cluster); ok {
				allow(len(parts)+len(s), in.most)
				parts = appendChanged(parts, cluster, s)
				changed = true
				continue
			}
		}
		for _, r := range cluster {
			old := string(r)
			if s, ok := m.lookup(old); ok {
				allow(len(parts)+len(s), in.most)
				parts = appendChanged(parts, old, s)
				changed = true
			} else {
				parts = append(parts, part{r: r})
			}
		}
	}
	if !changed {
		return in
	}
	return respell(in, parts)
}

// appendChanged appends what replaces old. If s has more characters, the last ones correspond to
// none; if it has fewer, the last one, which may precede it, corresponds to several.
func appendChanged(parts []part, old, s string) []part {
	for _, r := range s {
		parts = append(parts, part{r: r})
	}
	more := utf8.RuneCountInString(s) - utf8.RuneCountInString(old)
	for i := range max(more, 0) {
		parts[len(parts)-1-i].change = 1
	}
	if more < 0 && len(parts) > 0 {
		parts[len(parts)-1].change += int32(more)
	}
	return parts
}
