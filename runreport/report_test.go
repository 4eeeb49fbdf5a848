package runreport

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
)

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// runIn writes a run of 30 updates, evaluated at every tenth, like a session's.
func runIn(t *testing.T, dir, rate, end string) string {
	t.Helper()
	write(t, dir, monitor.InfoFile, `{"snug":"v1","system":"refocused","preset":"p","device":"EPYC","threads":2,"precision":"fp32","updates":40,"started":"2026-11-22T12:00:00Z",
"parameters":1234567,"parameters_trained":1234567,"batch_size":8,"gradient_accumulation_steps":4,"unit":"tokens","units_per_update":2048,"monitored_metric":"eval_loss",
"baselines":[{"name":"unigram","value":5.5}],"settings":{"training.learning_rate":"`+rate+`","data.source":"[a.txt]"},
"plan":{"arena_bytes":1000000,"planned_total_bytes":2000000,"update_seconds":0.5,"units_per_second":4096,"components":[{"name":"weights","bytes":900000}]}`+end+`}`)
	var b strings.Builder
	for u := 1; u <= 30; u++ {
		fmt.Fprintf(&b, `{"event":"update","update":%d,"loss":%g,"learning_rate":%s,"grad_norm":1,"time":%d,"since":{"updates":1,"seconds":0.8,"wait_seconds":0.1,"save_seconds":0.1,"evaluation_seconds":0.1,"tokens":2048}}`+"\n",
			u, 6/float64(u), rate, 1795348800+u)
		if u%10 == 0 {
			fmt.Fprintf(&b, `{"event":"eval","update":%d,"metrics":{"eval_loss":%g},"best":%t}`+"\n", u, 3+float64(u%20)/10, u <= 20)
		}
	}
	write(t, dir, train.MetricsFile, b.String()+`{"event":"update","upd`) // torn
	write(t, dir, monitor.SamplesFile, `{"time":1795348805,"update":3,"process_cpu_percent":150,"machine_cpu_percent":80,"rss_bytes":1000000,"rss_peak_bytes":3000000,"memory_total_bytes":10000000}`+"\n"+
		`{"time":1795348830,"update":29,"process_cpu_percent":170,"machine_cpu_percent":90,"rss_bytes":1100000,"rss_peak_bytes":3100000,"memory_total_bytes":10000000}`+"\n")
	write(t, dir, monitor.LogFile, `{"time":1795348800,"level":"info","text":"begins"}`+"\n"+`{"time":1795348803,"level":"warning","update":2,"text":"disk is <slow> | *very*"}`+"\n")
	return dir
}

func presets(system, preset string) map[string]string {
	if system != "refocused" || preset != "p" {
		return nil
	}
	return map[string]string{"training.learning_rate": "0.001", "data.source": "[]"}
}

func opened(t *testing.T, dirs ...string) *Report {
	t.Helper()
	r, err := Open(dirs, presets)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t *testing.T, r *Report, format string) string {
	t.Helper()
	b, err := r.Text(format, "")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A report names what was trained, the result, and the file that each figure is from.
func TestOneRun(t *testing.T) {
	dir := runIn(t, filepath.Join(t.TempDir(), "run"), "0.003", "")
	r := opened(t, dir)
	x := r.Runs[0]
	if len(x.Changed) != 2 || x.Changed[1] != (Change{"training.learning_rate", "0.003", "0.001"}) {
		t.Errorf("settings %v", x.Changed)
	}
	if x.TotalTime.Updates != 30 || x.best().Update != 20 {
		t.Errorf("%+v, best %+v", x.TotalTime, x.best())
	}
	md := text(t, r, Markdown)
	for _, want := range []string{
		"no end is recorded after 30 of 40 updates. Best eval loss 3 at update 20, unigram 5.5.",
		"| parameters | 1,234,567, 1,234,567 of them trained |", "| training.learning\\_rate | 0.003 | 0.001 |",
		"| eval loss (monitored) | 3 | 4 |", "| unigram | 5.5 | \\-2.5 |", "| computing | 21.0 | 70.0 % |", "| peak | 2.96 MiB | 3,100,000 |",
		"| seconds | 0.5 | 0.8 |", "disk is &lt;slow&gt; \\| \\*very\\*", "(from samples.jsonl)", "(from metrics.jsonl)", "(from log.jsonl)", "(from run.json)",
		"| loss | loss over update (from metrics.jsonl) | 30 | 6 | 0.2 | 0.2 | 6 |",
	} {
		if !strings.Contains(md, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(md)
	}
	for _, s := range r.Page().Sections {
		for _, table := range s.Tables {
			if table.Source == "" {
				t.Errorf("%s: a table without a source: %v", s.Title, table.Rows)
			}
		}
		for _, f := range s.Figures {
			if f.Source == "" {
				t.Errorf("%s: picture %q has no source", s.Title, f.Caption)
			}
		}
	}
	var back Report
	if err := json.Unmarshal([]byte(text(t, r, JSON)), &back); err != nil || back.Runs[0].Update != 30 {
		t.Errorf("%v: %+v", err, back.Runs)
	}
}

// The report of a copy of the folder, made at another time, is the same to the byte.
func TestSameBytes(t *testing.T) {
	a := runIn(t, filepath.Join(t.TempDir(), "run"), "0.003", "")
	b := runIn(t, filepath.Join(t.TempDir(), "run"), "0.003", "")
	for _, format := range []string{HTML, Markdown} {
		first := text(t, opened(t, a), format)
		if text(t, opened(t, a), format) != first || text(t, opened(t, b), format) != first {
			t.Errorf("%s: other bytes of the same files", format)
		}
	}
}

// How a run ended is taken from its record; whether one without an end is alive is not
// reported.
func TestEnds(t *testing.T) {
	for _, c := range []struct{ end, want string }{
		{`,"end":{"at":"2026-11-22T12:01:00Z","state":"done","update":30}`, "done after 30 of 40"},
		{`,"end":{"at":"2026-11-22T12:01:00Z","state":"stopped","update":30,"text":"by hand"}`, "stopped after 30 of 40"},
		{`,"end":{"at":"2026-11-22T12:01:00Z","state":"failed","update":30,"text":"not finite"}`, "failed: not finite"},
		{"", "it was still training when this was read, or it died"},
	} {
		md := text(t, opened(t, runIn(t, filepath.Join(t.TempDir(), "run"), "0.001", c.end)), Markdown)
		if !strings.Contains(md, c.want) {
			t.Errorf("%s: no %q", c.end, c.want)
		}
		if strings.Contains(md, "died: no update") {
			t.Error("a report without a clock says that a run died")
		}
	}
}

// Runs are compared: what differs in settings and figures, with their curves overlaid.
func TestComparison(t *testing.T) {
	root := t.TempDir()
	a, b := runIn(t, filepath.Join(root, "a", "run"), "0.003", ""), runIn(t, filepath.Join(root, "b", "run"), "0.001", "")
	r := opened(t, a, b)
	if r.Runs[0].Name != filepath.Join("a", "run") || r.Runs[1].Name != filepath.Join("b", "run") {
		t.Errorf("names %q, %q", r.Runs[0].Name, r.Runs[1].Name)
	}
	if len(r.Settings) != 1 || r.Settings[0].Name != "training.learning_rate" || r.Settings[0].Values[0] != "0.003" || r.Settings[0].Values[1] != "0.001" {
		t.Errorf("settings %v", r.Settings)
	}
	loss := r.overlaid(monitor.PanelLoss)[0].Drawing.(report.Chart)
	if len(loss.Series) != 2 || len(loss.Series[0].X) != 30 || loss.Series[1].Name != r.Runs[1].Name {
		t.Errorf("%+v", loss)
	}
	if _, err := Open([]string{a, a}, presets); err == nil || !strings.Contains(err.Error(), "named twice") {
		t.Errorf("%v", err)
	}
}

// Pictures are files that an SVG reader takes, named for what they show.
func TestPictures(t *testing.T) {
	dir := runIn(t, filepath.Join(t.TempDir(), "run"), "0.003", "")
	out := filepath.Join(t.TempDir(), "out")
	path, n, err := opened(t, dir).Write(out, Markdown, "svg")
	if err != nil || n < 5 {
		t.Fatalf("%d pictures, %v", n, err)
	}
	md, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(md), "](01-loss.svg)") {
		t.Errorf("%v: the report does not show 01-loss.svg", err)
	}
	picture, err := os.ReadFile(filepath.Join(out, "01-loss.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The contents of a hostile or damaged folder are shown, never interpreted.
func TestHostile(t *testing.T) {
	dir := runIn(t, filepath.Join(t.TempDir(), `<script>alert(1)</script>|"x`), "0.003", "")
	write(t, dir, report.DataFile, `{"title":"<img src=x onerror=alert(1)>","sections":[{"title":"</section>","figures":[{"caption":"<b>","chart":{"x":"u","y":"\"><script>","series":[{"name":"<i>","style":"line","x":[1e17,100000000000000016],"y":[null,1e308]}]}}]}]}`)
	r := opened(t, dir)
	html, md := text(t, r, HTML), text(t, r, Markdown)
	for _, bad := range []string{"<script", "<img", "<b>", "<i>"} {
		if strings.Contains(html, bad) || strings.Contains(md, bad) {
			t.Errorf("the report holds %q", bad)
		}
	}
	for _, bad := range []string{
		`{`, `{"sections":[{"figures":[{}]}]}`, `{"sections":[{"figures":[{"heatmap":{"labels":["a"],"counts":[[1,2]]}}]}]}`,
		`{"sections":[{"figures":[{"chart":{"x_range":[2,1]}}]}]}`, `{"sections":[{"figures":[{"chart":{"series":[{"style":"wavy"}]}}]}]}`,
	} {
		write(t, dir, report.DataFile, bad)
		if md := text(t, opened(t, dir), Markdown); !strings.Contains(md, "Files that could not be read") {
			t.Errorf("%s: no word of it", bad)
		}
	}
	empty := t.TempDir()
	if _, err := Open([]string{empty, filepath.Join(empty, "none")}, presets); err == nil || !strings.Contains(err.Error(), "holds no run") || !strings.Contains(err.Error(), "none") {
		t.Errorf("%v", err)
	}
}
