package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"

	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
	"github.com/snug-ml/snug/internal/few"
)

// Defaults and bounds of the API.
const (
	defaultTokens = 16
	mostStops     = 4
	mostLogprobs  = 5
	mostHeat      = 2.0
)

// request is a requested completion.
type request struct {
	prompts []prompt
	n       int
	echo    bool
	stream  bool
	usage   bool // at the end of a stream
	text    inference.TextRequest
}

// prompt is a text to continue.
type prompt struct {
	text string
	ids  []int32
}

// fields are the settings of a request by name.
type fields map[string]json.RawMessage

func invalid(param, format string, args ...any) *serve.Problem {
	return &serve.Problem{Status: http.StatusBadRequest, Message: param + ": " + fmt.Sprintf(format, args...), Param: param, Code: "invalid_value"}
}

// take reads a field into a value, which keeps its default if the field is missing or
// null.
func (f fields) take(name, want string, into any) error {
	raw, ok := f[name]
	delete(f, name)
	if !ok || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return invalid(name, "want %s, got %s", want, few.Text(string(raw), 60))
	}
	return nil
}

// asksNothing reports whether the value of a field that this server does not support
// requests what the server does anyway.
func (q *request) asksNothing(name string, raw json.RawMessage) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	switch x := v.(type) {
	case nil:
		return true
	case string:
		return x == ""
	case map[string]any:
		return len(x) == 0
	case float64:
		return x == 0 && name != bestOf || name == bestOf && x == float64(q.n)
	}
	return false
}

const bestOf = "best_of"

// unsupported are the fields of the API that this server does not support.
var unsupported = []string{"suffix", bestOf, "logit_bias", "presence_penalty", "frequency_penalty"}

// parse reads a request. Every field is used or refused by name.
func (s *Service) parse(raw []byte) (*request, error) {
	var f fields
	if err := serve.Decode(raw, &f); err != nil {
		return nil, err
	}
	if err := s.model(f); err != nil {
		return nil, err
	}
	q := &request{n: 1}
	q.text.Tokens, q.text.Temperature, q.text.TopP = defaultTokens, 1, 1
	var user string
	var seed *int64
	for _, x := range []struct {
		name, want string
		into       any
	}{
		{"n", "a whole number", &q.n}, {"max_tokens", "a whole number", &q.text.Tokens}, {"temperature", "a number", &q.text.Temperature},
		{"top_p", "a number", &q.text.TopP}, {"seed", "a whole number", &seed}, {"logprobs", "a whole number", &q.text.Logprobs},
		{"echo", "true or false", &q.echo}, {"stream", "true or false", &q.stream}, {"user", "a string", &user},
	} {
		if err := f.take(x.name, x.want, x.into); err != nil {
			return nil, err
		}
	}
	q.text.Seed = rand.Uint64()
	if seed != nil {
		q.text.Seed = uint64(*seed)
	}
	for _, read := range []func(fields, *request) error{s.prompts, stops, streamOptions, s.media} {
		if err := read(f, q); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		switch {
		case !slices.Contains(unsupported, name):
			return nil, &serve.Problem{Status: http.StatusBadRequest, Message: "there is no parameter " + name, Param: name, Code: "unknown_parameter"}
		case !q.asksNothing(name, f[name]):
			return nil, &serve.Problem{Status: http.StatusBadRequest, Message: name + " is not supported", Param: name, Code: "unsupported_parameter"}
		}
	}
	return q, s.check(q)
}

// model checks the name of the model.
func (s *Service) model(f fields) error {
	var name string
	if err := f.take("model", "a string", &name); err != nil {
		return err
	}
	switch name {
	case "":
		return &serve.Problem{Status: http.StatusBadRequest, Message: "you must provide a model: " + s.name, Param: "model", Code: "missing_required_parameter"}
	case s.name:
		return nil
	}
	return s.unknown(name)
}

func (s *Service) unknown(name string) error {
	return &serve.Problem{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no model %q; this server has %q", name, s.name), Param: "model", Code: "model_not_found"}
}

// as decodes a value of a type; ok is false if it has another type.
func as[T any](raw json.RawMessage) (x T, ok bool) {
	if err := json.Unmarshal(raw, &x); err != nil {
		return *new(T), false
	}
	return x, true
}

// prompts reads a text, several texts, the token ids of a text or of several.
func (s *Service) prompts(f fields, q *request) error {
	raw := f["prompt"]
	delete(f, "prompt")
	texts, isTexts := as[[]string](raw)
	var lists [][]int32
	if text, ok := as[*string](raw); len(raw) == 0 || ok {
		if text == nil {
			text = new(string) // start of a document
		}
		texts = []string{*text}
	} else if ids, ok := as[[]int32](raw); ok && !isTexts {
		lists = [][]int32{ids}
	} else if lists, ok = as[[][]int32](raw); !ok && !isTexts {
		return invalid("prompt", "want a string, an array of strings, token ids or an array of those, got %s", few.Text(string(raw), 60))
	}
	vocab := int32(s.engine.Language.Tokenizer.VocabSize())
	for _, text := range texts {
		if len(text) > s.opt.MaxText {
			return &serve.Problem{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("a prompt has %d bytes, at most %d", len(text), s.opt.MaxText), Param: "prompt", Code: "string_above_max_length"}
		}
		ids, err := s.engine.Language.Encode(text)
		if err != nil {
			return invalid("prompt", "%v", err)
		}
		q.prompts = append(q.prompts, prompt{text, ids})
	}
	for _, ids := range lists {
		for i, id := range ids {
			if id < 0 || id >= vocab {
				return invalid("prompt", "token %d is %d, want 0 to %d", i, id, vocab-1)
			}
		}
		q.prompts = append(q.prompts, prompt{s.engine.Language.Tokenizer.Decode(ids, false), ids})
	}
	if len(q.prompts) == 0 || slices.ContainsFunc(q.prompts, func(p prompt) bool { return len(p.ids) == 0 }) {
		return invalid("prompt", "it is empty")
	}
	return nil
}

func stops(f fields, q *request) error {
	raw := f["stop"]
	delete(f, "stop")
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if one, ok := as[string](raw); ok {
		q.text.Stop = []string{one}
	} else if q.text.Stop, ok = as[[]string](raw); !ok {
		return invalid("stop", "want a string or an array of strings, got %s", few.Text(string(raw), 60))
	}
	if len(q.text.Stop) > mostStops {
		return invalid("stop", "%d strings, at most %d", len(q.text.Stop), mostStops)
	}
	if slices.Contains(q.text.Stop, "") {
		return invalid("stop", "an empty string ends every text before it begins")
	}
	return nil
}

func streamOptions(f fields, q *request) error {
	const name = "stream_options"
	var o fields
	if err := f.take(name, "an object", &o); err != nil {
		return err
	}
	if o != nil && !q.stream {
		return invalid(name, "it needs stream: true")
	}
	if err := o.take("include_usage", "true or false", &q.usage); err != nil {
		return err
	}
	for _, other := range slices.Sorted(maps.Keys(o)) {
		return &serve.Problem{Status: http.StatusBadRequest, Message: fmt.Sprintf("there is no parameter %s.%s", name, other), Param: name + "." + other, Code: "unknown_parameter"}
	}
	return nil
}

// check compares the values with their bounds and the model's.
func (s *Service) check(q *request) error {
	t := &q.text
	switch {
	case q.n < 1:
		return invalid("n", "want at least 1, got %d", q.n)
	case len(q.prompts)*q.n > s.opt.MaxTexts:
		return invalid("n", "%d prompts with %d choices each, at most %d texts in a request", len(q.prompts), q.n, s.opt.MaxTexts)
	case t.Tokens < 0:
		return invalid("max_tokens", "want at least 0, got %d", t.Tokens)
	case !(t.Temperature >= 0 && t.Temperature <= mostHeat):
		return invalid("temperature", "want a number from 0 to %v, got %v", mostHeat, t.Temperature)
	case !(t.TopP > 0 && t.TopP <= 1):
		return invalid("top_p", "want a number above 0, at most 1, got %v", t.TopP)
	case t.Logprobs != nil && (*t.Logprobs < 0 || *t.Logprobs > mostLogprobs):
		return invalid("logprobs", "want a number from 0 to %d, got %d", mostLogprobs, *t.Logprobs)
	}
	t.ScorePrompt = q.echo && t.Logprobs != nil
	context := s.engine.Plan.Context
	for _, p := range q.prompts {
		if n := s.engine.Language.Length(p.ids, t.Seen); n > context-min(t.Tokens, math.MaxInt32) {
			return &serve.Problem{
				Status: http.StatusBadRequest, Param: "prompt", Code: "context_length_exceeded",
				Message: fmt.Sprintf("this model's maximum context length is %d tokens, however you requested %d tokens (%d in your prompt; %d for the completion): reduce one of them", context, n+t.Tokens, n, t.Tokens),
			}
		}
	}
	return nil
}

// texts returns the requests to the engine: the choices of the first prompt, then those
// of the next. Choices of one prompt differ only in their random draws.
func (q *request) texts() (out []inference.TextRequest) {
	for _, p := range q.prompts {
		for choice := range q.n {
			t := q.text
			t.Prompt, t.Choice = p.ids, uint64(choice)
			out = append(out, t)
		}
	}
	return out
}
