package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/metric"
	"github.com/snug-ml/snug/train/rundir"
)

func page() *Page {
	return &Page{
		Title: "a <run> & its result", Lead: "good",
		Sections: []Section{{
			Title:  "figures",
			Tables: []Table{{Caption: "c", Header: []string{"name", "value"}, Rows: [][]string{{"<b>", "1"}}}},
			Figures: []Figure{
				{Caption: "lines", Drawing: Chart{X: "update", Y: "loss", Series: []Series{
					{Name: "train", X: []float64{0, 1, 2, 3}, Y: []float64{3, math.NaN(), 1, math.Inf(1)}},
					{Name: "bars", X: []float64{0, 1}, Y: []float64{1, 2}, Style: Bars},
					{Name: "dots & <more>", X: []float64{0, 1}, Y: []float64{1, 2}, Style: Points},
					{Name: "steps", X: []float64{0, 1}, Y: []float64{1, 2}, Style: Step},
					{Name: "to compare", X: []float64{0, 3}, Y: []float64{1, 2}, Style: Dashed},
				}, Marks: []Mark{{1, 2, `"chosen"`}, {math.NaN(), 0, "nowhere"}}}},
				{Caption: "nothing", Drawing: Chart{X: "x", Y: "y"}},
				{Caption: "one point", Drawing: Chart{X: "x", Y: "y", Series: []Series{{X: []float64{5}, Y: []float64{5}}}}},
				{Caption: "matrix", Drawing: Heatmap{metric.Confusion{TP: 1, FP: 2, TN: 3, FN: 4}.Matrix("<no>", "yes")}},
			},
		}},
	}
}

func write(t *testing.T, p *Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPage: every chart is well-formed, text is escaped, nothing is fetched, and points that cannot be drawn
// are counted.
func TestPage(t *testing.T) {
	text := write(t, page())
	rest := text
	pictures := 0
	for {
		_, after, ok := strings.Cut(rest, "<svg")
		if !ok {
			break
		}
		body, tail, ok := strings.Cut(after, "</svg>")
		if !ok {
			t.Fatal("a picture has no end")
		}
		rest = tail
		pictures++
		d := xml.NewDecoder(strings.NewReader("<svg" + body + "</svg>"))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("picture %d is not well-formed: %v\n%s", pictures, err, body)
			}
		}
		if strings.Contains(body, "NaN") || strings.Contains(body, "Inf") {
			t.Errorf("picture %d has a place that is no number", pictures)
		}
	}
	if pictures != 4 {
		t.Errorf("%d pictures, want 4", pictures)
	}
	for _, bad := range []string{"<run>", "<b>", "<no>", "<more>", "http:", "https:", "src="} {
		if strings.Contains(text, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	for _, want := range []string{"a &lt;run&gt; &amp; its result", "2 points are not finite", "60.0 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if write(t, page()) != text {
		t.Error("the same page gave other bytes")
	}
}

func TestSave(t *testing.T) {
	run, err := rundir.Look(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := page().Save(run); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(run.Join(FileName))
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != write(t, page()) {
		t.Error("the file is not the page")
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if err := page().Save(run); err == nil {
		t.Error("a page was saved to a folder that is closed")
	}
}

// TestTicks: ticks are round, within the range, and few.
func TestTicks(t *testing.T) {
	for _, r := range [][2]float64{{0, 1}, {-3, 17}, {1e-9, 2e-9}, {0, 123456}, {0.7312, 0.7313}} {
		got := ticks(r[0], r[1], 6)
		if len(got) < 2 || len(got) > 8 {
			t.Errorf("%v has ticks %v", r, got)
		}
		for _, v := range got {
			if v < r[0]-1e-12 || v > r[1]*(1+1e-9)+1e-12 {
				t.Errorf("tick %v lies outside %v", v, r)
			}
		}
	}
	if label(0.1+0.2) != "0.3" || label(1e-7) != "1e-07" || label(250000) != "2.5e+05" {
		t.Errorf("labels %s %s %s", label(0.1+0.2), label(1e-7), label(250000))
	}
}

func TestHistogram(t *testing.T) {
	h := Histogram("h", []float64{0, .1, .5, 1, 2, -1, math.NaN()}, 0, 1, 2)
	if h.Y[0] != 3 || h.Y[1] != 3 || h.X[0] != .25 {
		t.Errorf("bins %v at %v", h.Y, h.X)
	}
}
