package dynamo

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/token"
)

// class is the answer of two logits.
func class(y []float32) answer {
	p := 1 / (1 + math.Exp(float64(y[0])-float64(y[1])))
	if p > .5 {
		return answer{Label: 1, Share: p}
	}
	return answer{Label: 0, Share: 1 - p}
}

// beam is a text that is being written.
type beam struct {
	tokens []int32
	// score is the sum of the tokens' log probabilities.
	score float64
	// row of the memory that knows it.
	row int
	// ended says that the end was written behind the tokens; it is in the score.
	ended bool
}

// mean is the score a token, by which texts are compared.
func (b *beam) mean() float64 {
	n := len(b.tokens)
	if b.ended {
		n++
	}
	return b.score / float64(max(1, n))
}

// write writes a text for each group of as many rows as there are beams, whose
// states a read has remembered.
func (a *assistant) write(ctx context.Context, name string, rows, beams int) (out []string, err error) {
	defer token.Catch(&err)
	found, err := a.search(ctx, name, rows/beams, beams)
	if err != nil {
		return nil, err
	}
	out = make([]string, len(found))
	for i, b := range found {
		out[i] = strings.TrimSpace(a.tok.Decode(b.tokens, true))
	}
	return out, nil
}

// search finds n texts: the likeliest token after token with one beam, else by
// beam search (Graves 2012), texts compared by the mean of their tokens' log
// probabilities.
func (a *assistant) search(ctx context.Context, name string, n, beams int) ([]beam, error) {
	open, done := make([][]beam, n), make([][]beam, n)
	for i := range open {
		open[i] = []beam{{row: i * beams}}
	}
	longest := taskOf(a.config, name).Target
	for at := range longest {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		logits, err := a.step(name, open, at)
		if err != nil {
			return nil, err
		}
		parents := identity(a.rows)
		busy, moved := false, false
		for i := range open {
			next := a.extend(open[i], logits, beams)
			open[i] = open[i][:0:0]
			for _, b := range next {
				if last := len(b.tokens) - 1; b.tokens[last] == a.tok.last {
					b.tokens, b.ended = b.tokens[:last], true
					done[i] = append(done[i], b)
					continue
				}
				if len(open[i]) == beams {
					continue
				}
				row := i*beams + len(open[i])
				moved = moved || row != b.row
				parents[row] = int32(b.row)
				b.row = row
				open[i] = append(open[i], b)
			}
			if len(done[i]) >= beams {
				open[i] = nil
			}
			busy = busy || len(open[i]) > 0
		}
		if !busy {
			break
		}
		if moved {
			copy(a.ints(inputParents), parents)
			if err := a.r.Run(funcReorder, 0); err != nil {
				return nil, err
			}
		}
	}
	out := make([]beam, n)
	for i := range out {
		// What is still open at the end counts only where nothing ended.
		from := done[i]
		if len(from) == 0 {
			from = open[i]
		}
		out[i] = slices.MaxFunc(from, func(x, y beam) int { return cmp.Compare(x.mean(), y.mean()) })
	}
	return out, nil
}

func identity(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// step runs the decoder on the last token of every beam, at a position, and
// gives the logits [rows, V].
func (a *assistant) step(name string, open [][]beam, position int) ([]float32, error) {
	token, place, known := a.ints(inputToken), a.ints(inputAt), a.ints(inputKnown)
	for i := range token {
		token[i], place[i], known[i] = a.tok.first, int32(position), int32(position+1)
	}
	for _, beams := range open {
		for _, b := range beams {
			if n := len(b.tokens); n > 0 {
				token[b.row] = b.tokens[n-1]
			}
		}
	}
	fn := funcNext + "@" + name
	if err := a.r.Run(fn, 0); err != nil {
		return nil, err
	}
	return a.r.OutputF32(fn, outputNext)
}

// extend gives the likeliest continuations of a text's beams by one token,
// best first: as many as beams that may go on, and those that end among them.
func (a *assistant) extend(open []beam, logits []float32, beams int) []beam {
	vocab := len(logits) / a.rows
	var all []beam
	for _, b := range open {
		row := logits[b.row*vocab : (b.row+1)*vocab]
		top := likeliest(row, beams+1)
		norm := logSum(row)
		for _, id := range top {
			all = append(all, beam{tokens: append(slices.Clone(b.tokens), id), score: b.score + float64(row[id]) - norm, row: b.row})
		}
	}
	slices.SortStableFunc(all, func(x, y beam) int { return cmp.Compare(y.score, x.score) })
	if beams == 1 {
		return all[:min(1, len(all))]
	}
	return all[:min(2*beams, len(all))]
}

// likeliest are the ids of the n greatest logits, greatest first.
func likeliest(row []float32, n int) []int32 {
	var top []int32
	for i, x := range row {
		if len(top) == n && x <= row[top[n-1]] {
			continue
		}
		at := len(top)
		for at > 0 && row[top[at-1]] < x {
			at--
		}
		top = slices.Insert(top, at, int32(i))
		if len(top) > n {
			top = top[:n]
		}
	}
	return top
}

func logSum(row []float32) float64 {
	top := float64(slices.Max(row))
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}
