package monitor

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// start is when the runs of the tests begin.
var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// folder is a run directory that a test writes.
type folder struct {
	t   testing.TB
	dir string
}

func newFolder(t *testing.T) *folder {
	return &folder{t, filepath.Join(t.TempDir(), "run")}
}

// write puts text at the end of a file.
func (f *folder) write(name, text string) {
	f.t.Helper()
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		f.t.Fatal(err)
	}
	w, err := os.OpenFile(filepath.Join(f.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := w.WriteString(text); err != nil {
		f.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
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

// update is the line of an update, a second after the previous one.
func update(u int, loss string) string {
	return fmt.Sprintf(`{"event":"update","update":%d,"loss":%s,"learning_rate":0.001,"grad_norm":1.5,"tokens":%d,"seconds":0.5,"rate":200,"wait_seconds":0.1,"time":%d,`+
		`"since":{"updates":1,"seconds":0.8,"wait_seconds":0.1,"save_seconds":0.1,"evaluation_seconds":0.1,"tokens":100,"flops":4e9}}`+"\n", u, loss, 100*u, start.Unix()+int64(u))
}

func (f *folder) updates(from, to int) {
	f.t.Helper()
	var b strings.Builder
	for u := from; u <= to; u++ {
		b.WriteString(update(u, fmt.Sprint(10/float64(u))))
	}
	f.write(train.MetricsFile, b.String())
}

// about writes the run's description.
func (f *folder) about(more string) {
	f.t.Helper()
	f.replace(InfoFile, `{"system":"refocused","preset":"p","device":"EPYC","threads":2,"processors":2,"precision":"fp32","updates":1000,"warmup_updates":10,`+
		`"batch_size":8,"gradient_accumulation_steps":4,"unit":"tokens","started":"2026-11-22T12:00:00Z",`+
		`"plan":{"arena_bytes":1000,"planned_total_bytes":2000,"capacity_bytes":9000,"peak_flops_per_second":1e10,"peak_name":"fp32 peak"}`+more+`}`)
}

func (f *folder) sample(after time.Duration, u int, more string) {
	f.t.Helper()
	f.write(SamplesFile, fmt.Sprintf(`{"time":%d,"update":%d,"process_cpu_percent":150,"machine_cpu_percent":80,"rss_bytes":1000,"rss_peak_bytes":3000,"memory_total_bytes":10000,"memory_available_bytes":5000%s}`+"\n",
		start.Add(after).Unix(), u, more))
}

func (f *folder) open() *Run {
	f.t.Helper()
	r, err := Open(f.dir)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// poll reads what is new and reports whether there was anything.
func poll(t *testing.T, r *Run) bool {
	t.Helper()
	changed, err := r.Poll()
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

func series(s *Snapshot, name string) *Series {
	for _, list := range [][]Series{s.Series, s.Machine} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// A run that is written while it is read: torn lines wait for their end, unchanged files
// are not read again, and a rewritten file is read from its start.
func TestReadWhileWritten(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.write(train.MetricsFile, `{"event":"run","update":0,"run":"x"}`+"\n")
	r := f.open()
	if poll(t, r) {
		t.Error("news where nothing was written")
	}
	line := update(1, "9.5")
	for i := range len(line) - 1 {
		f.write(train.MetricsFile, line[i:i+1])
		poll(t, r)
		if n := len(r.curve.rows); n != 0 {
			t.Fatalf("%d rows after %d of %d bytes", n, i+1, len(line))
		}
	}
	f.write(train.MetricsFile, "\n")
	if !poll(t, r) || len(r.curve.rows) != 1 || r.curve.rows[0].loss != 9.5 {
		t.Fatalf("%+v", r.curve.rows)
	}
	f.updates(2, 5000) // more than is read at a time
	if !poll(t, r) || len(r.curve.rows) != 5000 {
		t.Fatalf("%d rows", len(r.curve.rows))
	}
	for i, x := range r.curve.rows {
		if x.update != int64(i+1) {
			t.Fatalf("row %d is of update %d", i, x.update)
		}
	}
	if poll(t, r) {
		t.Error("news where nothing was written")
	}
	f.replace(train.MetricsFile, update(1, "3")+update(2, "2"))
	if !poll(t, r) || len(r.curve.rows) != 2 || r.curve.rows[1].loss != 2 {
		t.Errorf("%+v", r.curve.rows)
	}
	// Rewritten in place, longer than before: what was read no longer exists.
	text := strings.ReplaceAll(update(1, "7")+update(2, "6")+update(3, "5"), "1.5", "2.5")
	if err := os.WriteFile(r.metrics.path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if !poll(t, r) || len(r.curve.rows) != 3 || r.curve.rows[0].loss != 7 {
		t.Errorf("%+v", r.curve.rows)
	}
	if err := os.Remove(r.metrics.path); err != nil {
		t.Fatal(err)
	}
	if !poll(t, r) || len(r.curve.rows) != 0 {
		t.Errorf("%+v", r.curve.rows)
	}
}

// Damage costs its lines and nothing else: lines that are not JSON, of no known kind,
// or too long to be lines.
func TestDamage(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.write(train.MetricsFile, "\x00\x00\n{\n[]\nnull\n{\"event\":\"update\",\"update\":1}\n{\"event\":\"strange\",\"update\":1}\n"+update(1, `"NaN"`)+
		strings.Repeat("x", 3*tailChunk)+"\n"+update(2, "5"))
	f.write(SamplesFile, "{}\n{\"time\":\"x\"}\n")
	f.write(LogFile, "x\n{\"text\":5}\n")
	s := f.open().Snapshot(start.Add(3*time.Second), View{Lines: 10})
	if l := series(s, "loss"); l == nil || len(l.Y) != 2 || l.NotFinite != 1 || !math.IsNaN(float64(l.Y[0])) || l.Y[1] != 5 {
		t.Errorf("%+v", l)
	}
	if s.Update != 2 || len(s.Log) != 0 || s.Sample != nil {
		t.Errorf("%+v", s)
	}
}

// The content of the snapshot of a run in progress.
func TestSnapshot(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.updates(1, 100)
	f.write(train.MetricsFile, `{"event":"eval","update":100,"metrics":{"eval_loss":0.5,"accuracy":"NaN"},"best":true,"seconds":2,"time":`+fmt.Sprint(start.Unix()+101)+"}\n")
	for i := range 101 {
		f.sample(time.Duration(i)*time.Second, i, "")
	}
	f.write(LogFile, fmt.Sprintf(`{"time":%d,"level":"warning","text":"beware"}`+"\n", start.Unix()))
	s := f.open().Snapshot(start.Add(101*time.Second), View{Lines: 5, Width: 20})
	if s.State != Running || s.Update != 100 || s.Updates != 1000 || !s.Began.Equal(start) || !s.Updated.Equal(start.Add(100*time.Second)) {
		t.Errorf("%s (%s), update %d of %d, began %v, updated %v", s.State, s.Why, s.Update, s.Updates, s.Began, s.Updated)
	}
	if l := s.Latest; l.Loss != 0.1 || l.LR != 0.001 || l.GradNorm != 1.5 || l.Rate != 125 || l.Share != 0.5 || !math.IsNaN(float64(l.Scale)) {
		t.Errorf("%+v", l)
	}
	if x := s.Time; x.Updates != 50 || math.Abs(x.Compute-0.7) > 1e-9 || math.Abs(x.Data-0.1) > 1e-9 || math.Abs(x.Save-0.1) > 1e-9 || math.Abs(x.Evaluation-0.1) > 1e-9 {
		t.Errorf("%+v", x)
	}
	if left := float64(s.Left); math.Abs(left-900) > 1e-6 {
		t.Errorf("%v s left", left)
	}
	if m := s.Memory; m != (Memory{Planned: 2000, Arena: 1000, Capacity: 9000, Used: 1000, Peak: 3000, Limit: 10000}) {
		t.Errorf("%+v", m)
	}
	if l := series(s, "loss"); l.Points != 100 || len(l.X) > 42 || l.Y[0] != 10 || l.Y[len(l.Y)-1] != 0.1 {
		t.Errorf("%+v", l)
	}
	if c := series(s, "process_cpu"); c == nil || c.Points != 101 || c.Y[0] != 150 {
		t.Errorf("%+v", c)
	}
	if series(s, "gpu_busy") != nil || series(s, "loss_scale") != nil || series(s, "accuracy") != nil {
		t.Error("series of what was never told")
	}
	if len(s.Log) != 1 || s.Log[0].Text != "beware" || s.Log[0].Level != LevelWarning {
		t.Errorf("%+v", s.Log)
	}
	if len(s.Evaluations) != 1 || s.Evaluations[0].Metrics["eval_loss"] != 0.5 {
		t.Errorf("%+v", s.Evaluations)
	}
	if len(s.Advice) == 0 || !strings.Contains(s.Advice[0].Do, "data.workers") {
		t.Errorf("%+v", s.Advice)
	}
}

// Checkpoint lines come when a save or a removal in the background is done, and drop
// nothing; a repeated update does.
func TestLateLines(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.updates(1, 12)
	f.write(train.MetricsFile, `{"event":"eval","update":12,"metrics":{"eval_loss":1}}`+"\n"+`{"event":"checkpoint","update":4,"text":"removed step-00000004"}`+"\n")
	r := f.open()
	if len(r.curve.rows) != 12 || len(r.curve.evals) != 1 || len(r.curve.notes) != 1 {
		t.Errorf("%d updates, %d evaluations, %d notes", len(r.curve.rows), len(r.curve.evals), len(r.curve.notes))
	}
	f.updates(6, 7)
	poll(t, r)
	if n := len(r.curve.rows); n != 7 || len(r.curve.evals) != 0 {
		t.Errorf("%d updates, %d evaluations", n, len(r.curve.evals))
	}
}

// Every state that a run can be in, at the time that is passed in.
func TestStates(t *testing.T) {
	running := func(f *folder) {
		f.about("")
		f.updates(1, 20)
		f.sample(20*time.Second, 20, "")
	}
	for _, c := range []struct {
		name  string
		write func(f *folder)
		after time.Duration
		state State
		why   string
	}{
		{"empty", func(f *folder) { f.write("config.yaml", "system: refocused\n") }, 0, Empty, ""},
		{"starting", func(f *folder) { f.about("") }, 5 * time.Second, Starting, ""},
		{"starting, sampled", func(f *folder) { f.about(""); f.sample(900*time.Second, 0, "") }, 901 * time.Second, Starting, ""},
		{"running", running, 21 * time.Second, Running, ""},
		{"one update", func(f *folder) { f.about(""); f.updates(1, 1) }, 2 * time.Second, Running, ""},
		{"clock behind", running, -time.Hour, Running, ""},
		{"silent", running, 90 * time.Second, Silent, "nothing was written for 70 s"},
		{"died", running, 660 * time.Second, Died, "no update for 640 s"},
		{"died before an update", func(f *folder) { f.about(""); f.sample(0, 0, "") }, 700 * time.Second, Died, "before the first update"},
		{"stuck", func(f *folder) {
			running(f)
			for i := 21; i < 700; i++ {
				f.sample(time.Duration(i)*time.Second, 20, "")
			}
		}, 700 * time.Second, Stuck, "no update for 680 s"},
		{"evaluating for long", func(f *folder) {
			running(f)
			for i := 21; i < 700; i++ {
				f.sample(time.Duration(i)*time.Second, 20, `,"doing":"evaluating"`)
			}
		}, 700 * time.Second, Running, ""},
		{"rarely logged", func(f *folder) {
			f.about("")
			f.updates(1, 20)
			for i := 21; i < 900; i++ {
				f.sample(time.Duration(i)*time.Second, 20+i, "")
			}
		}, 900 * time.Second, Running, ""},
		{"done", func(f *folder) {
			running(f)
			f.about(`,"end":{"state":"done","update":1000,"at":"2026-11-22T12:30:00Z"}`)
		}, time.Hour, Done, ""},
		{"stopped", func(f *folder) { running(f); f.about(`,"end":{"state":"stopped","update":20}`) }, time.Hour, Stopped, ""},
		{"failed", func(f *folder) { running(f); f.about(`,"end":{"state":"failed","update":20,"text":"no space"}`) }, time.Hour, Failed, "no space"},
		{"resumed", func(f *folder) { running(f); f.about(`,"from":20,"started":"2026-11-22T12:00:20.5Z"`) }, 21 * time.Second, Starting, ""},
		{"earlier version, done", func(f *folder) {
			f.updates(1, 20)
			f.write("summary.json", `{"done":true,"updates":20,"updates_planned":20,"system":"dynamo"}`)
		}, time.Hour, Done, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t)
			c.write(f)
			s := f.open().Snapshot(start.Add(c.after), View{})
			if s.State != c.state || !strings.Contains(s.Why, c.why) {
				t.Errorf("%s: %q, want %s: %q", s.State, s.Why, c.state, c.why)
			}
		})
	}
}

// A folder that is moved away is reported and comes back; a file in its place is refused.
func TestMoved(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.updates(1, 3)
	r := f.open()
	if err := os.Rename(f.dir, f.dir+"2"); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.Poll(); err == nil || !changed {
		t.Errorf("changed %v, %v", changed, err)
	}
	if s := r.Snapshot(start, View{}); s.State != Gone || s.Update != 3 || !strings.Contains(s.Why, "no such file") {
		t.Errorf("%s: %s", s.State, s.Why)
	}
	if err := os.WriteFile(f.dir, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Poll(); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Error(err)
	}
	if err := os.Remove(f.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(f.dir+"2", f.dir); err != nil {
		t.Fatal(err)
	}
	if !poll(t, r) {
		t.Error("it came back, which is no news")
	}
	if s := r.Snapshot(start.Add(4*time.Second), View{}); s.State != Running {
		t.Errorf("%s: %s", s.State, s.Why)
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no run") {
		t.Error(err)
	}
}

// A checkpoint that was written in the background while updates went on drops none of
// them; an update from before the last one does: the run was resumed.
func TestLinesOfEarlierUpdates(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.updates(1, 9)
	f.write(train.MetricsFile, `{"event":"checkpoint","update":4,"text":"saved step-00000004"}`+"\n")
	r := f.open()
	if n := len(series(r.Snapshot(start, View{}), "loss").X); n != 9 {
		t.Errorf("%d updates, want 9", n)
	}
	f.updates(5, 6)
	poll(t, r)
	if n := len(series(r.Snapshot(start, View{}), "loss").X); n != 6 {
		t.Errorf("%d updates, want 6", n)
	}
}

// A run that consists of phases is in the state of its running phase.
func TestPhases(t *testing.T) {
	f := newFolder(t)
	f.write("config.yaml", "system: dynamo\n")
	r := f.open()
	for _, name := range []string{"phase1", "phase2"} {
		if err := os.MkdirAll(filepath.Join(f.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	one, two := &folder{t, filepath.Join(f.dir, "phase1")}, &folder{t, filepath.Join(f.dir, "phase2")}
	one.about(`,"end":{"state":"done","update":1000}`)
	one.updates(1, 10)
	poll(t, r)
	if s := r.Snapshot(start.Add(time.Hour), View{}); len(s.Phases) != 1 || s.State != Done {
		t.Errorf("%s, %d phases", s.State, len(s.Phases))
	}
	two.about(`,"phase":"phase2"`)
	two.updates(1, 5)
	poll(t, r)
	if s := r.Snapshot(start.Add(6*time.Second), View{}); len(s.Phases) != 2 || s.State != Running || s.Update != 5 || s.Info.Phase != "phase2" {
		t.Errorf("%s, update %d, %d phases", s.State, s.Update, len(s.Phases))
	}
	if poll(t, r) {
		t.Error("news where nothing was written")
	}
}

// No control character, escape sequence or change of direction gets through, wherever it
// is.
func TestHostileText(t *testing.T) {
	evil := "a\x1b[31mb\x1b]0;title\ac\u009b2Jd\x07\u202ee\x00f\xffg\r\nh\x1b"
	if got, want := Printable(evil), "abcdef\ufffdg  h"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Printable("größe 模型 🙂 ok"); got != "größe 模型 🙂 ok" {
		t.Errorf("%q", got)
	}
	if n := len([]rune(Printable(strings.Repeat("x", 1e6)))); n != maxText {
		t.Errorf("%d characters", n)
	}
	dir := filepath.Join(t.TempDir(), "r\x1b[2Jun\n")
	f := &folder{t, dir}
	quoted := `"\u001b[31mred\u0007\u202e\u009b1m"`
	f.replace(InfoFile, strings.ReplaceAll(`{"system":Q,"preset":Q,"host":Q,"device":Q,"unit":Q,"precision":Q,"notes":[Q],"settings":{Q:Q},"baselines":[{"name":Q,"value":1}],`+
		`"plan":{"peak_name":Q,"components":[{"name":Q}]},"end":{"state":"failed","text":Q}}`, "Q", quoted))
	f.write(train.MetricsFile, strings.ReplaceAll(`{"event":"eval","update":1,"metrics":{Q:1}}`+"\n"+`{"event":"trouble","update":1,"text":Q}`+"\n", "Q", quoted)+update(2, "1"))
	f.write(SamplesFile, strings.ReplaceAll(`{"time":1,"doing":Q}`+"\n", "Q", quoted))
	f.write(LogFile, strings.ReplaceAll(`{"time":1,"level":Q,"text":Q}`+"\n", "Q", quoted))
	s := f.open().Snapshot(start, View{Lines: 9})
	if s.Name != "run " || s.Info.System != "red" || s.Log[0].Text != "red" || len(s.Alerts) == 0 {
		t.Errorf("%q, %q, %+v, %+v", s.Name, s.Info.System, s.Log, s.Alerts)
	}
	for _, r := range fmt.Sprintf("%+v %+v %+v", s, *s.Sample, s.Alerts) {
		if r < ' ' || r == 0x7f || r == 0x9b || r == 0x202e {
			t.Errorf("%q is in the snapshot", r)
		}
	}
}

// A thinned series keeps its extremes, its ends and its gaps.
func TestThin(t *testing.T) {
	const n = 100_000
	y := make([]float64, n)
	for i := range y {
		y[i] = math.Sin(float64(i) / 1000)
	}
	y[12345], y[54321] = 99, -99
	for i := 70_000; i < 80_000; i++ {
		y[i] = math.NaN()
	}
	y[90_000] = math.Inf(1)
	xs, ys, bad := Thin(n, 200, func(i int) (float64, float64) { return float64(i), y[i] })
	if len(xs) > 402 || bad != 10_001 || xs[0] != 0 || xs[len(xs)-1] != n-1 {
		t.Fatalf("%d points, %d not finite, %v to %v", len(xs), bad, xs[0], xs[len(xs)-1])
	}
	low, high, gaps := 0.0, 0.0, 0
	for i, v := range ys {
		if i > 0 && xs[i] <= xs[i-1] {
			t.Fatalf("x %v after %v", xs[i], xs[i-1])
		}
		if math.IsNaN(float64(v)) {
			gaps++
			continue
		}
		low, high = min(low, float64(v)), max(high, float64(v))
	}
	if low != -99 || high != 99 || gaps < 15 || gaps > 25 {
		t.Errorf("%v to %v, %d gaps", low, high, gaps)
	}
	for n, want := range map[int]int{0: 0, 1: 1, 2: 2, 7: 7} {
		if xs, _, _ := Thin(n, 3, func(i int) (float64, float64) { return 5, float64(i) }); len(xs) > 8 || n < 7 && len(xs) != want {
			t.Errorf("%d points of %d", len(xs), n)
		}
	}
}

// Samples are bounded however many there are, their sums are exact, and a reopened writer
// continues from the file.
func TestSamplesAreBounded(t *testing.T) {
	d := held(t)
	w, err := NewSampleWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	const n = 250_000
	clock := start
	most := 0
	for i := range n {
		if clock = clock.Add(time.Second); i == 100_000 {
			clock = clock.Add(-3 * time.Hour)
		}
		w.tiers.add(NewSample(device.Sample{At: clock, ProcessCPU: float64(i % 2 * 100), RSS: int64(i)}))
		most = max(most, len(w.tiers.recent)+len(w.tiers.middle)+len(w.tiers.old))
	}
	if most > recentSamples+middleSamples+oldSamples {
		t.Errorf("%d samples", most)
	}
	if err := w.rewrite(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := w.Add(Sample{Time: seconds(clock), RSS: n}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	check := func(when string, want int) {
		t.Helper()
		r, err := Open(d.Path())
		if err != nil {
			t.Fatal(err)
		}
		looks, cpu, rss := 0, 0.0, int64(0)
		for i := range r.machine {
			looks, cpu, rss = looks+r.machine[i].looks(), cpu+float64(r.machine[i].looks())*r.machine[i].ProcessCPU, max(rss, r.machine[i].RSS)
		}
		if looks != want || math.Abs(cpu/float64(looks)-50) > 0.1 || rss != n {
			t.Errorf("%s: %d looks of %d, CPU %v, RSS %d", when, looks, want, cpu/float64(looks), rss)
		}
		if st, _ := os.Stat(filepath.Join(d.Path(), SamplesFile)); st.Size() > 2<<20 {
			t.Errorf("%s: %d bytes", when, st.Size())
		}
	}
	check("written", n+5)
	if w, err = NewSampleWriter(d); err != nil {
		t.Fatal(err)
	}
	check("opened again", n+5)
	for range addedSamples + 10 {
		if err := w.Add(Sample{Time: seconds(clock), ProcessCPU: 50}); err != nil {
			t.Fatal(err)
		}
	}
	check("written anew", n+5+addedSamples+10)
	if err := d.Begin(rundir.NewID()); err != nil {
		t.Fatal(err)
	}
	if w, err = NewSampleWriter(d); err != nil {
		t.Fatal(err)
	}
	if all := w.tiers.all(); len(all) != 0 {
		t.Errorf("%d samples of another run", len(all))
	}
}

func held(t *testing.T) *rundir.Dir {
	t.Helper()
	d, err := rundir.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Begin(rundir.NewID()); err != nil {
		t.Fatal(err)
	}
	return d
}

// The log is bounded, keeps its newest lines, and survives a torn end.
func TestLogIsBounded(t *testing.T) {
	d := held(t)
	w, err := NewLogWriter(d)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		if err := w.Add(LogLine{Time: 1, Level: LevelInfo, Text: fmt.Sprintf("line %d %s", i, strings.Repeat("x", 100))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(d.Path(), LogFile)
	if st, _ := os.Stat(path); st.Size() > maxLog || st.Size() < maxLog/2 {
		t.Errorf("%d bytes", st.Size())
	}
	f := &folder{t, d.Path()}
	f.write(LogFile, `{"time":2,"level":"info","te`)
	if w, err = NewLogWriter(d); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(LogLine{Time: 3, Level: LevelError, Text: "after\x1b[2J"}); err != nil {
		t.Fatal(err)
	}
	s := f.open().Snapshot(start, View{Lines: 2})
	if len(s.Log) != 2 || !strings.HasPrefix(s.Log[0].Text, "line 19999 ") || s.Log[1].Text != "after" {
		t.Errorf("%+v", s.Log)
	}
}

// The alerts that are based on figures, each with those figures, and runs near the limit
// that get none.
func TestAlerts(t *testing.T) {
	line := func(u int, more string) string {
		return fmt.Sprintf(`{"event":"update","update":%d,"loss":2,"grad_norm":1,"time":%d%s}`+"\n", u, start.Unix()+int64(u), more)
	}
	lines := func(n int, every int, more string) string {
		var b strings.Builder
		for u := 1; u <= n; u++ {
			if u%every == 0 {
				b.WriteString(line(u, more))
			} else {
				b.WriteString(line(u, ""))
			}
		}
		return b.String()
	}
	gpu := func(f *folder, n int, throttle int, capped, slowed string) {
		for i := range n {
			f.sample(time.Duration(i)*time.Second, i, fmt.Sprintf(`,"gpu":{"busy_percent":99,"celsius":83,"watts_cap":70,"throttle":%d,"power_capped":%s,"slowed":%s}`, throttle, capped, slowed))
		}
	}
	for _, c := range []struct {
		name  string
		write func(f *folder)
		kind  AlertKind
		level Level // empty: there must be none
		text  string
	}{
		{"spike", func(f *folder) {
			f.about("")
			f.write(train.MetricsFile, lines(100, 100, `,"loss_z":6.5,"grad_norm_z":2`))
		}, AlertSpike, LevelWarning, "update 100: loss 2 (6.5 sigma"},
		{"spikes of the norm", func(f *folder) { f.about(""); f.write(train.MetricsFile, lines(100, 50, `,"grad_norm_z":9`)) }, AlertSpike, LevelWarning, "2 spikes, the last at update 100"},
		{"no spike", func(f *folder) { f.about(""); f.write(train.MetricsFile, lines(100, 100, `,"loss_z":5.9`)) }, AlertSpike, "", ""},
		{"an old spike", func(f *folder) { f.about(""); f.write(train.MetricsFile, lines(10, 10, `,"loss_z":7`)+line(1500, "")) }, AlertSpike, LevelInfo, "update 10"},
		{"skipped", func(f *folder) {
			f.about(`,"precision":"fp16"`)
			f.write(train.MetricsFile, lines(110, 15, `,"skipped":true`))
		}, AlertSkipped, LevelWarning, "7 of 100 updates after warm-up were skipped (7 %)"},
		{"few skipped", func(f *folder) {
			f.about(`,"precision":"fp16"`)
			f.write(train.MetricsFile, lines(110, 25, `,"skipped":true`))
		}, AlertSkipped, "", ""},
		{"skipped in bf16", func(f *folder) {
			f.about(`,"precision":"bf16"`)
			f.write(train.MetricsFile, lines(110, 15, `,"skipped":true`))
		}, AlertSkipped, "", ""},
		{"skipped in warm-up", func(f *folder) {
			f.about(`,"precision":"fp16"`)
			f.write(train.MetricsFile, lines(10, 2, `,"skipped":true`)+line(60, ""))
		}, AlertSkipped, "", ""},
		{"memory", func(f *folder) { f.about(""); f.updates(1, 3); f.sample(0, 3, `,"rss_peak_bytes":9600`) }, AlertMemory, LevelWarning, "memory peaked at 9.38 KiB of 9.77 KiB"},
		{"memory left", func(f *folder) { f.about(""); f.updates(1, 3); f.sample(0, 3, `,"rss_peak_bytes":9400`) }, AlertMemory, "", ""},
		{"power cap", func(f *folder) { f.about(`,"card":true`); f.updates(1, 3); gpu(f, 10, 4, "1", "0") }, AlertPowerCap, LevelInfo, "the power cap of 70 W held the card's clocks down 100 %"},
		{"no power cap", func(f *folder) { f.about(`,"card":true`); f.updates(1, 3); gpu(f, 10, 0, "0", "0") }, AlertPowerCap, "", ""},
		{"heat", func(f *folder) { f.about(`,"card":true`); f.updates(1, 3); gpu(f, 10, 32, "0", "0.5") }, AlertHeat, LevelWarning, "heat held the card's clocks down 50 % of the last 10 s, at up to 83"},
		{"saving", func(f *folder) {
			f.about("")
			f.updates(1, 3)
			for range 2 {
				f.write(train.MetricsFile, `{"event":"checkpoint","update":3,"text":"failed : no space left on device"}`+"\n")
			}
		}, AlertSaving, LevelWarning, "no space left"},
		{"saved", func(f *folder) {
			f.about("")
			f.updates(1, 3)
			f.write(train.MetricsFile, `{"event":"checkpoint","update":3,"text":"saved step-00000003"}`+"\n")
		}, AlertSaving, "", ""},
		{"a norm that was not told", func(f *folder) {
			f.about("")
			f.write(train.MetricsFile, `{"event":"update","update":1,"loss":2}`+"\n")
		}, AlertNotFinite, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFolder(t)
			c.write(f)
			var got *Alert
			for _, a := range f.open().Snapshot(start.Add(111*time.Second), View{}).Alerts {
				if a.Kind == c.kind {
					got = &a
				}
			}
			switch {
			case c.level == "" && got != nil:
				t.Errorf("%+v", *got)
			case c.level != "" && (got == nil || got.Level != c.level || !strings.Contains(got.Text, c.text)):
				t.Errorf("%+v, want %s: %q", got, c.level, c.text)
			}
		})
	}
}

// The advice against spikes is a clipping other than the run's.
func TestSpikesAreClipped(t *testing.T) {
	for now, want := range map[string]string{
		"1": "or a lower training.max_grad_norm (now 1)", "0.5": "or a lower training.max_grad_norm (now 0.5)", "0": "or 1 for training.max_grad_norm (now 0)", "5": "or 1 for training.max_grad_norm (now 5)",
	} {
		f := newFolder(t)
		f.about(`,"settings":{"training.max_grad_norm":"` + now + `"}`)
		f.write(train.MetricsFile, `{"event":"update","update":100,"loss":2,"grad_norm":1,"loss_z":7}`+"\n")
		var did []string
		for _, a := range f.open().Snapshot(start.Add(time.Minute), View{}).Alerts {
			if a.Kind == AlertSpike {
				did = append(did, a.Do)
			}
		}
		if len(did) != 1 || !strings.HasSuffix(did[0], want) {
			t.Errorf("with %s: %q, want %q", now, did, want)
		}
	}
}
