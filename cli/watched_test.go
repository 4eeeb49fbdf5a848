package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train/checkpoint"
)

// TestWatchedLive watches a run of every system through its folder and through the page's events, from before
// its first update to its end. Each run is killed (kill -9) between two checkpoints and resumed. The monitor
// says that it died, the curves go back to the checkpoint and continue, and no update is shown twice, lost or
// out of order.
func TestWatchedLive(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	var all []*watched
	for name, r := range everySystem(t) {
		if !testing.Short() || name == "refocused" {
			all = append(all, &watched{t: t, work: work, name: name, systemRun: r})
		}
	}
	slices.SortFunc(all, func(a, b *watched) int { return strings.Compare(a.name, b.name) })
	page := watchPage(t, work, all)

	var group sync.WaitGroup
	for _, w := range all {
		group.Go(w.killed)
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for _, w := range all {
		w.died(page)
		group.Go(w.resumed)
	}
	group.Wait()
	if t.Failed() {
		return
	}
	for _, w := range all {
		w.whole(page)
	}
}

// watched is a run that is being watched.
type watched struct {
	t    *testing.T
	work string
	name string
	systemRun
	run *monitor.Run // nil until there is a folder
	in  string       // folder of the run that was killed
}

func (w *watched) dir() string { return filepath.Join(w.work, w.name) }

// train runs the system with every update logged, long enough to be seen.
func (w *watched) train() *victim {
	args := []string{"train", "--config", w.config, "--out", w.name, "--resume", "--training.log_steps", "1", "--training.save_steps", "5", "--training.eval_steps", "10"}
	switch w.name {
	case "dynamo":
		args = append(args, "--phases.encoder_steps", "40", "--phases.router_steps", "60", "--phases.joint_steps", "60", "--tasks.sentiment.steps", "60", "--tasks.translation.steps", "60")
	default:
		args = append(args, "--training.max_steps", "60")
	}
	return launch(w.t, w.work, "snug", args...)
}

// poll reads what is new and returns the run, or its current phase. Each curve is complete up to its last
// update.
func (w *watched) poll() *monitor.Snapshot {
	if w.run == nil {
		r, err := monitor.Open(w.dir())
		if err != nil {
			return nil
		}
		w.run = r
	}
	if _, err := w.run.Poll(); err != nil {
		w.t.Errorf("%s: %v", w.name, err)
	}
	s := w.run.Snapshot(time.Now(), monitor.View{})
	runs := flat([]*monitor.Snapshot{s})
	for _, s := range runs {
		for _, p := range s.Problems {
			w.t.Errorf("%s: %s", s.Path, p)
		}
		updates(w.t, s)
	}
	return runs[len(runs)-1]
}

// updates returns the number of updates in the curve of losses, which must be 1, 2, 3 and so on.
func updates(t *testing.T, s *monitor.Snapshot) int64 {
	for _, x := range s.Series {
		if x.Name != "loss" {
			continue
		}
		for i, u := range x.X {
			if u != monitor.Number(i+1) {
				t.Errorf("%s: point %d of the loss is of update %v", s.Path, i+1, u)
				break
			}
		}
		return int64(len(x.X))
	}
	return 0
}

// until polls until the run is as wanted.
func (w *watched) until(what string, want func(s *monitor.Snapshot) bool) *monitor.Snapshot {
	late := time.Now().Add(10 * time.Minute)
	for {
		s := w.poll()
		if s != nil && want(s) || w.t.Failed() {
			return s
		}
		if time.Now().After(late) {
			w.t.Errorf("%s: the monitor never had a run %s: %+v", w.name, what, s)
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// killed trains until an update between two checkpoints appears, in the second phase or later if there are
// several, and kills the process.
func (w *watched) killed() {
	v := w.train()
	gone := make(chan struct{})
	go func() {
		v.wait()
		close(gone)
	}()
	s := w.until("between two checkpoints", func(s *monitor.Snapshot) bool {
		select {
		case <-gone:
			w.t.Errorf("%s: the process ended before it was seen there; its output:\n%s", w.name, v.output())
		default:
		}
		ready := w.phases == nil || s.Name != w.phases[0]
		saved, _ := filepath.Glob(filepath.Join(s.Path, checkpoint.Folder, "step-*[0-9]")) // only fails on a bad pattern
		return ready && len(saved) > 0 && s.State == monitor.Running && s.Update > 5 && s.Update%5 > 1 && s.Update < s.Updates-5
	})
	_ = v.cmd.Process.Kill() // the state of the process says whether this was in time
	if <-gone; !v.cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
		w.t.Errorf("%s: the process was not killed; its output:\n%s", w.name, v.output())
	}
	if s != nil {
		w.in = s.Path
	}
}

// died waits until the monitor says that the run died.
func (w *watched) died(p *page) {
	w.until("that died", func(s *monitor.Snapshot) bool { return s.State == monitor.Died })
	p.shows(w.t, w.in, monitor.Running, monitor.Died)
	var doc struct{ Runs []monitor.Snapshot }
	if err := json.Unmarshal([]byte(done(w.t, "monitor", "--json", w.dir()).out), &doc); err != nil {
		w.t.Fatal(err)
	}
	s := doc.Runs[0]
	if s.State != monitor.Died || !strings.Contains(s.Why, "is gone") {
		w.t.Errorf("%s: %s, %s", w.name, s.State, s.Why)
	}
	if n := len(s.Phases); n > 0 {
		s = *s.Phases[n-1]
	}
	if len(s.Alerts) == 0 || s.Alerts[0].Kind != monitor.AlertDied || !strings.Contains(s.Alerts[0].Do, "--resume") {
		w.t.Errorf("%s: %+v", w.name, s.Alerts)
	}
	if text := done(w.t, "monitor", "--once", w.dir()).out; !strings.Contains(text, "died") || !strings.Contains(text, "the run died: ") {
		w.t.Errorf("%s:\n%s", w.name, text)
	}
}

// resumed continues the run to its end.
func (w *watched) resumed() {
	began := time.Now()
	v := w.train()
	back := w.until("that goes on", func(s *monitor.Snapshot) bool { return s.Info.At.After(began) && s.State != monitor.Died })
	if back != nil && back.Info.From == 0 && back.Path == w.in {
		w.t.Errorf("%s: it began anew", w.name)
	}
	if code := v.wait(); code != exitDone {
		w.t.Errorf("%s: exit code %d\n%s", w.name, code, v.output())
	}
	w.until("that is done", func(s *monitor.Snapshot) bool { return s.State == monitor.Done })
}

// whole checks the curves of the run at its end, here and on the page.
func (w *watched) whole(p *page) {
	for _, dir := range w.runs(w.dir()) {
		r, err := monitor.Open(dir)
		if err != nil {
			w.t.Fatal(err)
		}
		s := r.Snapshot(time.Now(), monitor.View{})
		if n := updates(w.t, s); n != s.Updates || s.State != monitor.Done || s.Updated.Before(s.Began) {
			w.t.Errorf("%s: %d of %d updates, %s", dir, n, s.Updates, s.State)
		}
		p.matches(w.t, s)
	}
	p.shows(w.t, w.in, monitor.Running, monitor.Died, monitor.Done)
}

// page is what a browser's page knows of the runs from the events alone.
type page struct {
	mu   sync.Mutex
	runs map[string]*pageRun // by ID
	why  string
}

type pageRun struct {
	path   string
	state  monitor.State
	states []monitor.State // in order
	lines  map[string]*monitor.Series
}

// watchPage follows runs through the events of a server.
func watchPage(t *testing.T, work string, all []*watched) *page {
	t.Helper()
	args := []string{"monitor", "--web", "--listen", "127.0.0.1:0", "--interval", "100ms"}
	for _, w := range all {
		args = append(args, w.dir())
	}
	v := launch(t, work, "snug", args...)
	t.Cleanup(func() { _ = v.cmd.Process.Kill(); v.wait() })
	if !v.until("metrics for Prometheus at") {
		t.Fatal(v.output())
	}
	_, url, _ := strings.Cut(v.output(), "dashboard at ")
	url, _, _ = strings.Cut(url, "\n")
	res, err := http.Get(url + "/events?width=4000")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	p := &page{runs: map[string]*pageRun{}}
	go func() {
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 64<<20)
		event := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				p.take(event, []byte(data))
			}
		}
	}()
	return p
}

// take handles an event as the page's script does.
func (p *page) take(event string, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if event == "runs" {
		var list []struct{ ID, Path, Missing string }
		if err := json.Unmarshal(data, &list); err != nil {
			p.why = err.Error()
		}
		for _, e := range list {
			if e.Missing == "" && p.runs[e.ID] == nil {
				p.runs[e.ID] = &pageRun{path: e.Path, lines: map[string]*monitor.Series{}}
			}
		}
		return
	}
	var news struct {
		ID     string
		Reset  bool
		Head   *struct{ State monitor.State }
		Series []monitor.Series
	}
	err := json.Unmarshal(data, &news)
	r := p.runs[news.ID]
	if err != nil || r == nil {
		p.why = fmt.Sprintf("run %q, %v", news.ID, err)
		return
	}
	if news.Reset {
		r.lines = map[string]*monitor.Series{}
	}
	if news.Head != nil && news.Head.State != r.state {
		r.state = news.Head.State
		r.states = append(r.states, r.state)
	}
	for _, s := range news.Series {
		have := r.lines[s.Name]
		if have == nil {
			have = &monitor.Series{}
			r.lines[s.Name] = have
		}
		for i, x := range s.X {
			if n := len(have.X); n > 0 && x <= have.X[n-1] {
				p.why = fmt.Sprintf("%s: %s of update %v came after that of %v", r.path, s.Name, x, have.X[n-1])
			}
			have.X, have.Y = append(have.X, x), append(have.Y, s.Y[i])
		}
	}
}

// matches waits until the page has the curves of a completed run.
func (p *page) matches(t *testing.T, want *monitor.Snapshot) {
	t.Helper()
	p.until(t, want.Path, func() string { return p.differs(want) })
}

// shows waits until the page has shown a run in these states, in order.
func (p *page) shows(t *testing.T, path string, states ...monitor.State) {
	t.Helper()
	p.until(t, path, func() string {
		r := p.at(path)
		if r == nil {
			return "it has no such run"
		}
		left := states
		for _, s := range r.states {
			if len(left) > 0 && s == left[0] {
				left = left[1:]
			}
		}
		if len(left) > 0 {
			return fmt.Sprintf("it was %v, want %v", r.states, states)
		}
		return ""
	})
}

// until waits until nothing is wrong.
func (p *page) until(t *testing.T, path string, wrong func() string) {
	t.Helper()
	late := time.Now().Add(5 * time.Minute)
	for {
		p.mu.Lock()
		why := p.why
		if why == "" {
			why = wrong()
		}
		p.mu.Unlock()
		if why == "" {
			return
		}
		if time.Now().After(late) {
			t.Errorf("the page, %s: %s", path, why)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// at returns the run of a folder, or nil if there is none.
func (p *page) at(path string) *pageRun {
	for _, r := range p.runs {
		if r.path == path {
			return r
		}
	}
	return nil
}

// differs says what the page lacks of a run, or shows differently.
func (p *page) differs(want *monitor.Snapshot) string {
	r := p.at(want.Path)
	if r == nil {
		return "it has no such run"
	}
	if r.state != monitor.Done {
		return fmt.Sprintf("it was %v, and is not done", r.states)
	}
	for _, s := range want.Series {
		have := r.lines[s.Name]
		if have == nil || !slices.Equal(have.X, s.X) {
			return fmt.Sprintf("%s has %+v, want updates %v", s.Name, have, s.X)
		}
		for i, y := range have.Y {
			if a, b := float64(y), float64(s.Y[i]); math.Abs(a-b) > 1e-6*math.Abs(b) {
				return fmt.Sprintf("%s at %v is %v, want %v", s.Name, s.X[i], a, b)
			}
		}
	}
	return ""
}
