// Package openai serves a language model with OpenAI's API: completions, whole or as a
// stream, and the list of models. Unsupported fields are refused by name.
package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
	"github.com/snug-ml/snug/internal/size"
)

// Service completes texts with an engine:
//
//	POST /v1/completions
//	GET  /v1/models
//	GET  /v1/models/NAME
type Service struct {
	engine  *inference.Engine
	name    string
	opt     serve.Options
	created int64
	// decoding is held while files are decoded: only one request at a time holds pixels.
	decoding sync.Mutex
}

// New serves an engine, which it then owns, as a model with a name.
func New(e *inference.Engine, name string, opt serve.Options) *Service {
	return &Service{engine: e, name: name, opt: opt, created: time.Now().Unix()}
}

const modelsPath = "/v1/models"

// Routes implements serve.Service.
func (s *Service) Routes() []serve.Route {
	return []serve.Route{
		{Method: http.MethodPost, Path: "/v1/completions", Do: s.complete},
		{Method: http.MethodGet, Path: modelsPath, Do: s.models},
		{Method: http.MethodGet, Path: modelsPath + "/", Do: s.oneModel},
	}
}

// Ready implements serve.Service.
func (s *Service) Ready() (lines []string, fields map[string]any) {
	p := s.engine.Plan
	line := fmt.Sprintf("%s at once of up to %s each: %v planned, of which %v for the key-value cache", size.Of(p.Rows, "text"), size.Of(p.Context, "token"), size.Bytes(p.Total), size.Bytes(p.Cache))
	if p.Capacity > 0 {
		line += fmt.Sprintf("; %v are available", size.Bytes(p.Capacity))
	}
	return []string{fmt.Sprintf("model %q", s.name), line}, map[string]any{"model": s.name, "plan": p}
}

// Health implements serve.Service.
func (s *Service) Health() map[string]any {
	texts, tokens, steps, running, waiting := s.engine.Counts()
	return map[string]any{"model": s.name, "rows": s.engine.Plan.Rows, "texts": texts, "tokens": tokens, "steps": steps, "running": running, "waiting": waiting}
}

// Close implements serve.Service.
func (s *Service) Close() error { return s.engine.Close() }

// kinds are the types of problems, by status.
var kinds = map[int]string{
	http.StatusTooManyRequests: "rate_limit_error", http.StatusServiceUnavailable: "server_error",
	http.StatusInternalServerError: "server_error", http.StatusGatewayTimeout: "timeout_error",
}

// Problem implements serve.Service.
func (s *Service) Problem(p *serve.Problem) any {
	kind, ok := kinds[p.Status]
	if !ok {
		kind = "invalid_request_error"
	}
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{"message": p.Message, "type": kind, "param": null(p.Param), "code": null(p.Code)}}
}

func (s *Service) about() map[string]any {
	return map[string]any{"id": s.name, "object": "model", "created": s.created, "owned_by": "snug"}
}

func (s *Service) models(w http.ResponseWriter, _ *http.Request) error {
	return serve.Reply(w, map[string]any{"object": "list", "data": []any{s.about()}})
}

func (s *Service) oneModel(w http.ResponseWriter, r *http.Request) error {
	if name := strings.TrimPrefix(r.URL.Path, modelsPath+"/"); name != s.name {
		return s.unknown(name)
	}
	return serve.Reply(w, s.about())
}

func (s *Service) complete(w http.ResponseWriter, r *http.Request) error {
	raw, err := serve.Body(w, r, s.opt.MaxBody)
	if err != nil {
		return err
	}
	q, err := s.parse(raw)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.opt.Timeout)
	defer cancel() // which frees the rows of a client that disconnected
	events, err := s.engine.Write(ctx, q.texts())
	if err != nil {
		return s.refused(err)
	}
	c := &completion{
		ID: fmt.Sprintf("cmpl-%016x%08x", rand.Uint64(), rand.Uint32()), Object: "text_completion", Created: time.Now().Unix(), Model: s.name,
	}
	if q.stream {
		return s.stream(w, q, c, events)
	}
	for i := range len(q.prompts) * q.n {
		c.Choices = append(c.Choices, newChoice(q, i))
	}
	c.Usage = q.usageOf()
	for v := range events {
		if v.Err != nil {
			return s.refused(v.Err)
		}
		c.Choices[v.Text].add(s.engine.Language, q, v)
		c.Usage.wrote(v)
	}
	return serve.Reply(w, c)
}

// refused converts the reason why there is no text.
func (s *Service) refused(err error) error {
	switch {
	case errors.Is(err, inference.ErrBusy):
		return &serve.Problem{Status: http.StatusTooManyRequests, Message: "overloaded: " + err.Error(), Code: "rate_limit_exceeded"}
	case errors.Is(err, inference.ErrStopping):
		return &serve.Problem{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return &serve.Problem{Status: http.StatusGatewayTimeout, Message: fmt.Sprintf("no result within %v", s.opt.Timeout), Code: "timeout"}
	}
	return err
}

// stream answers with an event for each piece of text.
func (s *Service) stream(w http.ResponseWriter, q *request, c *completion, events <-chan inference.TextEvent) error {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	send := func(v any) error {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", raw); err != nil {
			return nil // the client disconnected, and its context tells the engine
		}
		return flush()
	}
	choices := make([]*choice, len(q.prompts)*q.n)
	usage := q.usageOf()
	for i := range choices {
		choices[i] = newChoice(q, i)
		if choices[i].Text != "" { // the prompt
			c.Choices = []*choice{choices[i]}
			if err := send(c); err != nil {
				return nil
			}
		}
	}
	for v := range events {
		if v.Err != nil {
			var p *serve.Problem
			if !errors.As(s.refused(v.Err), &p) {
				p = serve.Problemf(http.StatusInternalServerError, "%v", v.Err)
			}
			_ = send(s.Problem(p))
			return &serve.Told{Err: v.Err} // the status has been sent
		}
		x := choices[v.Text]
		x.Text, x.Logprobs = "", nil
		x.add(s.engine.Language, q, v)
		usage.wrote(v)
		c.Choices = []*choice{x}
		if err := send(c); err != nil {
			return nil
		}
	}
	if q.usage {
		c.Choices, c.Usage = []*choice{}, usage
		if err := send(c); err != nil {
			return nil
		}
	}
	_, _ = fmt.Fprint(w, "data: [DONE]\n\n")
	return nil
}
