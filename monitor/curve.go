package monitor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/snug-ml/snug/train"
)

// row is a line of an update.
type row struct {
	update        int64
	time          float64
	loss          float64
	lr, norm      float64
	scale, rate   float32
	lossZ, normZ  float32
	skipped       bool
	normed        bool // the gradient norm was recorded
	since         train.Since
	updateSeconds float32 // of this update only
	wait          float32
}

// Evaluation is an evaluation on held-out data.
type Evaluation struct {
	Update  int64             `json:"update"`
	Time    float64           `json:"time,omitempty"`
	Metrics map[string]Number `json:"metrics"`
	Best    bool              `json:"best,omitempty"` // so far
	Seconds float64           `json:"seconds,omitempty"`
}

// note is a warning, or news about a checkpoint.
type note struct {
	update int64
	time   float64
	event  string
	text   string
}

// curve is the content of a run's metrics.
type curve struct {
	rows  []row
	odd   []int // remarkable rows, so that nothing has to search all of them
	evals []Evaluation
	notes []note
	last  int64           // update of the last line of an update or an evaluation
	names map[string]bool // of what evaluations measured
	over  int             // lines and metrics beyond what is kept

	readers []reader
}

// Bounds on what is kept of a file, whatever it contains.
const (
	maxRows    = 5_000_000
	maxEvals   = 200_000
	maxMetrics = 500
	maxUpdate  = 1e15 // exact as a float64, and far from overflow
)

// entry is a line that was read: a row, or its other content.
type entry struct {
	row  row
	line *train.Line // nil: it is a row
	bad  bool        // it cannot be read
}

// reader reads the lines of a part of the file.
type reader struct {
	scanner lineScanner
	entries []entry
}

// addParts adds the lines of parts of a file of which left bytes remain. The parts are
// read in parallel, and added in order.
func (c *curve) addParts(parts [][]byte, left int64, count *lineCount) {
	for len(c.readers) < len(parts) {
		c.readers = append(c.readers, reader{})
	}
	var all sync.WaitGroup
	for i, part := range parts[1:] {
		all.Go(func() { c.readers[i+1].read(part) })
	}
	c.readers[0].read(parts[0])
	all.Wait()
	if left > tailChunk {
		c.makeRoom(parts, left)
	}
	for i := range parts {
		for k := range c.readers[i].entries {
			e := &c.readers[i].entries[k]
			count.add(!e.bad)
			c.take(e)
		}
	}
	if left == 0 {
		c.readers = nil // later news is short
	}
}

// makeRoom makes room for the rows of the parts and of the rest of the file, which has
// about as many lines per byte.
func (c *curve) makeRoom(parts [][]byte, left int64) {
	lines, size := 0, 0
	for i, part := range parts {
		lines, size = lines+len(c.readers[i].entries), size+len(part)
	}
	rows := 1.01 * float64(lines) * (1 + float64(left)/float64(size))
	c.rows = slices.Grow(c.rows, min(int(rows), max(0, maxRows-len(c.rows))))
}

// read reads the lines of a part.
func (r *reader) read(part []byte) {
	r.entries = r.entries[:0]
	for raw := range bytes.Lines(part) {
		r.entries = append(r.entries, entry{})
		r.scanner.read(raw[:len(raw)-1], &r.entries[len(r.entries)-1])
	}
}

// read reads a line.
func (s *lineScanner) read(raw []byte, e *entry) {
	l, ok := s.scan(raw)
	if !ok {
		l = new(train.Line)
		e.line = l
		e.bad = json.Unmarshal(raw, l) != nil
	}
	if e.bad = e.bad || !sound(l); e.bad || l.Event != "update" {
		return
	}
	e.line = nil
	x := &e.row
	x.update, x.time, x.loss, x.lr, x.norm = l.Update, l.Time, float64(*l.Loss), math.NaN(), math.NaN()
	x.scale, x.rate, x.lossZ, x.normZ = float32(l.Scale), float32(l.Rate), float32(l.LossZ), float32(l.NormZ)
	x.skipped, x.updateSeconds, x.wait = l.Skipped, float32(l.Seconds), float32(l.Wait)
	if l.LR != nil {
		x.lr = float64(*l.LR)
	}
	if l.GradNorm != nil {
		x.norm, x.normed = float64(*l.GradNorm), true
	}
	if l.Since != nil {
		x.since = *l.Since
	}
}

// sound reports whether a line is one that a run can write. Losses may have any value;
// times and counts may not.
func sound(l *train.Line) bool {
	const most = 1e18
	within := func(list ...float64) bool {
		for _, x := range list {
			if x < 0 || x > most {
				return false
			}
		}
		return true
	}
	ok := l.Update >= 0 && l.Update <= maxUpdate && l.Time >= 0 && l.Time <= lastSecond && within(l.Scale, l.Seconds, l.Rate, l.Wait)
	if s := l.Since; ok && s != nil {
		ok = s.Updates >= 0 && s.Updates <= maxUpdate && s.Tokens >= 0 && within(s.Seconds, s.Wait, s.Save, s.Evaluation, s.FLOPs/1e12)
	}
	return ok && (l.Event != "update" || l.Loss != nil)
}

// take adds a line that was read. A resumed run goes back to its checkpoint: later lines
// are dropped, as in the file that the run itself writes. Checkpoints are written in the
// background: a checkpoint's line comes after those of later updates, and drops nothing.
func (c *curve) take(e *entry) {
	switch {
	case e.bad:
	case e.line == nil:
		c.moveTo(e.row.update)
		if n := len(c.rows); n > 0 && c.rows[n-1].update == e.row.update {
			c.keep(n - 1)
		}
		if len(c.rows) >= maxRows {
			c.over++
			return
		}
		if e.row.remarkable() {
			c.odd = append(c.odd, len(c.rows))
		}
		c.rows = append(c.rows, e.row)
	case e.line.Event == "eval":
		c.moveTo(e.line.Update)
		c.addEval(e.line)
	case e.line.Event == "checkpoint" || e.line.Event == "warning" || e.line.Event == "trouble":
		l := e.line
		if c.notes = append(c.notes, note{l.Update, l.Time, l.Event, Printable(l.Text)}); len(c.notes) > 2*maxLines {
			c.notes = slices.Clone(c.notes[maxLines:])
		}
	}
}

func (c *curve) addEval(l *train.Line) {
	if n := len(c.evals); n > 0 && c.evals[n-1].Update == l.Update {
		c.evals = c.evals[:n-1]
	}
	if len(c.evals) >= maxEvals {
		c.over++
		return
	}
	e := Evaluation{Update: l.Update, Time: l.Time, Metrics: map[string]Number{}, Best: l.Best, Seconds: l.Seconds}
	for k, v := range l.Metrics {
		k = Printable(k)
		if !c.names[k] {
			if len(c.names) >= maxMetrics {
				c.over++
				continue
			}
			if c.names == nil {
				c.names = map[string]bool{}
			}
			c.names[k] = true
		}
		e.Metrics[k] = Number(v)
	}
	c.evals = append(c.evals, e)
}

// moveTo drops what comes after an update to which the run went back.
func (c *curve) moveTo(update int64) {
	if update < c.last {
		c.keep(sort.Search(len(c.rows), func(i int) bool { return c.rows[i].update > update }))
		c.evals = c.evals[:sort.Search(len(c.evals), func(i int) bool { return c.evals[i].Update > update })]
		c.notes = slices.DeleteFunc(c.notes, func(n note) bool { return n.update > update })
	}
	c.last = update
}

// keep keeps the first n rows.
func (c *curve) keep(n int) {
	c.rows = c.rows[:n]
	c.odd = c.odd[:sort.SearchInts(c.odd, n)]
}

// remarkable reports whether a row matters to alerts and counts.
func (x *row) remarkable() bool {
	return x.skipped || !finite(x.loss) || x.normed && !finite(x.norm) || max(x.lossZ, x.normZ) > train.SpikeZ
}

// problem says which part of the metrics is not shown; empty: none.
func (c *curve) problem() string {
	if c.over == 0 {
		return ""
	}
	return fmt.Sprintf("%d lines or metrics are left out: at most %d updates, %d evaluations and %d metrics are shown", c.over, maxRows, maxEvals, maxMetrics)
}

// metrics returns the names of what evaluations measured.
func (c *curve) metrics() []string { return sortedKeys(c.names) }

// share is the share of the peak that the updates up to a row reached.
func (x *row) share(peak float64) float64 {
	if peak <= 0 || x.since.FLOPs <= 0 || x.since.Seconds <= 0 {
		return math.NaN()
	}
	return min(1, x.since.FLOPs/x.since.Seconds/peak)
}

// speed is units of the data per second.
func (x *row) speed() float64 {
	if x.since.Seconds > 0 && x.since.Tokens > 0 {
		return float64(x.since.Tokens) / x.since.Seconds
	}
	if x.rate > 0 {
		return float64(x.rate)
	}
	return math.NaN()
}
