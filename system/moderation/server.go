package moderation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// ServerOptions bound what a server does for a request.
type ServerOptions struct {
	// Token, when set, must come with every request but /healthz, as
	// "Authorization: Bearer TOKEN".
	Token string
	// MaxBody is the size of a request in bytes, MaxText that of a text, and
	// MaxTexts the number of texts of a batch.
	MaxBody  int64
	MaxText  int
	MaxTexts int
	// Timeout is the time that a request may wait and be computed.
	Timeout time.Duration
	// Waiting is how many requests may wait; further ones are refused.
	Waiting int
}

// DefaultServerOptions are generous for comments and tight for abuse.
func DefaultServerOptions() ServerOptions {
	return ServerOptions{MaxBody: 1 << 20, MaxText: 20_000, MaxTexts: 256, Timeout: 10 * time.Second, Waiting: 512}
}

// Server answers whether texts are to be flagged:
//
//	POST /moderate        {"text": "...", "threshold": 0.7}     -> Answer
//	POST /moderate/batch  {"texts": ["..."], "threshold": 0.7}  -> {"results": [Answer], "latency_ms": ...}
//	GET  /healthz
//
// The threshold may be left out: then it is the run's. Errors are
// {"error": "..."}. Requests that come at the same time are computed together.
type Server struct {
	k      *Classifier
	opt    ServerOptions
	batch  *batcher
	routes map[string]route
	began  time.Time
}

// route is what an address does.
type route struct {
	method string
	do     http.HandlerFunc
}

// NewServer serves a classifier, which it takes over. Close it.
func NewServer(k *Classifier, opt ServerOptions) *Server {
	s := &Server{k: k, opt: opt, batch: newBatcher(k, opt.Waiting), began: time.Now()}
	s.routes = map[string]route{
		"/moderate":       {http.MethodPost, s.one},
		"/moderate/batch": {http.MethodPost, s.many},
		healthPath:        {http.MethodGet, s.health},
	}
	return s
}

// Close answers what waits, then frees the model.
func (s *Server) Close() error {
	s.batch.close()
	return s.k.Close()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if s.opt.Token == "" && !local(r.Host) {
		fail(w, http.StatusForbidden, fmt.Sprintf("Host is %q: without a token requests must be for localhost or 127.0.0.1", r.Host))
		return
	}
	if r.URL.Path != healthPath && !s.allowed(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="snug"`)
		fail(w, http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN")
		return
	}
	to, ok := s.routes[r.URL.Path]
	switch {
	case !ok:
		fail(w, http.StatusNotFound, fmt.Sprintf("no such address: %s; there are %s", r.URL.Path, strings.Join(slices.Sorted(maps.Keys(s.routes)), ", ")))
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		w.Header().Set("Allow", to.method)
		fail(w, http.StatusMethodNotAllowed, fmt.Sprintf("%s: want %s, got %s", r.URL.Path, to.method, r.Method))
	default:
		to.do(w, r)
	}
}

const healthPath = "/healthz"

// local reports whether a request names this machine. A web page that has its
// own name lead here (DNS rebinding) names itself.
func local(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.IsLoopback()
}

// allowed compares the token in constant time.
func (s *Server) allowed(r *http.Request) bool {
	if s.opt.Token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.opt.Token))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// answer is what is said of a text. The name of the probability is that of the
// class, so it is written by hand.
type answer struct {
	label, positive string
	probability     float64
	threshold       float64
	cut             bool
	latency         *float64 // milliseconds
}

// MarshalJSON implements json.Marshaler.
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

func (s *Server) one(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	var in struct {
		Text      *string  `json:"text"`
		Threshold *float64 `json:"threshold"`
	}
	if !s.read(w, r, &in) {
		return
	}
	if in.Text == nil {
		fail(w, http.StatusBadRequest, `want {"text": "..."}`)
		return
	}
	if got := s.decide(w, r, []string{*in.Text}, in.Threshold); got != nil {
		ms := milliseconds(began)
		got[0].latency = &ms
		reply(w, http.StatusOK, got[0])
	}
}

func (s *Server) many(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	var in struct {
		Texts     []string `json:"texts"`
		Threshold *float64 `json:"threshold"`
	}
	if !s.read(w, r, &in) {
		return
	}
	switch n := len(in.Texts); {
	case n == 0:
		fail(w, http.StatusBadRequest, `want {"texts": ["...", ...]}`)
		return
	case n > s.opt.MaxTexts:
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("%d texts, at most %d in a batch", n, s.opt.MaxTexts))
		return
	}
	if got := s.decide(w, r, in.Texts, in.Threshold); got != nil {
		reply(w, http.StatusOK, map[string]any{"results": got, "latency_ms": milliseconds(began)})
	}
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since).Microseconds()) / 1000 }

// read decodes the body of a request, or answers what is wrong with it. That
// it must be declared as JSON keeps other sites' forms out of a browser's reach.
func (s *Server) read(w http.ResponseWriter, r *http.Request, into any) bool {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		fail(w, http.StatusUnsupportedMediaType, "want Content-Type: application/json")
		return false
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, s.opt.MaxBody))
	if err == nil {
		err = wholeText(raw)
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		if err = d.Decode(into); err == nil {
			if _, more := d.Token(); !errors.Is(more, io.EOF) {
				err = errors.New("more follows the object")
			}
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is longer than %d bytes", s.opt.MaxBody))
	case err != nil:
		fail(w, http.StatusBadRequest, "not the JSON that was expected: "+err.Error())
	}
	return err == nil
}

// surrogates are escapes of halves of characters, and pairs of them, which are whole.
var surrogates = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// wholeText refuses what the decoder of the standard library would replace by
// U+FFFD without a word: the answer would be for another text.
func wholeText(raw []byte) error {
	if !utf8.Valid(raw) {
		at := 0
		for at < len(raw) {
			r, n := utf8.DecodeRune(raw[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return fmt.Errorf("invalid UTF-8 at byte %d (0x%02x)", at, raw[at])
	}
	for _, m := range surrogates.FindAllIndex(raw, -1) {
		if m[1]-m[0] == len(`\ud800`) {
			return fmt.Errorf("half a character at byte %d: %s", m[0], raw[m[0]:m[1]])
		}
	}
	return nil
}

// decide answers for texts, or answers what is wrong and gives nil.
func (s *Server) decide(w http.ResponseWriter, r *http.Request, texts []string, threshold *float64) []answer {
	v := &s.k.Verdict
	limit := v.Threshold
	if threshold != nil {
		limit = *threshold
	}
	if !(limit >= 0 && limit <= 1) {
		fail(w, http.StatusBadRequest, fmt.Sprintf("threshold %v: want a probability from 0 to 1", limit))
		return nil
	}
	encoded := make([]*Encoded, len(texts))
	for i, text := range texts {
		if len(text) > s.opt.MaxText {
			fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("text %d has %d bytes, at most %d", i+1, len(text), s.opt.MaxText))
			return nil
		}
		var err error
		if encoded[i], err = s.k.Encode(text); err != nil {
			fail(w, http.StatusUnprocessableEntity, fmt.Sprintf("text %d: %v", i+1, err))
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.opt.Timeout)
	defer cancel()
	probs, err := s.batch.classify(ctx, encoded)
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errStopping):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, err.Error())
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusGatewayTimeout, fmt.Sprintf("not computed within %v", s.opt.Timeout))
		return nil
	case errors.Is(err, context.Canceled):
		return nil // the client went away
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
		return nil
	}
	out := make([]answer, len(probs))
	for i, p := range probs {
		out[i] = answer{label: s.k.Label(p, limit), positive: v.Positive, probability: p, threshold: limit, cut: encoded[i].Cut}
	}
	return out
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"status": "ok", "update": s.k.Update, "threshold": s.k.Verdict.Threshold, "temperature": s.k.Verdict.Temperature,
		"uptime_seconds": time.Since(s.began).Seconds(), "texts": s.batch.texts.Load(), "batches": s.batch.batches.Load(),
	})
}

func fail(w http.ResponseWriter, status int, message string) {
	reply(w, status, map[string]string{"error": message})
}

func reply(w http.ResponseWriter, status int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		status, raw = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // a client that is gone cannot be told
}
