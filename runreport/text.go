package runreport

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/snug-ml/snug/monitor"
)

func figure(v monitor.Number) string {
	if math.IsNaN(float64(v)) {
		return "not a number"
	}
	return fmt.Sprintf("%.5g", float64(v))
}

// figureOf returns a metric of an evaluation; empty if it was not measured.
func figureOf(e *monitor.Evaluation, name string) string {
	v, ok := e.Metrics[name]
	if !ok {
		return ""
	}
	return figure(v)
}

// label returns the readable name of a metric.
func label(name string) string { return strings.ReplaceAll(name, "_", " ") }

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// stamp prints a time to the second, in UTC; empty for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}

func orNone(s string) string {
	if s == "" {
		return "(empty)"
	}
	return s
}

func orUnknown(s string) string {
	if s == "" {
		return "a run without a description"
	}
	return s
}

// unit is what a run's data is counted in.
func unit(x *Run) string {
	if x.Info.Unit == "" {
		return "units"
	}
	return x.Info.Unit
}
