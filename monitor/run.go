package monitor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Run follows a run directory. It is not safe for concurrent use.
type Run struct {
	path    string
	gone    error // why the folder cannot be read
	lost    bool  // the process of the run is gone
	self    fs.FileInfo
	metrics tail
	samples tail
	log     tail
	info    whole
	summary whole

	about    *Info
	result   *summary // nil: there is none
	curve    curve
	machine  []Sample
	lines    []LogLine
	problems map[string]string // by file
	phases   []*Run            // of a run that consists of phases
}

// summary is the part of summary.json that is read, which every version writes.
type summary struct {
	System         string           `json:"system"`
	Preset         string           `json:"preset"`
	Done           bool             `json:"done"`
	Updates        int64            `json:"updates"`
	UpdatesPlanned int64            `json:"updates_planned"`
	StoppedEarly   bool             `json:"stopped_early"`
	TrainLoss      checkpoint.Float `json:"train_loss"`
	Seconds        float64          `json:"seconds"`
	Device         string           `json:"device"`
	Precision      string           `json:"precision"`
	Threads        int              `json:"threads"`
	Parameters     int64            `json:"parameters"`
	ArenaPlanned   int64            `json:"arena_planned_bytes"`
	PlannedTotal   int64            `json:"planned_total_bytes"`
	Peak           string           `json:"flops_utilization_of"`
}

// Files other than those of this package.
const (
	summaryFile = "summary.json"
	maxLines    = 1000 // lines of the log that are kept
)

// Limits for files that a run keeps far smaller.
const (
	maxSamplesFile = 16 << 20
	maxLogFile     = 4 << 20
)

// Open follows the run in dir: a run directory, or the folder of a run that consists of
// phases, each in a folder below it. It reads what is there.
func Open(dir string) (*Run, error) {
	r := newRun(filepath.Clean(dir))
	_, err := r.Poll()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no such folder: want a run directory (runs are in runs/PRESET unless --out says otherwise)", dir)
	}
	if err != nil {
		return nil, err
	}
	if r.empty() && len(r.phases) == 0 {
		if _, err := os.Stat(filepath.Join(dir, checkpoint.ConfigFile)); err != nil {
			if _, err := os.Stat(filepath.Join(dir, ".lock")); err != nil {
				return nil, fmt.Errorf("%s holds no run: want a folder that snug train wrote, with %s and %s (runs are in runs/PRESET unless --out says otherwise)", dir, checkpoint.ConfigFile, train.MetricsFile)
			}
		}
	}
	return r, nil
}

func newRun(dir string) *Run {
	in := func(name string) string { return filepath.Join(dir, name) }
	return &Run{
		path: dir, metrics: tail{path: in(train.MetricsFile), limit: regular.Log},
		samples: tail{path: in(SamplesFile), limit: maxSamplesFile}, log: tail{path: in(LogFile), limit: maxLogFile},
		info: whole{path: in(InfoFile)}, summary: whole{path: in(summaryFile)}, problems: map[string]string{},
	}
}

// Path returns the run directory as given to Open.
func (r *Run) Path() string { return r.path }

// Phases returns the runs that the run consists of, in the order in which they began;
// none if it is a single run.
func (r *Run) Phases() []*Run { return slices.Clone(r.phases) }

// LastSeen is when the run gave its last sign of life; zero: never. A snapshot of that
// time depends only on the folder.
func (r *Run) LastSeen() time.Time {
	seen, _ := r.seen()
	return seen
}

// empty reports whether the folder has none of a run's files.
func (r *Run) empty() bool {
	return r.metrics.info == nil && r.samples.info == nil && r.log.info == nil && r.info.info == nil && r.summary.info == nil
}

// Poll reads what was written since the last Poll, and reports whether there was
// anything. If not, it costs a stat of each file. It fails if the folder is gone, though
// it may come back; what was read is kept.
func (r *Run) Poll() (changed bool, err error) {
	info, err := os.Stat(r.path)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: r.path, Err: errors.New("not a folder: want a run directory")}
	}
	if err != nil {
		changed = r.gone == nil
		r.gone = err
		return changed, err
	}
	changed, r.gone = r.gone != nil, nil
	if r.self != nil && !os.SameFile(r.self, info) {
		changed = true // another folder of this name; its files will be found to differ
	}
	r.self = info
	for _, f := range []struct {
		name string
		tail *tail // of a file that consists of lines
		poll func() (bool, error)
	}{
		{InfoFile, nil, func() (bool, error) { return r.info.poll(r.readInfo) }},
		{summaryFile, nil, func() (bool, error) { return r.summary.poll(r.readSummary) }},
		{train.MetricsFile, &r.metrics, func() (bool, error) { return r.metrics.poll(func() { r.curve = curve{} }, r.addMetrics) }},
		{SamplesFile, &r.samples, func() (bool, error) { return r.samples.poll(func() { r.machine = nil }, r.samples.each(r.addSample)) }},
		{LogFile, &r.log, func() (bool, error) { return r.log.poll(func() { r.lines = nil }, r.log.each(r.addLine)) }},
	} {
		news, err := f.poll()
		changed = changed || news
		switch {
		case err != nil:
			r.problems[f.name] = problem(f.name, err.Error())
		case f.tail != nil:
			r.problems[f.name] = problem(f.name, f.tail.problem())
		default:
			r.problems[f.name] = ""
		}
	}
	r.problems["curve"] = problem(train.MetricsFile, r.curve.problem())
	maps.DeleteFunc(r.problems, func(_, text string) bool { return text == "" })
	if lost := r.isLost(); lost != r.lost {
		r.lost, changed = lost, true
	}
	news, err := r.pollPhases()
	return changed || news, err
}

// problem says what is wrong with a file; empty: nothing.
func problem(file, text string) string {
	if text == "" || strings.Contains(text, file) {
		return Printable(text)
	}
	return Printable(file + ": " + text)
}

// addMetrics adds lines of metrics.
func (r *Run) addMetrics(parts [][]byte, left int64) { r.curve.addParts(parts, left, &r.metrics.lines) }

// pollPhases looks for the runs of phases in folders below.
func (r *Run) pollPhases() (changed bool, err error) {
	if r.metrics.info != nil || r.info.info != nil {
		return false, nil // it is a single run
	}
	list, err := os.ReadDir(r.path)
	if err != nil {
		return false, err
	}
	for _, e := range list {
		dir := filepath.Join(r.path, e.Name())
		known := slices.ContainsFunc(r.phases, func(p *Run) bool { return p.path == dir })
		if e.IsDir() && !known && !strings.HasPrefix(e.Name(), ".") {
			if p := newRun(dir); p.there() {
				r.phases = append(r.phases, p)
			}
		}
	}
	for _, p := range r.phases {
		news, _ := p.Poll() // a phase that is gone is reported in its own snapshot
		changed = changed || news
	}
	if changed {
		slices.SortStableFunc(r.phases, func(a, b *Run) int { return a.firstSeen().Compare(b.firstSeen()) })
	}
	return changed, nil
}

// there reports whether the folder is a run directory.
func (r *Run) there() bool {
	for _, path := range []string{r.info.path, r.metrics.path} {
		if _, err := regular.Stat(path); err == nil {
			return true
		}
	}
	return false
}

// firstSeen returns when the run began, judging by its files.
func (r *Run) firstSeen() time.Time {
	switch {
	case len(r.machine) > 0:
		return at(r.machine[0].begin())
	case len(r.curve.rows) > 0 && r.curve.rows[0].time != 0:
		return at(r.curve.rows[0].time)
	case r.about != nil:
		return r.about.At
	}
	return r.metrics.changed()
}

func (r *Run) readInfo(text []byte) error {
	r.about = nil
	if text == nil {
		return nil
	}
	i, err := readInfo(text)
	r.about = i
	return err
}

func (r *Run) readSummary(text []byte) error {
	r.result = nil
	if text == nil {
		return nil
	}
	var s summary
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	for _, t := range []*string{&s.System, &s.Preset, &s.Device, &s.Precision, &s.Peak} {
		*t = Printable(*t)
	}
	r.result = &s
	return nil
}

func (r *Run) addSample(raw []byte) (ok bool) {
	var s Sample
	if json.Unmarshal(raw, &s) != nil {
		return false
	}
	if s.Time == 0 {
		return true // the header
	}
	if !s.sound() {
		return false
	}
	s.Doing = Doing(Printable(string(s.Doing)))
	r.machine = append(r.machine, s)
	return true
}

func (r *Run) addLine(raw []byte) (ok bool) {
	var l LogLine
	if json.Unmarshal(raw, &l) != nil || at(l.Time).IsZero() && l.Time != 0 {
		return false
	}
	if l.Text == "" {
		return true // the header
	}
	l.Text, l.Level = Printable(l.Text), cmp.Or(Level(Printable(string(l.Level))), LevelInfo)
	if r.lines = append(r.lines, l); len(r.lines) > 2*maxLines {
		r.lines = slices.Clone(r.lines[maxLines:])
	}
	return true
}

// whole is a small file that is always replaced as a whole.
type whole struct {
	path string
	info fs.FileInfo
	err  error // of reading its current content
}

// poll passes the file's content to read if it changed since last time, nil if the file
// is gone.
func (w *whole) poll(read func(text []byte) error) (changed bool, err error) {
	info, err := regular.Stat(w.path)
	if errors.Is(err, fs.ErrNotExist) {
		changed = w.info != nil
		w.info, w.err = nil, nil
		if changed {
			err = read(nil)
			return true, err
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if w.info != nil && os.SameFile(w.info, info) && w.info.Size() == info.Size() && w.info.ModTime().Equal(info.ModTime()) {
		return false, w.err
	}
	text, err := regular.Read(w.path, regular.Text)
	if err != nil {
		return false, err // the next poll tries again
	}
	w.info = info
	w.err = jsonError(read(text))
	return true, w.err
}

// jsonError says in words where a document is malformed.
func jsonError(err error) error {
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("%s is of the wrong type (%s, want %s; byte %d)", cmp.Or(kind.Field, "the document"), kind.Value, kind.Type, kind.Offset)
	case errors.As(err, &syntax):
		return fmt.Errorf("it is no JSON document (byte %d: %w)", syntax.Offset, err)
	}
	return err
}
