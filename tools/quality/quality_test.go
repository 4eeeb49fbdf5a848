package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/tools/bits"
	"github.com/snug-ml/snug/train"
)

// Every quickstart that is shipped is in the table, and promises something.
func TestEveryQuickstartIsPromised(t *testing.T) {
	presets, err := config.ListPresets(configs.FS)
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for _, q := range bits.Quickstarts {
		table[q.Preset] = q.System
	}
	for _, p := range presets {
		if strings.HasSuffix(p.Name, "quickstart") && table[p.Name] == "" {
			t.Errorf("preset %s is in no row of the table", p.Name)
		}
	}
	promised := map[string]int{}
	for _, p := range promises {
		promised[p.system]++
		if presetOf(p.system) == "" {
			t.Errorf("%s, %s: no such system", p.system, p.name)
		}
	}
	for _, s := range systems() {
		if promised[s] == 0 {
			t.Errorf("nothing is promised of %s", s)
		}
	}
}

// Every format is made of settings that exist, and each run of one has a folder of its own.
func TestFormats(t *testing.T) {
	names := map[string]bool{}
	for _, c := range (&options{Formats: true, Systems: []string{"refocused", "moderation"}, Seeds: []uint64{1}, Precisions: []string{"bf16"}, ISAs: []string{"avx512"}}).cells(&results{}) {
		if names[c.folder()] {
			t.Errorf("%v has the folder of another run, %s", c, c.folder())
		}
		names[c.folder()] = true
		var overrides []config.Override
		for key, text := range c.set() {
			overrides = append(overrides, config.Override{Key: key, Text: text})
		}
		if _, err := config.Load(config.Sources{Systems: session.Configs(), Presets: configs.FS, Preset: presetOf(c.System), Overrides: overrides}); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	if len(names) != 2*len(formats) {
		t.Errorf("%d runs for %d formats of two systems", len(names), len(formats))
	}
}

// Every quickstart has a width, and once is what it is shipped with.
func TestWidths(t *testing.T) {
	of := map[string]bool{}
	for _, w := range widths {
		of[w.system] = true
		load := func(set map[string]string) string {
			var overrides []config.Override
			for key, text := range set {
				overrides = append(overrides, config.Override{Key: key, Text: text})
			}
			r, err := config.Load(config.Sources{Systems: session.Configs(), Presets: configs.FS, Preset: presetOf(w.system), Overrides: overrides})
			if err != nil {
				t.Fatalf("%s: %v", w.system, err)
			}
			return r.Hash()
		}
		for _, x := range []float64{0.5, 1, 2, 4} {
			if same := load(w.times(x)) == load(nil); same != (x == 1) {
				t.Errorf("%s, %g times as wide, is as shipped: %v", w.system, x, same)
			}
		}
	}
	for _, s := range systems() {
		if !of[s] {
			t.Errorf("%s has no width", s)
		}
	}
}

// kept is a results file in memory.
func kept(runs ...result) *results {
	r := &results{}
	r.kept.Runs = runs
	return r
}

// write puts a JSON document into a run directory.
func write(t *testing.T, dir, name string, v any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
}

// A result is read from the run directory and compared with its bound and its
// baseline; one that failed keeps what it reached.
func TestResults(t *testing.T) {
	summary := func(loss, bigram float64) string {
		dir := t.TempDir()
		write(t, dir, "summary.json", map[string]any{"eval_loss": loss, "baseline_bigram_loss": bigram, "device": "a machine"})
		log := fmt.Sprintf(`{"event":"eval","update":3,"metrics":{"eval_loss":5}}
{"event":"eval","update":5,"metrics":{"eval_loss":"NaN"}}
{"event":"eval","update":6,"metrics":{"eval_loss":%v}}
`, loss)
		if err := os.WriteFile(filepath.Join(dir, train.MetricsFile), []byte(log), 0o666); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for _, c := range []struct {
		loss, bigram float64
		misses       string
	}{
		{3.5, 4.2, ""},
		{4.3, 5.2, "loss, nats a token is 4.3, promised is 4.2"},
		{3.7, 4.2, "loss, nats a token is 3.7, its baseline 4.2, promised is 0.6 better"},
	} {
		x := &result{cell: cell{program: program{System: "refocused"}}}
		if err := x.read(summary(c.loss, c.bigram)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(x.misses(), "; "); got != c.misses {
			t.Errorf("a loss of %v next to %v misses %q, want %q", c.loss, c.bigram, got, c.misses)
		}
		if !slices.Equal(x.Curve, []point{{3, 5}, {6, c.loss}}) {
			t.Errorf("the curve is %v", x.Curve)
		}
		if x.Device != "a machine" {
			t.Errorf("device %q", x.Device)
		}
	}
	if err := (&result{cell: cell{program: program{System: "refocused"}}}).read(t.TempDir()); err == nil {
		t.Error("a run without a summary is read")
	}
	failed := &result{cell: cell{program: program{System: "refocused"}}, Failed: "exit status 1"}
	if err := failed.read(t.TempDir()); err != nil {
		t.Error(err)
	}
	if r := newReport(kept(*failed), []cell{failed.cell}); r.verdict() == nil {
		t.Error("a run that failed keeps its promises")
	}
	dir := t.TempDir()
	write(t, dir, "summary.json", map[string]any{"eval_loss": "NaN", "baseline_bigram_loss": 4})
	if err := (&result{cell: cell{program: program{System: "refocused"}}}).read(dir); err == nil || !strings.Contains(err.Error(), "not a finite number") {
		t.Errorf("a loss that is no number is read: %v", err)
	}
}

// The results file has each cell once and records what is done.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	a, b := cell{program{"refocused", "fp32", "avx2", ""}, 1, "c"}, cell{program{"refocused", "fp32", "avx2", ""}, 2, "c"}
	r, err := readResults(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []result{{cell: a, Failed: "no"}, {cell: b}, {cell: a, Seconds: 3}} {
		if err := r.add(x); err != nil {
			t.Fatal(err)
		}
	}
	if r, err = readResults(path); err != nil {
		t.Fatal(err)
	}
	if len(r.kept.Runs) != 2 || !r.has(a, true) || !r.has(b, false) || r.has(cell{program{"refocused", "fp32", "avx2", ""}, 1, "d"}, false) {
		t.Errorf("the file holds %+v", r.kept.Runs)
	}
	if err := r.add(result{cell: b, Failed: "no"}); err != nil || r.has(b, true) || !r.has(b, false) {
		t.Errorf("what failed is run anew where that is asked for, and only there: %v", err)
	}
}

// A run counts for as long as its program computes the same.
func TestRunsCountWhileBitsStay(t *testing.T) {
	o := &options{Systems: []string{"refocused"}, Seeds: []uint64{1}, Precisions: []string{"fp32"}, ISAs: []string{"avx2"}}
	r := &results{path: filepath.Join(t.TempDir(), "results.json")}
	for _, b := range []struct {
		bits, commit string
		counts       bool
	}{{"1", "a", false}, {"1", "b", true}, {"2", "c", false}} {
		if err := r.tried(bitsOf{o.programs()[0], b.bits, b.commit}); err != nil {
			t.Fatal(err)
		}
		cells := o.cells(r)
		if got := r.has(cells[0], false); len(cells) != 1 || got != b.counts {
			t.Errorf("at %s a run of %v counts: %v", b.commit, cells, got)
		}
		if b.commit == "a" {
			if err := r.add(result{cell: cells[0]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(r.kept.Programs) != 1 || len(r.kept.Runs) != 1 {
		t.Errorf("the file holds %+v", r.kept)
	}
}

// One run prepares the data of a system and seed, the others wait for it.
func TestPreparedOnce(t *testing.T) {
	a, b, other := cell{program{"refocused", "fp32", "avx2", ""}, 1, "c"}, cell{program{"refocused", "bf16", "avx2", ""}, 1, "c"}, cell{program{"refocused", "fp32", "avx2", ""}, 2, "c"}
	s := &scheduler{options: &options{}, prepared: map[string]bool{}, todo: []cell{a, b, other}}
	first, _ := s.next()
	second, _ := s.next()
	none, more := s.next()
	if *first != a || *second != other || none != nil || !more {
		t.Fatalf("first %v, second %v, third %v (more: %v)", first, second, none, more)
	}
	s.prepared[s.data(a)] = true
	if last, _ := s.next(); last == nil || *last != b {
		t.Errorf("after the prepared one comes %v", last)
	}
	if _, more := s.next(); more {
		t.Error("there is more than all")
	}
}

// The spread is reported by precision, with what was run and what was not kept;
// what is around it in the document stays.
func TestReport(t *testing.T) {
	var all []result
	var asked []cell
	for seed, loss := range []float64{3.4, 3.5, 3.7} {
		c := cell{program{"refocused", "fp32", "avx2", ""}, uint64(seed), "c"}
		asked = append(asked, c)
		all = append(all, result{cell: c, Date: "2026-01-02", Device: "m", Figures: map[string]float64{"loss, nats a token": loss}, Baselines: map[string]float64{"loss, nats a token": 4}})
	}
	r := newReport(kept(all...), append(asked, cell{program{"refocused", "fp32", "avx2", ""}, 9, "c"}))
	if len(r.missing) != 1 {
		t.Errorf("missing %v", r.missing)
	}
	doc := filepath.Join(t.TempDir(), "quality.md")
	if err := os.WriteFile(doc, []byte("# Quality\n\nprose\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := writeDoc(doc, r.markdown()); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Quality\n\nprose\n", "at most 4.2 | 4 (4 to 4) | 3.5 (3.4 to 3.7) |", "fp32 avx2 (0, 1, 2)", "- moderation: nothing", "refocused fp32 avx2 seed 2: loss, nats a token is 3.7, its baseline 4, promised is 0.6 better"} {
		if strings.Count(string(raw), want) != 1 {
			t.Errorf("the document does not say %q once:\n%s", want, raw)
		}
	}
	if r.verdict() == nil {
		t.Error("a promise that is not kept is no error")
	}
}

// Formats are compared row by row, that of the quickstart first; they promise nothing.
func TestByFormat(t *testing.T) {
	var all []result
	var asked []cell
	for _, x := range []struct {
		format string
		loss   float64
	}{{"lion", 3.9}, {"", 3.5}, {"lion", 4.1}} {
		c := cell{program{"refocused", "bf16", "avx2", x.format}, uint64(len(asked)), "c"}
		asked = append(asked, c)
		all = append(all, result{cell: c, Date: "2026-01-02", Device: "m", Figures: map[string]float64{"loss, nats a token": x.loss}, Baselines: map[string]float64{"loss, nats a token": 4.2},
			Curve: []point{{10, 6}, {20, x.loss}}})
	}
	r := newReport(kept(all...), asked)
	want := "| refocused | loss, nats a token | seeds |\n|---|---|---|\n| adamw | 3.5 | 1 |\n| lion | 4 (3.9 to 4.1) | 2 |\n"
	if got := r.byFormat(); !strings.HasSuffix(got, want) {
		t.Errorf("the table is\n%s\nwant at its end\n%s", got, want)
	}
	if err := r.verdict(); err != nil {
		t.Errorf("Lion breaks a promise of AdamW's: %v", err)
	}

	plot := r.plot()
	var drawn struct {
		Circles []struct {
			X float64 `xml:"cx,attr"`
			Y float64 `xml:"cy,attr"`
		} `xml:"circle"`
		Lines []struct {
			Color  string `xml:"stroke,attr"`
			Points string `xml:"points,attr"`
		} `xml:"polyline"`
		Texts []string `xml:"text"`
	}
	if err := xml.Unmarshal([]byte(plot), &drawn); err != nil {
		t.Fatalf("%v\n%s", err, plot)
	}
	if c := drawn.Circles; len(c) != 3 || c[0].X >= c[1].X || c[1].X >= c[2].X || c[0].Y >= c[1].Y || c[1].Y != c[2].Y {
		t.Errorf("drawn at %v, want AdamW's seed to the left in a row above Lion's two", c)
	}
	if l := drawn.Lines; len(l) != 3 || l[0].Color == l[1].Color || l[1].Color != l[2].Color || len(strings.Fields(l[0].Points)) != 2 {
		t.Errorf("the curves are %q, want AdamW's and two of Lion's, in their colors", l)
	}
	if want := []string{"refocused: held-out loss by update", "refocused: loss, nats a token (lower is better)", "adamw", "lion", "3.5", "4.1"}; slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(drawn.Texts, w) }) {
		t.Errorf("the texts are %q, want among them %q", drawn.Texts, want)
	}
}
