package runreport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/system/report"
)

// Presets returns the settings of a preset of a system by key, the system's defaults if
// preset is empty; nil: there is no such preset.
type Presets func(system, preset string) map[string]string

// Report is the report of runs.
type Report struct {
	Runs []*Run `json:"runs"`
	// Settings are those that differ between runs, Results the figures of each; a single
	// run has neither.
	Settings []Difference `json:"settings,omitempty"`
	Results  []Difference `json:"results,omitempty"`
}

// Difference is a setting or figure with each run's value; empty where a run lacks it.
type Difference struct {
	Name   string   `json:"name"`
	Values []string `json:"values"` // of each run
}

// Run is what is known of a run.
type Run struct {
	Name string `json:"name"` // unlike that of every other run of the report
	Path string `json:"path"`
	*monitor.Snapshot
	TotalTime monitor.TimeShare `json:"time_total"`
	// Changed are the settings that differ from the preset, or from the defaults without
	// one; nil: unknown.
	Changed []Change `json:"settings_changed,omitempty"`
	// Results is the system's own page, of the best checkpoint.
	Results *report.Page `json:"results,omitempty"`
	// OldPage is the system's page as an earlier version wrote it, only for reading.
	OldPage string `json:"results_page,omitempty"`
}

// Change is a setting with the preset's value.
type Change struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Preset string `json:"preset"`
}

// curveWidth is the number of parts of a curve in which the lowest and the highest point
// are kept: a chart cannot show more.
const curveWidth = 400

// logLines is how many of the last lines of a log are searched for warnings.
const logLines = 1000

// Open reads the runs in these folders. The phases of a run that consists of several are
// read as separate runs.
func Open(paths []string, presets Presets) (*Report, error) {
	r := &Report{}
	var errs []error
	for _, path := range paths {
		m, err := monitor.Open(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		phases := m.Phases()
		if len(phases) == 0 {
			phases = []*monitor.Run{m}
		}
		for _, p := range phases {
			if slices.ContainsFunc(r.Runs, func(x *Run) bool { return x.Path == p.Path() }) {
				errs = append(errs, fmt.Errorf("%s is named twice", p.Path()))
				continue
			}
			r.Runs = append(r.Runs, open(p, presets))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	r.name()
	if len(r.Runs) > 1 {
		r.compare()
	}
	return r, nil
}

func open(m *monitor.Run, presets Presets) *Run {
	x := &Run{
		Path: m.Path(), TotalTime: m.TotalTime(),
		Snapshot: m.Snapshot(m.LastSeen(), monitor.View{Width: curveWidth, Lines: logLines}),
	}
	if i := &x.Info; i.System != "" && len(i.Settings) > 0 && presets != nil {
		x.Changed = changes(i.Settings, presets(i.System, i.Preset))
	}
	x.readResults()
	return x
}

// changes returns the settings that differ from a preset.
func changes(settings, preset map[string]string) []Change {
	if preset == nil {
		return nil
	}
	out := []Change{}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if was, ok := preset[key]; settings[key] != was && (ok || settings[key] != "") {
			out = append(out, Change{key, settings[key], was})
		}
	}
	return out
}

// maxResults bounds the system's page, in bytes.
const maxResults = 64 << 20

// readResults reads the system's page. If it cannot be read, the report names that as a
// problem of the run, as for any other file.
func (x *Run) readResults() {
	file := filepath.Join(x.Path, report.DataFile)
	text, err := regular.Read(file, maxResults)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := regular.Stat(filepath.Join(x.Path, report.FileName)); err == nil {
			x.OldPage = report.FileName
		}
		return
	}
	var p report.Page
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		x.Problems = append(x.Problems, monitor.Printable(fmt.Sprintf("%s: %v", file, err)))
		return
	}
	x.Results = &p
}

// name names each run by the shortest end of its path that no other run has.
func (r *Report) name() {
	for _, x := range r.Runs {
		rest := filepath.Clean(x.Path)
		name := filepath.Base(rest)
		for slices.ContainsFunc(r.Runs, func(y *Run) bool { return y != x && endsWith(y.Path, name) }) {
			rest = filepath.Dir(rest)
			if rest == filepath.Dir(rest) {
				name = x.Path
				break
			}
			name = filepath.Join(filepath.Base(rest), name)
		}
		x.Name = cmp.Or(monitor.Printable(name), "?")
	}
}

// endsWith reports whether the last parts of a path are end.
func endsWith(path, end string) bool {
	path = filepath.Clean(path)
	if path == end {
		return true
	}
	n := len(path) - len(end)
	return n > 0 && path[n:] == end && path[n-1] == filepath.Separator
}
