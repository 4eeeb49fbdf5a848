package mlflow

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/mlflow/mlflowtest"
	"github.com/snug-ml/snug/train/rundir"
)

// curve is a run that grows: two metrics of every update from 1 on, at times of its session.
type curve struct {
	mu      sync.Mutex
	updates int64
	next    int64
	repeat  int64 // the update after which the session repeats what another did
	samples []float64
}

func (c *curve) grow(to int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updates = to
}

func (c *curve) Metrics(most int) (list []Metric, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; c.next < c.updates && len(list) < most; c.next++ {
		u := c.next + 1
		at := time.UnixMilli(1_795_348_800_000 + u)
		if c.repeat > 0 && u > c.repeat {
			at = at.Add(time.Hour)
		}
		list = append(list, Metric{"train/loss", loss(u), at, u}, Metric{"train/grad_norm", 1 / float64(u), at, u})
		if u%10 == 0 {
			list = append(list, Metric{"eval/größe?", float64(u), at, u})
		}
	}
	return list, nil
}

// loss is not finite now and then.
func loss(u int64) float64 {
	switch {
	case u%17 == 0:
		return math.NaN()
	case u%19 == 0:
		return math.Inf(1)
	}
	return 10 / float64(u)
}

func (c *curve) Samples(after float64) (list []Metric, until float64, err error) {
	until = after
	for _, t := range c.samples {
		if t > after {
			list, until = append(list, Metric{System + "cpu_utilization_percentage", t, time.UnixMilli(int64(t * 1000)), 1}), t
		}
	}
	return list, until, nil
}

// told records an exporter's warnings.
type told struct {
	mu           sync.Mutex
	warned, info []string
}

func (s *told) take(to *[]string) func(string, ...any) {
	return func(format string, args ...any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		*to = append(*to, fmt.Sprintf(format, args...))
	}
}

// once returns the only warning.
func (s *told) once(t *testing.T) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.warned) != 1 {
		t.Fatalf("%d warnings, want 1: %q; said %q", len(s.warned), s.warned, s.info)
	}
	return s.warned[0]
}

// quick are options for servers that answer at once, or never.
func quick(s *told) Options {
	return Options{
		Warn: s.take(&s.warned), Info: s.take(&s.info), Again: "snug train --resume --out run",
		every: time.Millisecond, notice: time.Hour, pause: func(int) time.Duration { return time.Millisecond },
		grace: 5 * time.Second, longest: time.Minute,
	}
}

func opened(t *testing.T, path, id string) *rundir.Dir {
	t.Helper()
	d, err := rundir.Open(path, nil)
	if err == nil {
		err = d.Begin(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // closed before where a session ended
	return d
}

func at(t *testing.T, text string) *Server {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(u, "snug/test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ran sends a complete run.
func ran(t *testing.T, to string, run Run, c *curve, o Options) {
	t.Helper()
	dir := opened(t, t.TempDir(), rundir.NewID())
	Start(at(t, to), dir, run, c, o).End(Finished)
}

// checkCurve compares the server's points with the curve: each update once.
func checkCurve(t *testing.T, r mlflowtest.Run, updates int64) {
	t.Helper()
	points := r.Metrics["train/loss"]
	if int64(len(points)) != updates {
		t.Fatalf("%d points of %d updates", len(points), updates)
	}
	for i, p := range points {
		u := int64(i + 1)
		if want := loss(u); p.Step != u || p.Value != want && !(math.IsNaN(want) && math.IsNaN(p.Value)) {
			t.Fatalf("point %d: step %d, value %v, want %v", i, p.Step, p.Value, want)
		}
	}
	if n := int64(len(r.Metrics["train/grad_norm"])); n != updates {
		t.Errorf("%d points of the norm", n)
	}
	if n := int64(len(r.Metrics["eval/größe_"])); n != updates/10 {
		t.Errorf("%d evaluations", n)
	}
}

// One run arrives completely, and no request breaks a limit of the server.
func TestRun(t *testing.T) {
	s := mlflowtest.New()
	defer s.Close()
	run := Run{Experiment: "mine", Name: "a/b", Start: time.UnixMilli(5)}
	for i := range 250 {
		run.Params = append(run.Params, Pair{fmt.Sprintf("section.key%d", i), strings.Repeat("ä", 24*i)})
	}
	run.Params = append(run.Params,
		Pair{"long", strings.Repeat("ü", 7000)}, Pair{"//odd?/", "x"}, Pair{strings.Repeat("k", 300), "x"}, Pair{"control", strings.Repeat("\x01", 6000)})
	run.Tags = []Pair{{"snug.device", "cpu"}, {"empty", ""}, {"tag", strings.Repeat("t", 9000)}}
	var said told
	ran(t, s.URL, run, &curve{updates: 2500, samples: []float64{10, 20}}, quick(&said))
	if len(said.warned) > 0 || len(s.Errors()) > 0 {
		t.Errorf("warned %q, refused %q", said.warned, s.Errors())
	}
	list := s.Runs()
	if len(list) != 1 {
		t.Fatalf("%d runs", len(list))
	}
	r := list[0]
	checkCurve(t, r, 2500)
	if len(r.Params) != 254 || r.Params["section.key3"] != strings.Repeat("ä", 72) || r.Params["___odd__"] != "x" {
		t.Errorf("%d parameters: %q", len(r.Params), slices.Sorted(keys(r.Params))[:3])
	}
	if long := r.Params["long"]; len([]rune(long)) != 6000 || !strings.HasSuffix(long, "... (7000 characters, all of which are in config.yaml)") {
		t.Errorf("%d characters of a long one: %s", len([]rune(long)), long[len(long)-60:])
	}
	if _, ok := r.Tags["empty"]; ok || r.Tags["snug.device"] != "cpu" || len(r.Tags["tag"]) != 5000 {
		t.Errorf("tags %v", len(r.Tags))
	}
	if r.Name != "a/b" || r.Start != 5 || r.End == 0 || r.Status != "FINISHED" || r.Experiment == "0" || len(r.Metrics["system/cpu_utilization_percentage"]) != 2 {
		t.Errorf("%s %s %d %d %s", r.Name, r.Status, r.Start, r.End, r.Experiment)
	}
	if want := s.URL + "/#/experiments/1/runs/" + r.ID; !slices.ContainsFunc(said.info, func(x string) bool { return strings.HasSuffix(x, want) }) {
		t.Errorf("said %q, want the page %s", said.info, want)
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// until waits for something that happens asynchronously.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// A run that was killed and resumed from a checkpoint is one run on the server, with one
// point for each update, whether its note still exists or not. Changed settings are
// reported.
func TestResume(t *testing.T) {
	for _, lost := range []bool{false, true} {
		s := mlflowtest.New()
		path, id := t.TempDir(), rundir.NewID()
		var said told
		first := &curve{updates: 30, samples: []float64{10, 20}}
		dir := opened(t, path, id)
		run := Run{Params: []Pair{{"max_steps", "30"}, {"lr", "1"}}}
		x := Start(at(t, s.URL), dir, run, first, quick(&said))
		until(t, "the first session", func() bool {
			list := s.Runs()
			return len(list) == 1 && len(list[0].Metrics["train/loss"]) == 30 && len(list[0].Metrics["system/cpu_utilization_percentage"]) == 2
		})
		x.cancel(nil) // killed: nothing reports how it ended
		<-x.done
		if status := s.Runs()[0].Status; status != "RUNNING" {
			t.Errorf("status %s", status)
		}
		if lost {
			if err := os.Remove(filepath.Join(path, NoteFile)); err != nil {
				t.Fatal(err)
			}
		}
		if err := dir.Close(); err != nil {
			t.Fatal(err)
		}
		dir = opened(t, path, id)
		run.Params[0].Value = "45"
		second := &curve{updates: 45, repeat: 20, samples: []float64{10, 20, 30}}
		Start(at(t, s.URL), dir, run, second, quick(&said)).End(Killed)
		list := s.Runs()
		if len(list) != 1 {
			t.Fatalf("%d runs", len(list))
		}
		checkCurve(t, list[0], 45)
		if list[0].Status != "KILLED" || list[0].Params["max_steps"] != "30" || list[0].Tags["changed.max_steps"] != "45" || list[0].Tags["changed.lr"] != "" {
			t.Errorf("%s %v %v", list[0].Status, list[0].Params, list[0].Tags)
		}
		if n := len(list[0].Metrics["system/cpu_utilization_percentage"]); n != 3 {
			t.Errorf("%d points of the machine, want 3", n)
		}
		if len(s.Errors()) > 0 {
			t.Errorf("refused %q", s.Errors())
		}
		// Another run in the same folder is another run on the server.
		if err := dir.Begin(rundir.NewID()); err != nil {
			t.Fatal(err)
		}
		Start(at(t, s.URL), dir, run, &curve{updates: 3}, quick(&said)).End(Failed)
		if list = s.Runs(); len(list) != 2 || list[1].Status != "FAILED" {
			t.Fatalf("%d runs", len(list))
		}
		checkCurve(t, list[1], 3)
		s.Close()
	}
}

// A run that users deleted on the server is sent completely to another.
func TestDeleted(t *testing.T) {
	s := mlflowtest.New()
	defer s.Close()
	var said told
	dir := opened(t, t.TempDir(), rundir.NewID())
	Start(at(t, s.URL), dir, Run{}, &curve{updates: 20}, quick(&said)).End(Finished)
	s.Delete(s.Runs()[0].ID)
	Start(at(t, s.URL), dir, Run{}, &curve{updates: 30}, quick(&said)).End(Finished)
	list := s.Runs()
	if len(list) != 2 || len(said.warned) > 0 {
		t.Fatalf("%d runs, warned %q", len(list), said.warned)
	}
	checkCurve(t, list[1], 30)
}

// If requests fail before they are done, after they are done, or hang, the run is on the
// server exactly once.
func TestFlaky(t *testing.T) {
	s := mlflowtest.New()
	defer s.Close()
	var mu sync.Mutex
	luck := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	s.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		how := luck.IntN(5)
		mu.Unlock()
		switch how {
		case 1:
			http.Error(w, "database is locked", http.StatusInternalServerError)
		case 2: // done, but the answer is lost
			s.Serve(httptest.NewRecorder(), r)
			drop(w)
		case 3:
			halt(r)
		default:
			return false
		}
		return true
	})
	var said told
	server := at(t, s.URL)
	server.timeout = 100 * time.Millisecond
	c := &curve{updates: 1000}
	x := Start(server, opened(t, t.TempDir(), rundir.NewID()), Run{Params: []Pair{{"a", "b"}}}, c, quick(&said))
	until(t, "the points", func() bool { list := s.Runs(); return len(list) > 0 && len(list[0].Metrics["train/loss"]) == 1000 })
	c.grow(1500)
	x.End(Finished)
	list := s.Runs()
	if len(list) != 1 || list[0].Status != "FINISHED" || len(said.warned) > 0 {
		t.Fatalf("%d runs, warned %q", len(list), said.warned)
	}
	checkCurve(t, list[0], 1500)
}

// halt waits until the client goes away, which a server sees once the request was read.
func halt(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func drop(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if c, _, err := h.Hijack(); err == nil {
			_ = c.Close()
		}
	}
}

// A long outage of the server is reported once, and so is its end; then the server has
// everything.
func TestAway(t *testing.T) {
	s := mlflowtest.New()
	defer s.Close()
	away := func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return true
	}
	s.Answer(away)
	var said told
	o := quick(&said)
	o.notice = 20 * time.Millisecond
	x := Start(at(t, s.URL), opened(t, t.TempDir(), rundir.NewID()), Run{}, &curve{updates: 40}, o)
	until(t, "the warning", func() bool { said.mu.Lock(); defer said.mu.Unlock(); return len(said.warned) > 0 })
	time.Sleep(50 * time.Millisecond)
	if text := said.once(t); !strings.Contains(text, "503 Service Unavailable") || !strings.Contains(text, "is sent once the server answers") {
		t.Error(text)
	}
	s.Answer(nil)
	x.End(Finished)
	checkCurve(t, s.Runs()[0], 40)
	said.once(t)
	if !strings.Contains(strings.Join(said.info, "\n"), "answers again") {
		t.Errorf("said %q", said.info)
	}
}

// If nothing can be sent, that is reported once, with the reason, what to do, and the
// command to send it later; the end of the run waits no longer than it should.
func TestRefused(t *testing.T) {
	answer := func(status int, header, text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			if header != "" {
				w.Header().Set("Location", header)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text)) // the client notices
		}
	}
	for _, c := range []struct {
		name   string
		handle func(http.ResponseWriter, *http.Request)
		want   []string
	}{
		{"unauthorized", answer(401, "", "You are not authenticated."), []string{"401 Unauthorized: You are not authenticated.", "MLFLOW_TRACKING_TOKEN"}},
		{"forbidden", answer(403, "", `{"error_code":"PERMISSION_DENIED","message":"no"}`), []string{"403 Forbidden: no", "may write"}},
		{"page", answer(200, "", "<html>hello"), []string{"not MLflow's JSON", "check that metrics.mlflow"}},
		{"other", answer(404, "", "404 page not found"), []string{"404 Not Found", "check that metrics.mlflow"}},
		{"moved", answer(301, "https://u:secret@elsewhere/", ""), []string{"redirects to https://u:xxxxx@elsewhere/"}},
		{"empty", answer(200, "", `{}`), []string{"names no run"}},
		{"no database", answer(400, "", `{"error_code":"BAD_REQUEST","message":"first\nsecond"}`), []string{"400 Bad Request: first second"}},
		{"failing", answer(500, "", `{"error_code":"INTERNAL_ERROR","message":"disk full"}`), []string{"500 Internal Server Error: disk full"}},
		{"halting", func(_ http.ResponseWriter, r *http.Request) { halt(r) }, []string{"no answer in the"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(c.handle))
			defer s.Close()
			var said told
			o := quick(&said)
			o.grace = 200 * time.Millisecond
			ran(t, strings.Replace(s.URL, "http://", "http://me:secret@", 1), Run{}, &curve{updates: 40}, o)
			text := said.once(t)
			for _, want := range append(c.want, s.URL, "the server lacks", "`snug train --resume --out run` sends it") {
				if !strings.Contains(text, want) {
					t.Errorf("warned %q, want %q", text, want)
				}
			}
			if strings.Contains(text, "secret") {
				t.Errorf("told a password: %s", text)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		to := "http://" + l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var said told
		o := quick(&said)
		o.grace = 200 * time.Millisecond
		ran(t, to, Run{}, &curve{updates: 40}, o)
		if text := said.once(t); !strings.Contains(text, "refused") || !strings.Contains(text, to) {
			t.Error(text)
		}
	})
}

// If a server refuses in the middle, the report names what it lacks.
func TestRefusedLater(t *testing.T) {
	s := mlflowtest.New()
	defer s.Close()
	var said told
	c := &curve{updates: 40}
	x := Start(at(t, s.URL), opened(t, t.TempDir(), rundir.NewID()), Run{}, c, quick(&said))
	until(t, "the points", func() bool { list := s.Runs(); return len(list) > 0 && len(list[0].Metrics["train/loss"]) == 40 })
	s.Answer(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusUnauthorized); return true })
	c.grow(50)
	x.End(Finished)
	if text := said.once(t); !strings.Contains(text, "lacks what came after update 40") {
		t.Error(text)
	}
}

// The credentials are in the header and nowhere else.
func TestWho(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		user string
		want string
	}{
		{want: ""},
		{env: map[string]string{"MLFLOW_TRACKING_TOKEN": "secret"}, want: "Bearer secret"},
		{env: map[string]string{"MLFLOW_TRACKING_TOKEN": "secret", "MLFLOW_TRACKING_USERNAME": "a", "MLFLOW_TRACKING_PASSWORD": "b"}, want: "Basic YTpi"},
		{env: map[string]string{"MLFLOW_TRACKING_USERNAME": "x", "MLFLOW_TRACKING_PASSWORD": "y"}, user: "a:b@", want: "Basic YTpi"},
	} {
		for _, name := range []string{"MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"} {
			t.Setenv(name, c.env[name])
		}
		s := mlflowtest.New()
		var mu sync.Mutex
		var got []string
		s.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.Header.Get("Authorization"))
			return false
		})
		var said told
		dir := opened(t, t.TempDir(), rundir.NewID())
		Start(at(t, strings.Replace(s.URL, "http://", "http://"+c.user, 1)), dir, Run{}, &curve{updates: 4}, quick(&said)).End(Finished)
		s.Close()
		if len(slices.Compact(got)) != 1 || got[0] != c.want {
			t.Errorf("%v: %q, want %q", c.env, got, c.want)
		}
		if n := ReadNote(dir); n.Server != s.URL || !n.Done {
			t.Errorf("note %+v", n)
		}
	}
}

// Certificates are checked, against those that the environment names.
func TestTLS(t *testing.T) {
	inner := mlflowtest.New()
	defer inner.Close()
	s := httptest.NewTLSServer(inner)
	defer s.Close()
	var said told
	ran(t, s.URL, Run{}, &curve{updates: 4}, quick(&said))
	if text := said.once(t); !strings.Contains(text, "MLFLOW_TRACKING_SERVER_CERT_PATH") || len(inner.Runs()) > 0 {
		t.Error(text)
	}
	t.Setenv("MLFLOW_TRACKING_INSECURE_TLS", "true")
	ran(t, s.URL, Run{}, &curve{updates: 4}, quick(&said))
	if len(inner.Runs()) != 1 {
		t.Errorf("%q", said.warned)
	}
	t.Setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", filepath.Join(t.TempDir(), "none.pem"))
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewServer(u, ""); err == nil || !strings.Contains(err.Error(), "MLFLOW_TRACKING_SERVER_CERT_PATH") {
		t.Error(err)
	}
}
