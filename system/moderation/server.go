package moderation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
)

// service answers whether texts are to be flagged:
//
//	POST /moderate        {"text": "...", "threshold": 0.7}     -> answer
//	POST /moderate/batch  {"texts": ["..."], "threshold": 0.7}  -> {"results": [answer], "latency_ms": ...}
//
// The threshold is optional and defaults to the run's. Errors are {"error": "..."}. Concurrent requests
// are computed together.
type service struct {
	k     *Classifier
	opt   serve.Options
	batch *inference.Batcher[*Encoded, float64]
}

// gather limits the number of texts computed before answers are returned.
const gather = 64

// newService serves a classifier, which it owns from then on.
func newService(k *Classifier, opt serve.Options) *service {
	return &service{k, opt, inference.NewBatcher(opt.Waiting, gather, func(texts []*Encoded) ([]float64, error) {
		return k.Probabilities(context.Background(), texts)
	})}
}

// Routes implements [serve.Service].
func (s *service) Routes() []serve.Route {
	return []serve.Route{{Method: http.MethodPost, Path: "/moderate", Do: s.one}, {Method: http.MethodPost, Path: "/moderate/batch", Do: s.many}}
}

// Ready implements [serve.Service].
func (s *service) Ready() (lines []string, fields map[string]any) {
	lines = []string{fmt.Sprintf("threshold %.4f", s.k.DecisionRule.Threshold)}
	if remark := s.k.Remark(); remark != "" {
		lines = append(lines, remark)
	}
	return lines, map[string]any{"threshold": s.k.DecisionRule.Threshold, "decided": s.k.Decided()}
}

// Problem implements [serve.Service].
func (s *service) Problem(p *serve.Problem) any { return map[string]string{"error": p.Message} }

// Health implements [serve.Service].
func (s *service) Health() map[string]any {
	texts, batches := s.batch.Counts()
	return map[string]any{
		"update": s.k.Update, "threshold": s.k.DecisionRule.Threshold, "temperature": s.k.DecisionRule.Temperature,
		"texts": texts, "batches": batches,
	}
}

// Close implements [serve.Service].
func (s *service) Close() error {
	s.batch.Close()
	return s.k.Close()
}

// answer is the decision on a text. The name of the probability depends on the class, which is why
// MarshalJSON writes it.
type answer struct {
	label, positive string
	probability     float64
	threshold       float64
	cut             bool
	latency         *float64 // milliseconds
}

// MarshalJSON implements [json.Marshaler].
func (a answer) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"label": a.label, "prob_" + a.positive: a.probability, "threshold": a.threshold}
	if a.cut {
		fields["cut"] = true
	}
	if a.latency != nil {
		fields["latency_ms"] = *a.latency
	}
	return json.Marshal(fields)
}

func (s *service) one(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	var in struct {
		Text      *string  `json:"text"`
		Threshold *float64 `json:"threshold"`
	}
	if err := s.read(w, r, &in); err != nil {
		return err
	}
	if in.Text == nil {
		return serve.Problemf(http.StatusBadRequest, `want {"text": "..."}`)
	}
	got, err := s.decide(r.Context(), []string{*in.Text}, in.Threshold)
	if err != nil {
		return err
	}
	ms := milliseconds(began)
	got[0].latency = &ms
	return serve.Reply(w, got[0])
}

func (s *service) many(w http.ResponseWriter, r *http.Request) error {
	began := time.Now()
	var in struct {
		Texts     []string `json:"texts"`
		Threshold *float64 `json:"threshold"`
	}
	if err := s.read(w, r, &in); err != nil {
		return err
	}
	switch n := len(in.Texts); {
	case n == 0:
		return serve.Problemf(http.StatusBadRequest, `want {"texts": ["...", ...]}`)
	case n > s.opt.MaxTexts:
		return serve.Problemf(http.StatusRequestEntityTooLarge, "%d texts, at most %d in a batch", n, s.opt.MaxTexts)
	}
	got, err := s.decide(r.Context(), in.Texts, in.Threshold)
	if err != nil {
		return err
	}
	return serve.Reply(w, map[string]any{"results": got, "latency_ms": milliseconds(began)})
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// read decodes the body of a request.
func (s *service) read(w http.ResponseWriter, r *http.Request, into any) error {
	raw, err := serve.Body(w, r, s.opt.MaxBody)
	if err != nil {
		return err
	}
	return serve.Decode(raw, into)
}

// decide returns the answers for texts.
func (s *service) decide(ctx context.Context, texts []string, threshold *float64) ([]answer, error) {
	v := &s.k.DecisionRule
	limit := v.Threshold
	if threshold != nil {
		limit = *threshold
	}
	if !(limit >= 0 && limit <= 1) {
		return nil, serve.Problemf(http.StatusBadRequest, "threshold %v: want a probability from 0 to 1", limit)
	}
	encoded := make([]*Encoded, len(texts))
	for i, text := range texts {
		if len(text) > s.opt.MaxText {
			return nil, serve.Problemf(http.StatusRequestEntityTooLarge, "text %d has %d bytes, at most %d", i+1, len(text), s.opt.MaxText)
		}
		var err error
		if encoded[i], err = s.k.Encode(text); err != nil {
			return nil, serve.Problemf(http.StatusUnprocessableEntity, "text %d: %v", i+1, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.opt.Timeout)
	defer cancel()
	probs, err := s.batch.Do(ctx, encoded)
	switch {
	case errors.Is(err, inference.ErrBusy), errors.Is(err, inference.ErrStopping):
		return nil, serve.Problemf(http.StatusServiceUnavailable, "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, serve.Problemf(http.StatusGatewayTimeout, "no result within %v", s.opt.Timeout)
	case err != nil:
		return nil, err
	}
	out := make([]answer, len(probs))
	for i, p := range probs {
		out[i] = answer{label: s.k.Label(p, limit), positive: v.Positive, probability: p, threshold: limit, cut: encoded[i].Cut}
	}
	return out, nil
}
