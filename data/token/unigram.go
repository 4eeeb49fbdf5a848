package token

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unigram splits a text into the pieces whose scores have the greatest sum (Kudo 2018), found by
// Viterbi's algorithm.
type unigram struct {
	ids      map[string]int32
	pieces   trie
	scores   []float64
	unk      int32
	unkScore float64    // of a character that is not a piece
	fallback [256]int32 // ids of <0x00> to <0xFF>; -1: none
	bytes    bool       // byte_fallback
}

// unknownPenalty is how much worse an unknown character is than the worst piece.
const unknownPenalty = 10

func (t *Tokenizer) readUnigram(o object) {
	vocab := o.get("vocab")
	list := read[[]json.RawMessage](vocab, "an array of pieces and scores")
	m := &unigram{ids: make(map[string]int32, len(list)), pieces: newTrie(), bytes: o.get("byte_fallback").boolOr(false)}
	lowest := math.Inf(1)
	for i, raw := range list {
		var pair []json.RawMessage
		var piece string
		var score float64
		if json.Unmarshal(raw, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[0], &piece) != nil || json.Unmarshal(pair[1], &score) != nil {
			vocab.item(i).fail("expected a piece and its score, found %s", node{raw: raw}.shown())
			return
		}
		if _, ok := m.ids[piece]; ok {
			vocab.item(i).fail("piece %q is given twice", piece)
			return
		}
		score = roughly(pair[1], score)
		m.ids[piece] = int32(i)
		if piece != "" {
			m.pieces.insert(piece, int32(i))
		}
		m.scores = append(m.scores, score)
		lowest = min(lowest, score)
	}
	m.unkScore = lowest - unknownPenalty
	unk := o.get("unk_id")
	if unk.isNull() {
		unk.fail("missing; without it unknown text could not be encoded")
	} else if m.unk = unk.id(); int(m.unk) >= len(list) {
		unk.fail("unk_id %d is not in the vocabulary of %d pieces", m.unk, len(list))
	}
	for b := range m.fallback {
		m.fallback[b] = -1
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.fallback[b] = id
		}
	}
	t.setTokens(vocab, maps.Clone(m.ids))
	t.model = m
}

// roughly returns the value that the reference reads for a number, which is exact to within a
// bit or two: the digits as an integer, divided by a power of ten. The rounding decides between
// pieces whose scores have the same sum.
func roughly(raw []byte, exact float64) float64 {
	text, negative := strings.CutPrefix(strings.TrimSpace(string(raw)), "-")
	digits, exp, _ := strings.Cut(strings.ToLower(text), "e")
	power, err := strconv.Atoi(cmp.Or(exp, "0"))
	if err != nil {
		return exact
	}
	whole, fraction, _ := strings.Cut(digits, ".")
	var n uint64
	for i, d := range []byte(whole + fraction) {
		hi, lo := bits.Mul64(n, 10)
		sum, carry := bits.Add64(lo, uint64(d-'0'), 0)
		if hi+carry > 0 { // the reference drops the digits that do not fit
			if i < len(whole) {
				return exact
			}
			break
		}
		n = sum
		if i >= len(whole) {
			power--
		}
	}
	if power < -308 || power > 308 {
		return exact
	}
	ten, err := strconv.ParseFloat("1e"+strconv.Itoa(max(power, -power)), 64)
	if err != nil {
		return exact
	}
	v := float64(n)
	if power < 0 {
		v /= ten
	} else {
		v *= ten
	}
	if math.IsInf(v, 0) {
		return exact
	}
	if negative {
		v = -v
	}
	return v
}

// A way is the best way to a position in the text: where its last piece begins, and which one
// that is.
type way struct {
	score float64
	from  int32 // -1: no way yet
	id    int32
}

func (m *unigram) tokenize(dst []symbol, word string) []symbol {
	ways := make([]way, len(word)+1)
	for i := range ways {
		ways[i].from = -1
	}
	offer := func(from, to int, id int32, score float64) {
		score += ways[from].score
		if w := &ways[to]; w.from < 0 || score > w.score {
			*w = way{score, int32(from), id}
		}
	}
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		whole := false // whether the character alone is a piece
		at := int32(0)
		for j := i; j < len(word); j++ {
			next, ok := m.pieces.step(at, word[j])
			if !ok {
				break
			}
			at = next
			if id, ok := m.pieces.value[at]; ok {
				offer(i, j+1, id, m.scores[id])
				whole = whole || j+1 == i+size
			}
		}
		if !whole {
			offer(i, i+size, m.unk, m.unkScore)
		}
		i += size
	}
	first := len(dst)
	for end := len(word); end > 0; {
		w := ways[end]
		start := int(w.from)
		if w.id == m.unk { // adjacent unknown pieces are one
			for start > 0 && ways[start].id == m.unk {
				start = int(ways[start].from)
			}
			dst = m.unknown(dst, word[start:end])
		} else {
			dst = append(dst, symbol{w.id, int32(end - start)})
		}
		end = start
	}
	slices.Reverse(dst[first:])
	return dst
}

// unknown appends, last first, what a run of unknown characters becomes.
func (m *unigram) unknown(dst []symbol, s string) []symbol {
	size := int32(len(s))
	if id, ok := m.ids[s]; ok { // a run of characters each spelled by the unknown piece, perhaps
		return append(dst, symbol{id, size})
	}
	if m.bytes {
		n := len(dst)
		for i := len(s) - 1; i >= 0; i-- {
			id := m.fallback[s[i]]
			if id < 0 {
				return append(dst[:n], symbol{m.unk, size})
			}
			dst = append(dst, symbol{id: id}) // shares its part of the text with the first
		}
		dst[len(dst)-1].size = size
		return dst
	}
	return append(dst, symbol{m.unk, size})
}
