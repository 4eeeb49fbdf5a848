package inference

import (
	"github.com/snug-ml/snug/data/token"
)

// Piece is a token of a text.
type Piece struct {
	Token int32
	// Text is what the token adds to the text: nothing where a character is not complete.
	Text string
	// Logprob is the logarithm of the token's probability after those before it, where
	// that was asked for and there are any, and Top are the likeliest tokens there.
	Logprob *float64
	Top     []Likely
}

// Likely is a token with the logarithm of its probability.
type Likely struct {
	Token   int32
	Logprob float64
}

// score fills in the probabilities of a piece by the logits that its token was
// drawn from, with the n likeliest.
func (p *Piece) score(logits []float32, n int) {
	norm := LogSumExp(logits)
	at := func(id int32) float64 { return float64(logits[id]) - norm }
	own := at(p.Token)
	p.Logprob = &own
	for _, id := range Likeliest(logits, n) {
		p.Top = append(p.Top, Likely{id, at(id)})
	}
}

// Pieces are tokens as a text, without probabilities.
func (l *Language) Pieces(ids []int32) []Piece {
	stream := l.Tokenizer.Stream(false)
	out := make([]Piece, len(ids))
	for i, id := range ids {
		out[i] = Piece{Token: id, Text: stream.Next(id)}
	}
	if len(out) > 0 {
		out[len(out)-1].Text += stream.Flush()
	}
	return out
}

// Encode returns the tokens of a prompt; of an empty one, the token that documents
// start after.
func (l *Language) Encode(prompt string) (ids []int32, err error) {
	defer token.Catch(&err)
	return l.start(prompt)
}
