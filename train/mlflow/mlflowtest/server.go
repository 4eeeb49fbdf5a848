// Package mlflowtest is an MLflow tracking server for tests. It implements the part of the
// REST API that package mlflow uses, with the limits of MLflow 3.17. tools/mlflow/check.sh
// tests the same with the real server.
package mlflowtest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
)

// Point is a point of a metric.
type Point struct {
	Step, Timestamp int64
	Value           float64
}

// Run is a run on the server.
type Run struct {
	ID, Experiment, Name, Status string
	Start, End                   int64
	Deleted                      bool
	Params, Tags                 map[string]string
	Metrics                      map[string][]Point // in order of arrival
}

// Server is a tracking server.
type Server struct {
	*httptest.Server
	mu          sync.Mutex
	answer      func(w http.ResponseWriter, r *http.Request) (done bool)
	experiments map[string]string // identifiers by name
	runs        []*Run
	requests    map[string]int
	errors      []string
}

// New starts a server, which its Close ends.
func New() *Server {
	s := &Server{experiments: map[string]string{"Default": "0"}, requests: map[string]int{}}
	s.Server = httptest.NewServer(s)
	return s
}

// Answer puts a function in front of the server, which reports whether it has answered;
// nil: none.
func (s *Server) Answer(f func(w http.ResponseWriter, r *http.Request) (done bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// Runs returns copies of what the server has.
func (s *Server) Runs() (list []Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runs {
		c := *r
		c.Params, c.Tags, c.Metrics = maps.Clone(r.Params), maps.Clone(r.Tags), maps.Clone(r.Metrics)
		list = append(list, c)
	}
	return list
}

// Delete marks a run as deleted, as users do on the server's pages.
func (s *Server) Delete(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run(id).Deleted = true
}

// Requests returns how often an endpoint was requested, such as runs/create.
func (s *Server) Requests(endpoint string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[endpoint]
}

// Errors returns the refusals, except for what does not exist.
func (s *Server) Errors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.errors)
}

// refusal is an answer that is not 200.
type refusal struct {
	status int
	code   string
	text   string
}

func invalid(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "INVALID_PARAMETER_VALUE", fmt.Sprintf(format, args...)}
}

func unknown(what string) *refusal {
	return &refusal{http.StatusNotFound, "RESOURCE_DOES_NOT_EXIST", what + " does not exist"}
}

const prefix = "/api/2.0/mlflow/"

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	before := s.answer
	s.mu.Unlock()
	if before == nil || !before(w, r) {
		s.Serve(w, r)
	}
}

// Serve answers a request without the function set by Answer.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out, no := s.serve(r, body)
	w.Header().Set("Content-Type", "application/json")
	if no != nil {
		if no.code != "RESOURCE_DOES_NOT_EXIST" {
			s.errors = append(s.errors, fmt.Sprintf("%s: %s", r.URL.Path, no.text))
		}
		w.WriteHeader(no.status)
		out = map[string]string{"error_code": no.code, "message": no.text}
	}
	_ = json.NewEncoder(w).Encode(out) // the client notices
}

// body is the body of any request.
type body struct {
	Name       string   `json:"name"`
	Experiment string   `json:"experiment_id"`
	RunName    string   `json:"run_name"`
	Start      int64    `json:"start_time"`
	End        int64    `json:"end_time"`
	RunID      string   `json:"run_id"`
	Status     string   `json:"status"`
	Filter     string   `json:"filter"`
	Within     []string `json:"experiment_ids"`
	Tags       []pair   `json:"tags"`
	Params     []pair   `json:"params"`
	Metrics    []metric `json:"metrics"`
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type metric struct {
	Key       string `json:"key"`
	Value     any    `json:"value"`
	Timestamp *int64 `json:"timestamp"`
	Step      int64  `json:"step"`
}

func (s *Server) serve(r *http.Request, raw []byte) (any, *refusal) {
	endpoint := r.URL.Path[min(len(prefix), len(r.URL.Path)):]
	s.requests[endpoint]++
	var in body
	if r.Method == http.MethodPost {
		if r.Header.Get("Content-Type") != "application/json" {
			return nil, invalid("Content-Type is %q", r.Header.Get("Content-Type"))
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			return nil, invalid("%v", err)
		}
	}
	switch r.Method + " " + endpoint {
	case "GET experiments/get-by-name":
		name := r.URL.Query().Get("experiment_name")
		id, ok := s.experiments[name]
		if !ok {
			return nil, unknown("experiment " + name)
		}
		return map[string]any{"experiment": map[string]string{"experiment_id": id, "lifecycle_stage": "active"}}, nil
	case "POST experiments/create":
		if _, ok := s.experiments[in.Name]; ok {
			return nil, &refusal{http.StatusBadRequest, "RESOURCE_ALREADY_EXISTS", "it exists"}
		}
		s.experiments[in.Name] = strconv.Itoa(len(s.experiments))
		return map[string]string{"experiment_id": s.experiments[in.Name]}, nil
	case "GET runs/get":
		if run := s.run(r.URL.Query().Get("run_id")); run != nil {
			return map[string]any{"run": run.shown()}, nil
		}
		return nil, unknown("run")
	case "POST runs/search":
		return s.search(&in)
	case "POST runs/create":
		return s.create(&in)
	case "POST runs/update":
		run := s.run(in.RunID)
		if run == nil {
			return nil, unknown("run")
		}
		if !slices.Contains([]string{"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}, in.Status) {
			return nil, invalid("status %q", in.Status)
		}
		run.Status = in.Status
		if in.End != 0 {
			run.End = in.End
		}
		return map[string]any{}, nil
	case "POST runs/log-batch":
		return map[string]any{}, s.log(&in, len(raw))
	}
	return nil, &refusal{http.StatusNotFound, "", "no such endpoint: " + r.Method + " " + r.URL.Path}
}

func (s *Server) run(id string) *Run {
	for _, r := range s.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

var filter = regexp.MustCompile("^tags\\.`([^`]+)` = '([^']*)'$")

func (s *Server) search(in *body) (any, *refusal) {
	m := filter.FindStringSubmatch(in.Filter)
	if m == nil {
		return nil, invalid("filter %q", in.Filter)
	}
	out := map[string]any{}
	for _, r := range slices.Backward(s.runs) {
		if r.Tags[m[1]] == m[2] && !r.Deleted && slices.Contains(in.Within, r.Experiment) {
			out["runs"] = []any{r.shown()}
			break
		}
	}
	return out, nil
}

func (s *Server) create(in *body) (any, *refusal) {
	if !slices.Contains(slices.Collect(maps.Values(s.experiments)), in.Experiment) {
		return nil, unknown("experiment " + in.Experiment)
	}
	r := &Run{
		ID: fmt.Sprintf("%032x", len(s.runs)+1), Experiment: in.Experiment, Name: in.RunName, Status: "RUNNING", Start: in.Start,
		Params: map[string]string{}, Tags: map[string]string{}, Metrics: map[string][]Point{},
	}
	for _, t := range in.Tags {
		r.Tags[t.Key] = t.Value
	}
	s.runs = append(s.runs, r)
	return map[string]any{"run": r.shown()}, nil
}

// shown returns a run as it appears in answers.
func (r *Run) shown() any {
	stage := "active"
	if r.Deleted {
		stage = "deleted"
	}
	metrics := []any{}
	for _, key := range slices.Sorted(maps.Keys(r.Metrics)) {
		last := slices.MaxFunc(r.Metrics[key], func(a, b Point) int {
			if a.Step != b.Step {
				return int(a.Step - b.Step)
			}
			return int(a.Timestamp - b.Timestamp)
		})
		metrics = append(metrics, map[string]any{"key": key, "step": last.Step, "timestamp": last.Timestamp})
	}
	return map[string]any{
		"info": map[string]any{"run_id": r.ID, "experiment_id": r.Experiment, "status": r.Status, "lifecycle_stage": stage, "run_name": r.Name},
		"data": map[string]any{"metrics": metrics, "params": pairs(r.Params), "tags": pairs(r.Tags)},
	}
}

func pairs(m map[string]string) []pair {
	list := []pair{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, pair{k, m[k]})
	}
	return list
}

// Limits of MLflow 3.17: mlflow/utils/validation.py.
const (
	maxMetrics, maxParams, maxTags, maxAll = 1000, 100, 100, 1000
	maxKey, maxParam, maxTag               = 250, 6000, 8000
	maxBytes                               = 1_000_000
)

var validKey = regexp.MustCompile(`^[/\pL\pN_.\- :]*$`)

func badKey(key string) bool {
	return key == "" || !validKey.MatchString(key) || path.Clean(key) != key || key[0] == '/' || key[0] == '.' && (key == "." || key == "..") || len([]rune(key)) > maxKey
}

func (s *Server) log(in *body, size int) *refusal {
	run := s.run(in.RunID)
	switch {
	case run == nil:
		return unknown("run " + in.RunID)
	case run.Deleted:
		return invalid("the run %s must be in the 'active' state", in.RunID)
	case size > maxBytes:
		return invalid("a request of %d bytes", size)
	case len(in.Metrics) > maxMetrics || len(in.Params) > maxParams || len(in.Tags) > maxTags || len(in.Metrics)+len(in.Params)+len(in.Tags) > maxAll:
		return invalid("a batch of %d metrics, %d params and %d tags", len(in.Metrics), len(in.Params), len(in.Tags))
	}
	for _, p := range in.Params {
		if badKey(p.Key) || len([]rune(p.Value)) > maxParam {
			return invalid("param %q of %d characters", p.Key, len([]rune(p.Value)))
		}
		if was, ok := run.Params[p.Key]; ok && was != p.Value {
			return invalid("Changing param values is not allowed. Param with key=%q was already logged with value=%q", p.Key, was)
		}
		run.Params[p.Key] = p.Value
	}
	for _, t := range in.Tags {
		if badKey(t.Key) || len([]rune(t.Value)) > maxTag {
			return invalid("tag %q of %d characters", t.Key, len([]rune(t.Value)))
		}
		run.Tags[t.Key] = t.Value
	}
	for _, m := range in.Metrics {
		v, ok := number(m.Value)
		if !ok || badKey(m.Key) || m.Timestamp == nil || *m.Timestamp < 0 {
			return invalid("metric %q with value %v", m.Key, m.Value)
		}
		p := Point{m.Step, *m.Timestamp, v}
		if !slices.ContainsFunc(run.Metrics[m.Key], func(q Point) bool { // the key of its table
			return q == p || math.IsNaN(q.Value) && math.IsNaN(p.Value) && q.Step == p.Step && q.Timestamp == p.Timestamp
		}) {
			run.Metrics[m.Key] = append(run.Metrics[m.Key], p)
		}
	}
	return nil
}

// number reads a double like protocol buffers.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case string:
		x, err := strconv.ParseFloat(v, 64)
		return x, err == nil
	}
	return 0, false
}
