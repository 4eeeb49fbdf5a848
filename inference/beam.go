package inference

import (
	"cmp"
	"context"
	"slices"
)

// Beam is a text being written.
type Beam struct {
	Tokens []int32
	// Score is the sum of the tokens' log probabilities.
	Score float64
	// Ended means that the end token follows; the score includes it.
	Ended bool
	row   int // of the cache that holds it
}

// mean is the score per token, by which texts are compared.
func (b *Beam) mean() float64 {
	n := len(b.Tokens)
	if b.Ended {
		n++
	}
	return b.Score / float64(max(1, n))
}

// BeamSearch writes several texts at once: greedily with one beam, otherwise by beam
// search (Graves 2012), texts compared by the mean of their tokens' log probabilities.
// Beam b of text i is row i*Beams+b of the cache.
type BeamSearch struct {
	Texts, Beams int
	Longest      int   // maximum length of a text in tokens
	First, Last  int32 // the tokens that begin and end a text
	// Step runs one token of every row, at a position, and returns the logits [rows, V],
	// with at least Texts*Beams rows.
	Step func(tokens []int32, position int) (logits []float32, vocab int, err error)
	// Reorder replaces row i of the cache by row parents[i].
	Reorder func(parents []int32) error
}

// Find returns the best version of each text.
func (s *BeamSearch) Find(ctx context.Context) ([]Beam, error) {
	open, done := make([][]Beam, s.Texts), make([][]Beam, s.Texts)
	for i := range open {
		open[i] = []Beam{{row: i * s.Beams}}
	}
	tokens, parents := make([]int32, s.Texts*s.Beams), make([]int32, s.Texts*s.Beams)
	for at := range s.Longest {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for row := range tokens {
			tokens[row], parents[row] = s.First, int32(row)
		}
		for _, beams := range open {
			for _, b := range beams {
				if n := len(b.Tokens); n > 0 {
					tokens[b.row] = b.Tokens[n-1]
				}
			}
		}
		logits, vocab, err := s.Step(tokens, at)
		if err != nil {
			return nil, err
		}
		busy, moved := false, false
		for i := range open {
			next := s.extend(open[i], logits, vocab)
			open[i] = open[i][:0:0]
			for _, b := range next {
				if last := len(b.Tokens) - 1; b.Tokens[last] == s.Last {
					b.Tokens, b.Ended = b.Tokens[:last], true
					done[i] = append(done[i], b)
					continue
				}
				if len(open[i]) == s.Beams {
					continue
				}
				row := i*s.Beams + len(open[i])
				moved = moved || row != b.row
				parents[row], b.row = int32(b.row), row
				open[i] = append(open[i], b)
			}
			if len(done[i]) >= s.Beams {
				open[i] = nil
			}
			busy = busy || len(open[i]) > 0
		}
		if !busy {
			break
		}
		if moved {
			if err := s.Reorder(parents); err != nil {
				return nil, err
			}
		}
	}
	out := make([]Beam, s.Texts)
	for i := range out {
		// Beams that are still open at the end count only if none ended.
		from := done[i]
		if len(from) == 0 {
			from = open[i]
		}
		out[i] = slices.MaxFunc(from, func(x, y Beam) int { return cmp.Compare(x.mean(), y.mean()) })
	}
	return out, nil
}

// extend returns the likeliest continuations of a text's beams by one token, best first:
// as many as there are beams to continue, and those that end among them.
func (s *BeamSearch) extend(open []Beam, logits []float32, vocab int) []Beam {
	var all []Beam
	for _, b := range open {
		row := logits[b.row*vocab : (b.row+1)*vocab]
		norm := LogSumExp(row)
		for _, id := range Likeliest(row, s.Beams+1) {
			all = append(all, Beam{Tokens: append(slices.Clone(b.Tokens), id), Score: b.Score + float64(row[id]) - norm, row: b.row})
		}
	}
	slices.SortStableFunc(all, func(x, y Beam) int { return cmp.Compare(y.Score, x.Score) })
	if s.Beams == 1 {
		return all[:min(1, len(all))]
	}
	return all[:min(2*s.Beams, len(all))]
}
