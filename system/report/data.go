package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// This file represents a page as data: the content of its charts, in JSON. Values that are not finite are
// null.

// number is a float64 that need not be finite.
type number float64

func (n number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

func numbers(x []float64) []number {
	out := make([]number, len(x))
	for i, v := range x {
		out[i] = number(v)
	}
	return out
}

func floats(x []number) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// styles maps styles to their names.
var styles = [...]string{Line: "line", Dashed: "dashed", Step: "step", Points: "points", Bars: "bars"}

// MarshalText returns the name of a style.
func (s Style) MarshalText() ([]byte, error) {
	if int(s) >= len(styles) {
		return nil, fmt.Errorf("report: style %d", s)
	}
	return []byte(styles[s]), nil
}

// UnmarshalText parses the name of a style.
func (s *Style) UnmarshalText(text []byte) error {
	for i, name := range styles {
		if name == string(text) {
			*s = Style(i)
			return nil
		}
	}
	return fmt.Errorf("style %q, want one of %q", text, styles)
}

type seriesData struct {
	Name  string   `json:"name,omitempty"`
	Style Style    `json:"style"`
	X     []number `json:"x"`
	Y     []number `json:"y"`
}

// MarshalJSON writes a series.
func (s Series) MarshalJSON() ([]byte, error) {
	return json.Marshal(seriesData{s.Name, s.Style, numbers(s.X), numbers(s.Y)})
}

// UnmarshalJSON reads a series.
func (s *Series) UnmarshalJSON(text []byte) error {
	var d seriesData
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	*s = Series{Name: d.Name, X: floats(d.X), Y: floats(d.Y), Style: d.Style}
	return nil
}

type markData struct {
	X    number `json:"x"`
	Y    number `json:"y"`
	Name string `json:"name"`
}

// MarshalJSON writes a mark.
func (m Mark) MarshalJSON() ([]byte, error) {
	return json.Marshal(markData{number(m.X), number(m.Y), m.Name})
}

// UnmarshalJSON reads a mark.
func (m *Mark) UnmarshalJSON(text []byte) error {
	var d markData
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	*m = Mark{float64(d.X), float64(d.Y), d.Name}
	return nil
}

type figureData struct {
	Caption string   `json:"caption,omitempty"`
	Source  string   `json:"source,omitempty"`
	Chart   *Chart   `json:"chart,omitempty"`
	Heatmap *Heatmap `json:"heatmap,omitempty"`
}

// MarshalJSON writes a figure together with its content.
func (f Figure) MarshalJSON() ([]byte, error) {
	d := figureData{Caption: f.Caption, Source: f.Source}
	switch x := f.Drawing.(type) {
	case Chart:
		d.Chart = &x
	case Heatmap:
		d.Heatmap = &x
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads a figure, and rejects one that cannot be drawn.
func (f *Figure) UnmarshalJSON(text []byte) error {
	var d figureData
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	*f = Figure{Caption: d.Caption, Source: d.Source}
	switch {
	case d.Chart != nil:
		for _, r := range [][2]float64{d.Chart.XRange, d.Chart.YRange} {
			if r != ([2]float64{}) && !(r[0] < r[1]) {
				return fmt.Errorf("a chart whose axis goes from %g to %g", r[0], r[1])
			}
		}
		f.Drawing = *d.Chart
	case d.Heatmap != nil:
		n := len(d.Heatmap.Labels)
		if len(d.Heatmap.Counts) != n {
			return fmt.Errorf("a matrix of %d rows for %d labels", len(d.Heatmap.Counts), n)
		}
		for _, row := range d.Heatmap.Counts {
			if len(row) != n {
				return fmt.Errorf("a matrix with a row of %d cells for %d labels", len(row), n)
			}
		}
		f.Drawing = *d.Heatmap
	default:
		return errors.New("a figure without an image")
	}
	return nil
}
