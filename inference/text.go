package inference

import (
	"github.com/snug-ml/snug/data/token"
)

// Piece is a token of a text.
type Piece struct {
	Token int32
	// Text is what the token adds to the text: nothing if a character is incomplete.
	Text string
	// Logprob is the log-probability of the token given those before it, if requested and
	// if there are any, and Top are the likeliest tokens there.
	Logprob *float64
	Top     []Likely
}

// Likely is a token with the logarithm of its probability.
type Likely struct {
	Token   int32
	Logprob float64
}

// score fills in the probabilities of a piece from the logits that its token was drawn
// from, with the n likeliest.
func (p *Piece) score(logits []float32, n int) {
	norm := LogSumExp(logits)
	at := func(id int32) float64 { return float64(logits[id]) - norm }
	own := at(p.Token)
	p.Logprob = &own
	for _, id := range Likeliest(logits, n) {
		p.Top = append(p.Top, Likely{id, at(id)})
	}
}

// Pieces returns tokens as text, without probabilities.
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

// Encode returns the tokens of a prompt; for an empty one, the token that documents begin
// after.
func (l *Language) Encode(prompt string) (ids []int32, err error) {
	defer token.Catch(&err)
	return l.start(prompt)
}
