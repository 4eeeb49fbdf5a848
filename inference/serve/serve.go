// Package serve answers requests for a model over HTTP: who may ask, how much, and
// what happens when a server is overloaded or shuts down. The requests and answers
// themselves are a [Service]'s.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/snug-ml/snug/internal/access"
)

// Options bound what a server does for a request.
type Options struct {
	// Token, when set, must come with every request except /healthz, as "Authorization:
	// Bearer TOKEN".
	Token string
	// MaxBody is the size of a request in bytes, MaxText that of a text, and
	// MaxTexts the number of texts of a request.
	MaxBody  int64
	MaxText  int
	MaxTexts int
	// Timeout bounds the time of a request, waiting included.
	Timeout time.Duration
	// Waiting is how many requests may wait; further ones are refused.
	Waiting int
	// Lost reports whether an error means that the device was lost, after which no request can be answered; nil:
	// no error does.
	Lost func(error) bool
}

// Told is an error that the client has been told in the course of an answer.
type Told struct{ Err error }

func (e *Told) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *Told) Unwrap() error { return e.Err }

// Service answers the requests.
type Service interface {
	Routes() []Route
	// Health returns what /healthz reports in addition to being well.
	Health() map[string]any
	// Ready returns what is printed when the server starts, for people and for programs.
	Ready() (lines []string, fields map[string]any)
	// Problem returns the body of an answer that reports a problem.
	Problem(p *Problem) any
	// Close answers accepted requests and frees the model.
	Close() error
}

// Route is the handler of a path.
type Route struct {
	// Path ends in a slash if it covers all paths below it.
	Method, Path string
	// Do answers the request; its error is answered as a [Problem], an error of another
	// type as one of the server.
	Do func(w http.ResponseWriter, r *http.Request) error
}

// Problem is an answer that reports a problem.
type Problem struct {
	Status  int
	Message string
	// Param is the field of the request that is at fault, Code identifies the problem to
	// programs; either may be empty.
	Param, Code string
}

func (p *Problem) Error() string { return p.Message }

// Problemf returns a problem with a status.
func Problemf(status int, format string, args ...any) *Problem {
	return &Problem{Status: status, Message: fmt.Sprintf(format, args...)}
}

const healthPath = "/healthz"

// Server answers requests for a service. Every answer is JSON, or events of JSON.
type Server struct {
	service Service
	opt     Options
	routes  []Route
	began   time.Time

	mu       sync.Mutex
	draining bool
	why      string // no request can be answered; empty: they can
	running  int
	idle     chan struct{} // closed once nothing runs in a draining server
	lost     chan error    // has the error by which the device was lost
}

// New serves a service, which it then owns. The caller must close the server.
func New(service Service, opt Options) *Server {
	s := &Server{service: service, opt: opt, began: time.Now(), idle: make(chan struct{}), lost: make(chan error, 1)}
	s.routes = append(service.Routes(), Route{http.MethodGet, healthPath, s.health})
	slices.SortFunc(s.routes, func(a, b Route) int { return strings.Compare(a.Path, b.Path) })
	return s
}

// Close answers accepted requests, then frees the model.
func (s *Server) Close() error { return s.service.Close() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	do, err := s.admit(w, r)
	if err == nil {
		defer s.leave()
		err = do(w, r)
	}
	err = s.checked(err)
	if told := (*Told)(nil); err != nil && !errors.As(err, &told) {
		s.fail(w, err)
	}
}

// checked ends the server if an error means that the device was lost: another process may be able to use it, or
// what restarts this one may choose another device.
func (s *Server) checked(err error) error {
	if err == nil || s.opt.Lost == nil || !s.opt.Lost(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == "" {
		s.why = "the server has lost its device and ends"
		s.lost <- err
	}
	if told := (*Told)(nil); errors.As(err, &told) {
		return err
	}
	return Problemf(http.StatusServiceUnavailable, "%s: %v", s.why, err)
}

// admit finds the route of a request and counts it as running, or returns why it may not
// run.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (do func(http.ResponseWriter, *http.Request) error, err error) {
	if s.opt.Token == "" && !access.Local(r.Host) {
		return nil, Problemf(http.StatusForbidden, "Host is %q: without a token requests must be for localhost or 127.0.0.1", r.Host)
	}
	if s.opt.Token != "" && r.URL.Path != healthPath && !access.Bearer(r, s.opt.Token) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="snug"`)
		return nil, &Problem{Status: http.StatusUnauthorized, Message: "want the header Authorization: Bearer TOKEN", Code: "invalid_api_key"}
	}
	i := slices.IndexFunc(s.routes, func(x Route) bool {
		return x.Path == r.URL.Path || strings.HasSuffix(x.Path, "/") && len(r.URL.Path) > len(x.Path) && strings.HasPrefix(r.URL.Path, x.Path)
	})
	if i < 0 {
		var paths []string
		for _, x := range s.routes {
			paths = append(paths, x.Path)
		}
		return nil, &Problem{Status: http.StatusNotFound, Message: fmt.Sprintf("no such endpoint: %s; the endpoints are %s", r.URL.Path, strings.Join(paths, ", ")), Code: "unknown_url"}
	}
	to := s.routes[i]
	if r.Method != to.Method && (r.Method != http.MethodHead || to.Method != http.MethodGet) {
		w.Header().Set("Allow", to.Method)
		return nil, Problemf(http.StatusMethodNotAllowed, "%s: want %s, got %s", r.URL.Path, to.Method, r.Method)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != "" {
		return nil, Problemf(http.StatusServiceUnavailable, "%s", s.why)
	}
	if s.draining {
		return nil, Problemf(http.StatusServiceUnavailable, "the server is shutting down")
	}
	s.running++
	return to.Do, nil
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running--; s.running == 0 && s.draining {
		close(s.idle)
	}
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) error {
	fields := s.service.Health()
	fields["status"], fields["uptime_seconds"] = "ok", time.Since(s.began).Seconds()
	return Reply(w, fields)
}

// fail answers with an error. A temporary one says when to try again.
func (s *Server) fail(w http.ResponseWriter, err error) {
	var p *Problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, context.Canceled): // the client may still read
		p = Problemf(http.StatusBadRequest, "the client closed the connection before the answer: keep it open until then")
	default:
		p = Problemf(http.StatusInternalServerError, "%v", err)
	}
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	_ = reply(w, p.Status, s.service.Problem(p)) // a client that is gone cannot be reached
}

// Reply answers with a value as JSON.
func Reply(w http.ResponseWriter, v any) error { return reply(w, http.StatusOK, v) }

func reply(w http.ResponseWriter, status int, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // likewise
	return nil
}

// Run serves on l until ctx ends, then calls ending, refuses further requests, and gives
// accepted ones the time grace to finish. It ends likewise when the device is lost, with the
// error that says so.
func (s *Server) Run(ctx context.Context, l net.Listener, grace time.Duration, ending func()) (err error) {
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: min(s.opt.Timeout, 10*time.Second),
		WriteTimeout: s.opt.Timeout + 5*time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case lost := <-s.lost:
		defer func() { err = errors.Join(lost, err) }()
	case <-ctx.Done():
		ending()
	}
	s.mu.Lock()
	if s.draining = true; s.running == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	select {
	case <-s.idle:
		return h.Shutdown(ctx)
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return errors.Join(fmt.Errorf("%d requests were not finished within %v", s.running, grace), h.Close())
	}
}
