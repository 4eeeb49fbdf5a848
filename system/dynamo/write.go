package dynamo

import (
	"context"
	"math"
	"strings"

	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/inference"
)

// class returns the answer for two logits.
func class(y []float32) answer {
	p := 1 / (1 + math.Exp(float64(y[0])-float64(y[1])))
	if p > .5 {
		return answer{Label: 1, Share: p}
	}
	return answer{Label: 0, Share: 1 - p}
}

// write generates a text for each group of beams rows, whose states a read has stored in the cache.
func (p *taskPredictor) write(ctx context.Context, name string, rows, beams int) (out []string, err error) {
	defer token.Catch(&err)
	found, err := p.search(name, rows/beams, beams).Find(ctx)
	if err != nil {
		return nil, err
	}
	out = make([]string, len(found))
	for i, b := range found {
		out[i] = strings.TrimSpace(p.tok.Decode(b.Tokens, true))
	}
	return out, nil
}

// search returns the beam search for n texts, using the cache.
func (p *taskPredictor) search(name string, n, beams int) *inference.BeamSearch {
	return &inference.BeamSearch{
		Texts: n, Beams: beams, Longest: taskOf(p.config, name).Target, First: p.tok.first, Last: p.tok.last,
		Step: func(tokens []int32, position int) ([]float32, int, error) { return p.step(name, tokens, position) },
		Reorder: func(parents []int32) error {
			to := p.ints(inputParents)
			for i := copy(to, parents); i < len(to); i++ {
				to[i] = int32(i)
			}
			return p.r.Run(funcReorder, 0)
		},
	}
}

// step runs the decoder on a token of every row, at a position, and returns the logits [rows, V].
func (p *taskPredictor) step(name string, tokens []int32, position int) (logits []float32, vocab int, err error) {
	token, place, known := p.ints(inputToken), p.ints(inputAt), p.ints(inputKnown)
	for i := range token {
		token[i], place[i], known[i] = p.tok.first, int32(position), int32(position+1)
	}
	copy(token, tokens)
	fn := funcNext + "@" + name
	if err := p.r.Run(fn, 0); err != nil {
		return nil, 0, err
	}
	logits, err = p.r.OutputF32(fn, outputNext)
	return logits, len(logits) / p.rows, err
}
