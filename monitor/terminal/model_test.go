package terminal

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
)

var update = flag.Bool("update", false, "write the golden files")

// start is when the runs of the tests begin.
var start = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// folder is a run directory that a test writes.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T, name string) *folder {
	f := &folder{t, filepath.Join(t.TempDir(), name)}
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *folder) write(name, text string) *folder {
	f.t.Helper()
	w, err := os.OpenFile(filepath.Join(f.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = w.WriteString(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return f
}

func (f *folder) line(name string, v any) {
	f.t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write(name, string(raw)+"\n")
}

// about writes the run's description; more overrides it.
func (f *folder) about(more map[string]any) *folder {
	info := map[string]any{
		"system": "refocused", "preset": "quickstart", "device": "EPYC", "threads": 2, "processors": 4, "precision": "bf16", "parameters": 5256704, "updates": 200,
		"batch_size": 16, "gradient_accumulation_steps": 2, "unit": "tokens", "started": start, "monitored_metric": "eval_loss", "data_workers": 1,
		"plan": map[string]any{"arena_bytes": 1 << 27, "planned_total_bytes": 3 << 27, "capacity_bytes": 1 << 30, "peak_flops_per_second": 1e11, "peak_name": "measured bf16 peak"},
	}
	for k, v := range more {
		info[k] = v
	}
	f.line(monitor.InfoFile, info)
	return f
}

// updates writes curves that fall from a loss to about a third of it, one second per
// update.
func (f *folder) updates(from, to int, loss float64) *folder {
	for u := from; u <= to; u++ {
		x := float64(u)
		at := float64(start.Unix()) + x
		f.line(train.MetricsFile, map[string]any{
			"event": "update", "update": u, "loss": loss * (0.3 + 0.7*math.Exp(-x/40)) * (1 + 0.05*math.Sin(x)), "learning_rate": 1e-3 * math.Min(x/20, 1), "grad_norm": 1 + math.Sin(x/7)/2,
			"time": at, "since": map[string]any{"updates": 1, "seconds": 0.9, "wait_seconds": 0.1, "save_seconds": 0.05, "evaluation_seconds": 0.05, "tokens": 12345, "flops": 4e10},
		})
		if u%25 == 0 {
			f.line(train.MetricsFile, map[string]any{"event": "eval", "update": u, "time": at, "best": u != 75, "metrics": map[string]any{"eval_loss": loss * (0.35 + 0.7*math.Exp(-x/40)), "accuracy": x / 300}})
		}
	}
	return f
}

// samples writes samples of the machine, and at a card if there is one.
func (f *folder) samples(to int, card bool) *folder {
	for i := range to {
		x := float64(i)
		s := map[string]any{
			"time": start.Unix() + int64(i), "update": i, "process_cpu_percent": 180 + 10*math.Sin(x/5), "machine_cpu_percent": 70 + 5*math.Sin(x/9), "rss_bytes": 1<<28 + i<<16,
			"rss_peak_bytes": 1 << 29, "memory_total_bytes": 1 << 34, "memory_available_bytes": 1 << 33, "load": 2.5,
		}
		if card {
			s["gpu"] = map[string]any{
				"busy_percent": 95, "memory_used_bytes": 6 << 30, "memory_total_bytes": 15 << 30, "celsius": 60 + x/20, "watts": 68, "watts_cap": 70, "sm_mhz": 1215, "sm_mhz_max": 1590,
				"throttle": 4, "power_capped": 1,
			}
		}
		f.line(monitor.SamplesFile, s)
	}
	return f
}

func (f *folder) log(texts ...string) *folder {
	for i, text := range texts {
		f.line(monitor.LogFile, monitor.LogLine{Time: float64(start.Unix() + int64(i)), Level: monitor.LevelInfo, Update: int64(10 * i), Text: text})
	}
	return f
}

// frame returns what a watcher would show at a time.
func frame(t *testing.T, after time.Duration, folders ...*folder) Frame {
	t.Helper()
	f := Frame{Now: start.Add(after), News: true}
	for _, x := range folders {
		r, err := monitor.Open(x.dir)
		if err != nil {
			t.Fatal(err)
		}
		s := r.Snapshot(f.Now, monitor.View{Width: 200, Lines: 50})
		for _, p := range append(s.Phases, s) {
			p.Path = filepath.Base(p.Path) // the same on every machine
			for i := range p.Alerts {
				p.Alerts[i].Do = strings.ReplaceAll(p.Alerts[i].Do, x.dir, "runs/"+filepath.Base(x.dir))
			}
		}
		f.Runs = append(f.Runs, s)
	}
	return f
}

// press returns the message of a key.
func press(k string) tea.Msg {
	switch k {
	case "tab":
		return tea.KeyPressMsg{Code: tea.KeyTab}
	case "enter":
		return tea.KeyPressMsg{Code: tea.KeyEnter}
	case "right":
		return tea.KeyPressMsg{Code: tea.KeyRight}
	case "space":
		return tea.KeyPressMsg{Code: tea.KeySpace}
	}
	return tea.KeyPressMsg{Code: rune(k[0]), Text: k}
}

// screen returns what the model shows after messages.
func screen(o Options, w, h int, msgs ...tea.Msg) string {
	var m tea.Model = New(o)
	for _, msg := range append([]tea.Msg{tea.WindowSizeMsg{Width: w, Height: h}}, msgs...) {
		m, _ = m.Update(msg)
	}
	return m.View().Content
}

func TestGoldens(t *testing.T) {
	color := Options{Looks: Looks{Color: true}}
	mono, ascii := Options{}, Options{Looks: Looks{ASCII: true}}
	running := newFolder(t, "quick").about(nil).updates(1, 120, 9).samples(120, false).log("data: 12 files", "training begins", "evaluation after update 100: eval_loss 3.5")
	now := 121 * time.Second
	empty := newFolder(t, "empty").write("config.yaml", "system: refocused\n")
	one := newFolder(t, "one").about(nil).updates(1, 1, 9)
	notANumber := newFolder(t, "nan").about(nil).updates(1, 10, 9).
		write(train.MetricsFile, `{"event":"update","update":11,"loss":"NaN","grad_norm":"+Inf","time":1795348811}`+"\n").updates(12, 30, 9).write(train.MetricsFile, `{"event":"update","upda`)
	never := newFolder(t, "never").about(nil).write(train.MetricsFile, `{"event":"update","update":1,"loss":"NaN","grad_norm":"NaN","time":1795348801}`+"\n")
	slower := newFolder(t, "slower").about(map[string]any{"preset": "other"}).updates(1, 80, 12).samples(80, false)
	card := newFolder(t, "t4").about(map[string]any{"card": true, "device": "Tesla T4", "precision": "fp16"}).updates(1, 120, 9).samples(120, true)
	phases := newFolder(t, "phased").write("config.yaml", "system: dynamo\n")
	for i, name := range []string{"phase1", "phase2"} {
		if err := os.Mkdir(filepath.Join(phases.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		p := &folder{t, filepath.Join(phases.dir, name)}
		more := map[string]any{"phase": name, "started": start.Add(time.Duration(i) * time.Minute)}
		if i == 0 {
			more["end"] = map[string]any{"state": "done", "update": 200}
		}
		p.about(more).updates(1, 60+20*i, 9)
	}
	hostile := newFolder(t, "r\x1b[2Jun").about(map[string]any{"preset": "\x1b]0;x\a模型 very long name of a preset indeed", "host": "\u202ehost"}).updates(1, 5, 3).log("\x1b[31mred\x07 日本語 " + strings.Repeat("long ", 100))
	for _, c := range []struct {
		name string
		o    Options
		w, h int
		msgs []tea.Msg
	}{
		{"80x24", mono, 80, 24, []tea.Msg{frame(t, now, running)}},
		{"80x24-color", color, 80, 24, []tea.Msg{frame(t, now, running)}},
		{"80x24-ascii", ascii, 80, 24, []tea.Msg{frame(t, now, running)}},
		{"40x12", mono, 40, 12, []tea.Msg{frame(t, now, running)}},
		{"300x80", mono, 300, 80, []tea.Msg{frame(t, now, running)}},
		{"nothing-read", mono, 80, 24, nil},
		{"empty", mono, 80, 24, []tea.Msg{frame(t, now, empty)}},
		{"one-point", mono, 80, 24, []tea.Msg{frame(t, 2*time.Second, one)}},
		{"not-a-number", mono, 80, 24, []tea.Msg{frame(t, 31*time.Second, notANumber)}},
		{"never-a-number", mono, 80, 24, []tea.Msg{frame(t, 2*time.Second, never)}},
		{"died", mono, 80, 24, []tea.Msg{frame(t, 720*time.Second, running)}},
		{"several", mono, 120, 30, []tea.Msg{frame(t, now, running, slower)}},
		{"several-color", color, 120, 30, []tea.Msg{frame(t, now, running, slower), press("right")}},
		{"phases", mono, 100, 30, []tea.Msg{frame(t, 142*time.Second, phases)}},
		{"card", mono, 120, 40, []tea.Msg{frame(t, now, card)}},
		{"hostile", mono, 80, 24, []tea.Msg{frame(t, 6*time.Second, hostile)}},
		{"help", mono, 80, 24, []tea.Msg{frame(t, now, running), press("?")}},
		{"help-40x12", mono, 40, 12, []tea.Msg{frame(t, now, running), press("?")}},
		{"messages", mono, 80, 24, []tea.Msg{frame(t, now, card), press("m")}},
		{"log-smooth-zoom", mono, 80, 24, []tea.Msg{frame(t, now, running), press("l"), press("s"), press("+")}},
		{"panel-alone", mono, 80, 24, []tea.Msg{frame(t, now, running), press("tab"), press("tab"), press("enter")}},
		{"paused", mono, 80, 24, []tea.Msg{frame(t, now, running), press("space"), frame(t, 2*time.Second, one)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := screen(c.o, c.w, c.h, c.msgs...)
			fits(t, got, c.w, c.h)
			path := filepath.Join("testdata", c.name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got+"\n" != string(want) {
				t.Errorf("got\n%s\nwant\n%s\n(go test ./monitor/terminal -update writes it anew)", got, want)
			}
		})
	}
}

// fits checks that a screen has its size, and no escape sequences except colors.
func fits(t *testing.T, text string, w, h int) {
	t.Helper()
	lines := strings.Split(text, "\n")
	if len(lines) != h {
		t.Errorf("%d lines of %d", len(lines), h)
	}
	for i, l := range lines {
		if n := ansi.StringWidth(l); n > w {
			t.Errorf("line %d has %d columns of %d: %q", i, n, w, l)
		}
		for _, r := range ansi.Strip(l) {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e {
				t.Errorf("line %d has %q", i, r)
			}
		}
	}
}

// Any size of the screen and any sequence of keys is handled.
func TestEverySizeAndKey(t *testing.T) {
	f := []*folder{
		newFolder(t, "a").about(nil).updates(1, 60, 9).samples(60, true).log("one", "two"), newFolder(t, "b").about(nil).updates(1, 3, 5),
		newFolder(t, "c").write("config.yaml", "x: y\n"),
	}
	frames := []Frame{{}, {News: true, Err: "gone"}, frame(t, time.Minute, f[2]), frame(t, time.Minute, f[0]), frame(t, time.Minute, f...)}
	keys := []string{"tab", "right", "l", "s", "+", "+", "-", "0", "m", "m", "enter", "enter", "?", "?", "space", "space", "k", "p", "1", "9"}
	for _, size := range [][2]int{{0, 0}, {1, 1}, {2, 3}, {10, 4}, {20, 8}, {40, 12}, {79, 15}, {80, 24}, {133, 17}, {300, 80}} {
		for _, ascii := range []bool{false, true} {
			for i, fr := range frames {
				var m tea.Model = New(Options{Looks: Looks{Color: i%2 == 0, ASCII: ascii}})
				m, _ = m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
				for n := range keys {
					m, _ = m.Update(press(keys[n]))
					m, _ = m.Update(fr)
					if size[1] > 0 {
						fits(t, m.View().Content, size[0], size[1])
					}
				}
			}
		}
	}
}

// A watcher with nothing new returns the same frame again, and one whose run cannot be
// read reports that.
func TestWatcher(t *testing.T) {
	f := newFolder(t, "run").about(nil).updates(1, 5, 3)
	r, err := monitor.Open(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	w := WatchRuns(r)
	v := monitor.View{Width: 80}
	if first := w.Look(v); !first.News || first.Runs[0].Update != 5 || !first.Over() {
		t.Errorf("%+v", first)
	}
	if again := w.Look(v); again.News || len(again.Runs) != 1 {
		t.Errorf("news where nothing was written: %+v", again)
	}
	if wider := w.Look(monitor.View{Width: 100}); !wider.News {
		t.Error("another view is no news")
	}
	f.updates(6, 7, 3)
	for range 100 { // it may rest, for two hundred times as long as a look takes
		if fr := w.Look(monitor.View{Width: 100}); fr.News {
			if fr.Runs[0].Update != 7 {
				t.Errorf("update %d", fr.Runs[0].Update)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("an update was not seen")
}

func TestLine(t *testing.T) {
	f := newFolder(t, "run").about(nil).updates(1, 100, 9).samples(101, false)
	got := Line(frame(t, 101*time.Second, f).Runs[0])
	for _, want := range []string{"run  running  100/200  loss 3.", "eval loss 3.", "13.7k tokens/s", "44 % of the measured bf16 peak", "lr 0.001", "mem 262 MiB (384 MiB planned)", "machine 65 %", "left"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}

// The lines of an update of microseconds, and of one on a card, are ASCII as well.
func TestLineIsASCII(t *testing.T) {
	f := newFolder(t, "run").about(nil).samples(5, true)
	f.line(train.MetricsFile, map[string]any{
		"event": "update", "update": 1, "loss": 3.5, "time": float64(start.Unix()) + 1, "since": map[string]any{"updates": 1, "seconds": 12e-6, "tokens": 5},
	})
	got := Line(frame(t, 2*time.Second, f).Runs[0])
	for _, want := range []string{"12 us an update", "60 C"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if strings.ContainsFunc(got, func(r rune) bool { return r > '~' }) {
		t.Errorf("%q is not ASCII", got)
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{clock(59.6), "1:00"}, {clock(3725), "1:02:05"}, {clock(-5), "-5 s"}, {duration(0.00001), "10 µs"}, {duration(0.25), "250 ms"}, {duration(150), "2m30s"}, {duration(math.NaN()), "?"},
		{figure(1234.5678, 0), "1235"}, {figure(1.000012, 0.00002), "1.000012"}, {figure(0.0003, 0), "3.0e-04"}, {figure(0, 0), "0"}, {size.Count(12345), "12.3k"}, {size.Count(3), "3"},
		{fmt.Sprint(wrap("aaa bbb ccc ddd", 10, 2)), "[aaa bbb   ccc ddd]"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
