package openai

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/snug-ml/snug/inference"
)

// completion is an answer, or an event of one.
type completion struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	Model   string    `json:"model"`
	Choices []*choice `json:"choices"`
	Usage   *usage    `json:"usage"`
}

// usage counts tokens.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

// usageOf counts the prompts of a request, each once.
func (q *request) usageOf() *usage {
	u := &usage{}
	for _, p := range q.prompts {
		u.Prompt += len(p.ids)
	}
	u.Total = u.Prompt
	return u
}

func (u *usage) wrote(v inference.TextEvent) {
	if v.Finish != "" {
		u.Completion += v.Written
		u.Total += v.Written
	}
}

// choice is one text of an answer.
type choice struct {
	Text     string            `json:"text"`
	Index    int               `json:"index"`
	Logprobs *logprobs         `json:"logprobs"`
	Finish   *inference.Finish `json:"finish_reason"`
	// offset is the number of characters before the text of the next piece.
	offset int
}

// logprobs are the probabilities of the tokens of a text.
type logprobs struct {
	Tokens   []string             `json:"tokens"`
	Logprobs []*float64           `json:"token_logprobs"`
	Top      []map[string]float64 `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
}

// newChoice returns the choice with a number. It begins with the prompt if that is to be
// echoed, unless the prompt comes in pieces.
func newChoice(q *request, number int) *choice {
	c := &choice{Index: number}
	if p := q.prompts[number/q.n]; q.echo && !q.text.ScorePrompt {
		c.Text = p.text
	} else if !q.echo {
		c.offset = utf8.RuneCountInString(p.text)
	}
	return c
}

// add adds newly written pieces.
func (c *choice) add(l *inference.Language, q *request, v inference.TextEvent) {
	for _, p := range v.Pieces {
		c.Text += p.Text
		if q.text.Logprobs != nil && p.Token >= 0 {
			if c.Logprobs == nil {
				c.Logprobs = &logprobs{}
			}
			c.Logprobs.add(l, p, c.offset)
		}
		c.offset += utf8.RuneCountInString(p.Text)
	}
	if v.Finish != "" {
		c.Finish = &v.Finish
	}
}

func (x *logprobs) add(l *inference.Language, p inference.Piece, offset int) {
	own := tokenText(l, p.Token)
	var top map[string]float64 // null for a first token, which follows nothing
	if p.Logprob != nil {
		top = map[string]float64{own: *p.Logprob}
		for _, t := range p.Top {
			top[tokenText(l, t.Token)] = t.Logprob
		}
	}
	x.Tokens, x.Logprobs = append(x.Tokens, own), append(x.Logprobs, p.Logprob)
	x.Top, x.Offsets = append(x.Top, top), append(x.Offsets, offset)
}

// tokenText returns the text of a single token: bytes that are not text are written as
// OpenAI does.
func tokenText(l *inference.Language, id int32) string {
	raw := l.Tokenizer.TokenBytes(id)
	if utf8.Valid(raw) {
		return string(raw)
	}
	var s strings.Builder
	s.WriteString("bytes:")
	for _, b := range raw {
		fmt.Fprintf(&s, `\x%02x`, b)
	}
	return s.String()
}
