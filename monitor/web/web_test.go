package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
)

// start is when the runs of the tests begin: a little ago, so that they are alive.
var start = time.Now().Add(-20 * time.Second)

// folder is a run directory that a test writes.
type folder struct {
	t   testing.TB
	dir string
}

func newFolder(t testing.TB, name string) *folder {
	f := &folder{t, filepath.Join(t.TempDir(), name)}
	f.about("r1", "0.001")
	return f
}

func (f *folder) write(name, text string) {
	f.t.Helper()
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	w, err := os.OpenFile(filepath.Join(f.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = w.WriteString(text)
	if e := w.Close(); err != nil || e != nil {
		f.t.Fatal(err, e)
	}
}

// replace rewrites a file like a run does: another file takes its name.
func (f *folder) replace(name, text string) {
	f.t.Helper()
	f.write(name+".new", text)
	if err := os.Rename(filepath.Join(f.dir, name+".new"), filepath.Join(f.dir, name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) about(id, rate string) {
	f.replace(monitor.InfoFile, fmt.Sprintf(`{"run":%q,"system":"refocused","preset":"p","device":"EPYC","threads":2,"processors":2,"precision":"fp32","updates":1000,`+
		`"unit":"tokens","units_per_update":100,"batch_size":8,"gradient_accumulation_steps":4,"started":%q,"settings":{"training.learning_rate":%q,"training.seed":"1"},`+
		`"plan":{"arena_bytes":1000,"planned_total_bytes":2000,"capacity_bytes":9000,"peak_flops_per_second":1e10,"peak_name":"fp32 peak"}}`, id, start.UTC().Format(time.RFC3339), rate))
}

// lines returns the lines of updates; took distinguishes the sessions.
func lines(from, to int, took float64) string {
	var b strings.Builder
	for u := from; u <= to; u++ {
		fmt.Fprintf(&b, `{"event":"update","update":%d,"loss":%g,"learning_rate":0.001,"grad_norm":1.5,"tokens":100,"seconds":%g,"rate":200,"time":%.3f,`+
			`"since":{"updates":1,"seconds":0.8,"wait_seconds":0.1,"tokens":100,"flops":4e9}}`+"\n", u, 10/float64(u), took, float64(start.UnixMilli())/1e3+float64(u)/1000)
	}
	return b.String()
}

func (f *folder) updates(from, to int) {
	f.t.Helper()
	f.write(train.MetricsFile, lines(from, to, 0.5))
}

func (f *folder) sample(second int, more string) {
	f.write(monitor.SamplesFile, fmt.Sprintf(`{"time":%d,"update":1,"process_cpu_percent":150,"machine_cpu_percent":80,"rss_bytes":1000,"rss_peak_bytes":3000,"memory_total_bytes":10000,"memory_available_bytes":5000%s}`+"\n",
		start.Unix()+int64(second), more))
}

func (f *folder) say(text string) {
	raw, err := json.Marshal(monitor.LogLine{Time: float64(time.Now().UnixMilli()) / 1e3, Level: monitor.LevelInfo, Text: text})
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(monitor.LogFile, string(raw)+"\n")
}

// serve shows runs; look makes the server poll them.
func serve(t testing.TB, opt Options) (at string, look func()) {
	s := New(opt)
	h := httptest.NewServer(s)
	t.Cleanup(func() { close(s.ending); h.Close() })
	return h.URL, s.hub.poll
}

// event is an event as received, for a run or the list of runs.
type event struct {
	kind, id, raw string
	list          []entry
	news          struct {
		update
		Head *struct {
			State  monitor.State
			Update int64
			Alerts []monitor.Alert
		} `json:"head"`
	}
}

// listener is an open stream of events.
type listener struct {
	t    testing.TB
	in   chan event
	last string // id of the last event
}

func listen(t testing.TB, at, cursor string) *listener {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/events?width=100", nil)
	if err != nil {
		t.Fatal(err)
	}
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	res, err := http.DefaultClient.Do(req) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	l := &listener{t: t, in: make(chan event, 100)}
	go func() {
		defer res.Body.Close()
		defer close(l.in)
		in := bufio.NewScanner(res.Body)
		in.Buffer(nil, 64<<20)
		var e event
		for in.Scan() {
			key, value, _ := strings.Cut(in.Text(), ": ")
			switch key {
			case "event":
				e.kind = value
			case "id":
				e.id = value
			case "data":
				e.raw = value
			case "":
				if e.kind != "" {
					l.in <- e
				}
				e = event{}
			}
		}
	}()
	return l
}

func (l *listener) next(kind string) event {
	l.t.Helper()
	for {
		select {
		case e, ok := <-l.in:
			if !ok {
				l.t.Fatal("the stream ended")
			}
			l.last = e.id
			if e.kind != kind {
				continue
			}
			var err error
			if kind == "runs" {
				err = json.Unmarshal([]byte(e.raw), &e.list)
			} else {
				err = json.Unmarshal([]byte(e.raw), &e.news)
			}
			if err != nil {
				l.t.Fatal(err)
			}
			return e
		case <-time.After(5 * time.Minute):
			l.t.Fatal("no event")
		}
	}
}

func (l *listener) silent() {
	l.t.Helper()
	select {
	case e := <-l.in:
		l.t.Fatalf("%s came, and nothing is new: %.200s", e.kind, e.raw)
	case <-time.After(300 * time.Millisecond):
	}
}

func points(list []curve, name string) (x, y []monitor.Number) {
	for _, s := range list {
		if s.Name == name {
			return s.X, s.Y
		}
	}
	return nil, nil
}

func wantX(t testing.TB, e event, name string, want ...float64) {
	t.Helper()
	x, _ := points(append(e.news.Series, e.news.Machine...), name)
	if len(x) != len(want) {
		t.Fatalf("%s at %v, want %v", name, x, want)
	}
	for i := range x {
		if float64(x[i]) != want[i] {
			t.Fatalf("%s at %v, want %v", name, x, want)
		}
	}
}

// An event contains only what came after the cursor, on the same connection, on another,
// and from another server.
func TestOnlyWhatIsNew(t *testing.T) {
	f := newFolder(t, "run")
	f.updates(1, 3)
	f.write(train.MetricsFile, `{"event":"eval","update":3,"metrics":{"eval_loss":2.5},"best":true}`+"\n")
	f.sample(1, "")
	f.say("first")
	at, look := serve(t, Options{Runs: []string{f.dir}})
	l := listen(t, at, "")
	if list := l.next("runs").list; len(list) != 1 || list[0].Name != "run" {
		t.Fatalf("%+v", list)
	}
	e := l.next("run")
	wantX(t, e, "loss", 1, 2, 3)
	wantX(t, e, "eval_loss", 3)
	wantX(t, e, "process_cpu", float64(start.Unix()+1))
	if n := e.news; !n.Reset || n.Head.Update != 3 || n.Info.Settings["training.seed"] != "1" || len(n.Evaluations) != 1 || len(n.Log) != 1 {
		t.Fatalf("%s", e.raw)
	}
	look()
	l.silent()

	f.updates(4, 5)
	look()
	e = l.next("run")
	wantX(t, e, "loss", 4, 5)
	wantX(t, e, "eval_loss")
	wantX(t, e, "process_cpu")
	if n := e.news; n.Reset || n.Head.Update != 5 || n.Info != nil || n.Evaluations != nil || n.Log != nil {
		t.Fatalf("%s", e.raw)
	}
	cursor := l.last

	f.updates(6, 6)
	f.sample(2, "")
	f.say("second")
	other, _ := serve(t, Options{Runs: []string{f.dir}}) // the server restarted
	e = listen(t, other, cursor).next("run")
	wantX(t, e, "loss", 6)
	wantX(t, e, "process_cpu", float64(start.Unix()+2))
	if n := e.news; n.Reset || len(n.Log) != 1 || n.Log[0].Text != "second" || n.Evaluations != nil {
		t.Fatalf("%s", e.raw)
	}
}

// A run whose files were replaced is sent again: after a resume from a checkpoint before
// the cursor, even if every loss is the same, and after another run took the folder.
func TestReplaced(t *testing.T) {
	for name, change := range map[string]func(f *folder){
		"resumed from before":   func(f *folder) { f.replace(train.MetricsFile, lines(1, 2, 0.5)) },
		"resumed and caught up": func(f *folder) { f.replace(train.MetricsFile, lines(1, 2, 0.5)+lines(3, 5, 0.7)) },
		"another run": func(f *folder) {
			f.about("r2", "0.1")
			f.replace(train.MetricsFile, lines(1, 5, 0.5))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, "run")
			f.updates(1, 5)
			at, look := serve(t, Options{Runs: []string{f.dir}})
			l := listen(t, at, "")
			l.next("run")
			cursor := l.last
			change(f)
			look()
			e := l.next("run")
			if x, _ := points(e.news.Series, "loss"); !e.news.Reset || float64(x[0]) != 1 {
				t.Fatalf("the same connection: %s", e.raw)
			}
			other, _ := serve(t, Options{Runs: []string{f.dir}})
			e = listen(t, other, cursor).next("run")
			if x, _ := points(e.news.Series, "loss"); !e.news.Reset || float64(x[0]) != 1 {
				t.Fatalf("after a restart: %s", e.raw)
			}
		})
	}
}

// An invalid cursor is the beginning.
func TestStrangeCursor(t *testing.T) {
	f := newFolder(t, "run")
	f.updates(1, 2)
	at, _ := serve(t, Options{Runs: []string{f.dir}})
	for _, cursor := range []string{"x", "bnVsbA", "eyJyIjpudWxsfQ", "eyJyIjp7ImEiOnsidSI6LTF9fX0", strings.Repeat("A", 10000)} {
		if e := listen(t, at, cursor).next("run"); !e.news.Reset {
			t.Errorf("%s: %s", cursor, e.raw)
		}
	}
}

// A run may appear later, disappear, and come back.
func TestComesAndGoes(t *testing.T) {
	f := &folder{t, filepath.Join(t.TempDir(), "run")}
	at, look := serve(t, Options{Runs: []string{f.dir}})
	l := listen(t, at, "")
	if list := l.next("runs").list; len(list) != 1 || list[0].Missing == "" {
		t.Fatalf("%+v", list)
	}
	f.about("r1", "0.001")
	f.updates(1, 2)
	look()
	if list := l.next("runs").list; len(list) != 1 || list[0].Missing != "" {
		t.Fatalf("%+v", list)
	}
	wantX(t, l.next("run"), "loss", 1, 2)
	if err := os.Rename(f.dir, f.dir+".away"); err != nil {
		t.Fatal(err)
	}
	look()
	if e := l.next("run"); e.news.Head.State != monitor.Gone {
		t.Fatal(e.raw)
	}
	if err := os.Rename(f.dir+".away", f.dir); err != nil {
		t.Fatal(err)
	}
	f.updates(3, 3)
	look()
	e := l.next("run")
	if wantX(t, e, "loss", 3); e.news.Head.State != monitor.Running {
		t.Fatal(e.raw)
	}
}

// A folder of runs shows each, including those that appear later; equal names are
// distinguished.
func TestFolders(t *testing.T) {
	base := t.TempDir()
	for _, name := range []string{"x/same", "y/same"} {
		f := &folder{t, filepath.Join(base, name)}
		f.about(name, "0.1")
		f.updates(1, 2)
	}
	at, look := serve(t, Options{Runs: []string{filepath.Join(base, "x"), filepath.Join(base, "y", "same")}})
	l := listen(t, at, "")
	if list := l.next("runs").list; len(list) != 2 || list[0].Name != "x/same" || list[1].Name != "same" {
		t.Fatalf("%+v", list)
	}
	late := &folder{t, filepath.Join(base, "x", "late")}
	late.about("late", "0.2")
	late.updates(1, 1)
	look()
	if list := l.next("runs").list; len(list) != 3 {
		t.Fatalf("%+v", list)
	}
}

func get(t testing.TB, at string, header ...string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req) // no redirects
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw), res.Header
}

// A range contains its points, thinned for the width, and no spike is lost.
func TestRange(t *testing.T) {
	f := newFolder(t, "run")
	f.updates(1, 5000)
	f.write(train.MetricsFile, strings.Replace(lines(5001, 5001, 0.5), `"loss":0.00199`, `"loss":77.00199`, 1)+lines(5002, 10000, 0.5))
	at, _ := serve(t, Options{Runs: []string{f.dir}})
	id := idOf(f.dir)
	ask := func(q string) []update {
		status, body, _ := get(t, at+"/series?run="+id+q)
		var out []update
		if err := json.Unmarshal([]byte(body), &out); status != http.StatusOK || err != nil {
			t.Fatal(status, err, body)
		}
		return out
	}
	x, y := points(ask("&width=100")[0].Series, "loss")
	highest := 0.0
	for _, v := range y[1:] {
		highest = max(highest, float64(v))
	}
	if len(x) > 202 || highest < 77 {
		t.Errorf("the whole: %d points up to %g", len(x), highest)
	}
	x, _ = points(ask("&width=100&from=400&to=450")[0].Series, "loss")
	if len(x) != 51 || x[0] != 400 || x[50] != 450 {
		t.Errorf("a range: %v", x)
	}
	for q, status := range map[string]int{"?run=" + id + "&width=1": 400, "?run=" + id + "&from=x": 400, "?run=" + id + "&to=-1": 400, "?run=" + id + "&from=NaN": 400, "?run=nobody": 404, "?run=../..": 404} {
		if got, body, _ := get(t, at+"/series"+q); got != status {
			t.Errorf("%s: %d %s", q, got, body)
		}
	}
}

// Without a token only this machine has access, by its own name; with one, anyone who has
// it.
func TestAccess(t *testing.T) {
	f := newFolder(t, "run")
	open, _ := serve(t, Options{Runs: []string{f.dir}})
	for _, path := range []string{"/", "/events", "/series", "/metrics", "/static/app.js"} {
		if status, _, _ := get(t, open+path, "Host", "evil.example:8412"); status != http.StatusForbidden {
			t.Errorf("%s for another host: %d", path, status)
		}
	}
	if status, _, h := get(t, open+"/", "Host", "localhost:1"); status != http.StatusOK || !strings.Contains(h.Get("Content-Security-Policy"), "script-src 'self'") || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Error(status, h)
	}

	token := "a-token"
	closed, _ := serve(t, Options{Runs: []string{f.dir}, Token: token})
	for _, path := range []string{"/", "/events", "/series", "/metrics", "/report/x/y"} {
		for _, auth := range []string{"", "Bearer", "Bearer a-toke", "Basic a-token"} {
			if status, body, _ := get(t, closed+path, "Authorization", auth); status != http.StatusUnauthorized || strings.Contains(body, "app.js") {
				t.Errorf("%s with %q: %d", path, auth, status)
			}
		}
	}
	if status, _, _ := get(t, closed+"/metrics", "Authorization", "Bearer "+token, "Host", "gpu.example"); status != http.StatusOK {
		t.Error("the token does not open", status)
	}
	if _, body, _ := get(t, closed+"/", "Accept", "text/html"); !strings.Contains(body, `action="/login"`) {
		t.Error("a browser is not asked for the token", body)
	}
	post := func(given string) (status int, cookies []*http.Cookie) {
		req, err := http.NewRequest(http.MethodPost, closed+"/login", strings.NewReader(url.Values{"token": {given}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode, res.Cookies()
	}
	if status, cookies := post("wrong"); status != http.StatusUnauthorized || len(cookies) > 0 {
		t.Error("a wrong token", status)
	}
	status, cookies := post(token)
	if status != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatal("the token", status)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, token) {
		t.Error(c)
	}
	if status, _, _ := get(t, closed+"/", "Cookie", c.Name+"="+c.Value); status != http.StatusOK {
		t.Error("the cookie does not open", status)
	}
	again, _ := serve(t, Options{Runs: []string{f.dir}, Token: token})
	if status, _, _ := get(t, again+"/", "Cookie", c.Name+"="+c.Value); status != http.StatusOK {
		t.Error("the cookie does not survive a restart", status)
	}
}

// Prometheus can read the metrics, whatever a run is called.
func TestMetrics(t *testing.T) {
	hostile := newFolder(t, "a\"} 1\\\nsnug_loss <b>")
	hostile.updates(1, 10)
	hostile.write(train.MetricsFile, `{"event":"eval","update":10,"metrics":{"eval_loss":2.5}}`+"\n")
	hostile.sample(5, `,"gpu":{"busy_percent":97,"memory_used_bytes":5e9,"memory_total_bytes":16e9,"celsius":71,"watts":69.5,"watts_cap":70,"sm_mhz":1410,"throttle":4}`)
	diverged := newFolder(t, "nan")
	diverged.write(train.MetricsFile, strings.Replace(lines(1, 1, 0.5), `"loss":10`, `"loss":"NaN"`, 1))
	at, _ := serve(t, Options{Runs: []string{hostile.dir, diverged.dir, filepath.Join(t.TempDir(), "missing")}})
	status, body, header := get(t, at+"/metrics")
	if status != http.StatusOK || header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" {
		t.Fatal(status, header)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err, body)
	}
	name := monitor.Printable(filepath.Base(hostile.dir))
	value := func(family, run string) (v float64) {
		t.Helper()
		f := families[family]
		if f == nil || f.GetHelp() == "" {
			t.Fatalf("no %s in %s", family, body)
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "run" && l.GetValue() == run {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
		t.Fatalf("no %s of %s in %s", family, run, body)
		return 0
	}
	for family, want := range map[string]float64{
		"snug_update": 10, "snug_updates_planned": 1000, "snug_loss": 1, "snug_tokens_total": 1000, "snug_update_duration_seconds": 0.8, "snug_mfu_ratio": 0.5, "snug_run_info": 1,
		"snug_evaluation": 2.5, "snug_gpu_busy_ratio": 0.97, "snug_gpu_memory_used_bytes": 5e9, "snug_gpu_power_watts": 69.5, "snug_gpu_clock_hertz": 1.41e9, "snug_gpu_temperature_celsius": 71,
		"snug_process_cpu_ratio": 1.5, "snug_process_resident_memory_bytes": 1000,
	} {
		if got := value(family, name); got != want {
			t.Errorf("%s is %g, want %g", family, got, want)
		}
	}
	if age := float64(time.Now().Unix()) - value("snug_last_update_timestamp_seconds", name); age < 0 || age > 600 {
		t.Errorf("the last update was %g s ago", age)
	}
	if got := value("snug_loss", "nan"); got == got {
		t.Errorf("a loss that is no number is %g", got)
	}
}

// Reports are shown as separate pages that can do nothing, and no other file is shown.
func TestReports(t *testing.T) {
	f := newFolder(t, "run")
	f.updates(1, 1)
	f.write("report.html", "<script>alert(1)</script>")
	f.write("eval.svg", "<svg/>")
	for _, folder := range []string{"report", "eval/step-1", "eval/step-2"} {
		if err := os.MkdirAll(filepath.Join(f.dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		f.write(folder+"/01.svg", "<svg/>")
		f.write(folder+"/02.svg", "<svg/>")
	}
	secret := filepath.Join(t.TempDir(), "secret.html")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(f.dir, "link.html")); err != nil {
		t.Fatal(err)
	}
	at, _ := serve(t, Options{Runs: []string{f.dir}})
	raw := listen(t, at, "").next("run").raw
	last := -1 // pictures in order, those of the newest evaluation first
	for _, name := range []string{`{"name":"report.html"}`, `{"name":"eval.svg","picture":true}`, "report/01.svg", "report/02.svg", "eval/step-2/01.svg", "eval/step-2/02.svg", "eval/step-1/01.svg"} {
		if i := strings.Index(raw, name); i <= last {
			t.Errorf("%s is at %d, after %d: %s", name, i, last, raw)
		} else {
			last = i
		}
	}
	if strings.Contains(raw, "link.html") {
		t.Error(raw)
	}
	base := at + "/report/" + idOf(f.dir) + "/"
	status, body, h := get(t, base+"report.html")
	if policy := h.Get("Content-Security-Policy"); status != http.StatusOK || body == "" || !strings.HasPrefix(policy, "sandbox") || strings.Contains(policy, "script") {
		t.Error(status, body, h)
	}
	for _, name := range []string{"link.html", "metrics.jsonl", "run.json", "..%2f..%2fsecret.html", "nothing.html", ""} {
		if status, body, _ := get(t, base+name); status != http.StatusNotFound || strings.Contains(body, "secret\n") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// A model's text is sent without anything that a terminal or page would interpret.
func TestGenerated(t *testing.T) {
	f := newFolder(t, "run")
	f.updates(1, 1)
	at, look := serve(t, Options{Runs: []string{f.dir}})
	l := listen(t, at, "")
	l.next("run")
	f.write(monitor.TextFile, "func main() {\n\x1b[31m}\u202e\n")
	f.updates(2, 2)
	look()
	if e := l.next("run"); e.news.Text == nil || *e.news.Text != "func main() {\n}" {
		t.Error(e.raw)
	}
}
