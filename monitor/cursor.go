package monitor

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"sort"
)

// Cursor is how far a view has read a run. It is enough to determine whether what was
// read still exists: a run that was resumed, or whose files were replaced, is read again.
// It outlives the process that made it.
type Cursor struct {
	Run        string  `json:"r,omitempty"` // identity
	Update     int64   `json:"u,omitempty"` // of the last line of an update
	Sum        uint32  `json:"c,omitempty"` // of that line
	Peak       float64 `json:"p,omitempty"` // that shares are of
	Evaluation int64   `json:"e,omitempty"` // update of the last one
	Sample     float64 `json:"s,omitempty"` // time of the last one
	Log        float64 `json:"l,omitempty"` // time of the last line
	Lines      int     `json:"n,omitempty"` // of that time
}

// News are what was added after a cursor.
type News struct {
	Series      []Series     `json:"series,omitempty"`
	Machine     []Series     `json:"machine,omitempty"`
	Evaluations []Evaluation `json:"evaluations,omitempty"`
	Log         []LogLine    `json:"log,omitempty"`
}

// Each returns the run, or the runs of its phases.
func (r *Run) Each() []*Run {
	if len(r.phases) == 0 {
		return []*Run{r}
	}
	return r.phases
}

// Cursor returns the end of what was read.
func (r *Run) Cursor() Cursor {
	c := Cursor{}
	if r.about != nil {
		c.Run, c.Peak = r.about.Run, r.about.Plan.Peak
	}
	if n := len(r.curve.rows); n > 0 {
		c.Update, c.Sum = r.curve.rows[n-1].update, r.curve.rows[n-1].sum()
	}
	if n := len(r.curve.evals); n > 0 {
		c.Evaluation = r.curve.evals[n-1].Update
	}
	if n := len(r.machine); n > 0 {
		c.Sample = r.machine[n-1].Time
	}
	lines := r.lastLines(maxLines)
	if n := len(lines); n > 0 {
		c.Log = lines[n-1].Time
		for i := n - 1; i >= 0 && lines[i].Time == c.Log; i-- {
			c.Lines++
		}
	}
	return c
}

// Since returns the news after a cursor, series thinned to width parts, and at most lines
// lines of the log. If what was read no longer exists, ok is false and the news are
// everything.
func (r *Run) Since(c Cursor, width, lines int) (n News, ok bool) {
	if ok = r.holds(c); !ok {
		c = Cursor{}
	}
	info := r.aboutIt()
	n.Series = r.series(View{Width: width, From: c.Update + 1, evalsFrom: c.Evaluation + 1}, &info)
	all := r.machine
	r.machine = all[sort.Search(len(all), func(i int) bool { return all[i].Time > c.Sample }):]
	n.Machine = r.machineSeries(View{Width: width}, info.Card)
	r.machine = all
	for _, e := range r.curve.evals {
		if e.Update > c.Evaluation {
			n.Evaluations = append(n.Evaluations, e)
		}
	}
	n.Log = r.linesAfter(c, lines)
	return n, ok
}

// Range returns the series of updates from from to to (0: the last), and all samples of
// the machine from begin to end, thinned to width parts.
func (r *Run) Range(width int, from, to int64, begin, end float64) News {
	info := r.aboutIt()
	n := News{Series: r.series(View{Width: width, From: from, To: to}, &info)}
	all := r.machine
	r.machine = all[sort.Search(len(all), func(i int) bool { return all[i].Time >= begin }):]
	if end > 0 {
		r.machine = r.machine[:sort.Search(len(r.machine), func(i int) bool { return r.machine[i].Time > end })]
	}
	n.Machine = r.machineSeries(View{Width: width}, info.Card)
	r.machine = all
	return n
}

// holds reports whether what a view has read still agrees with the run's files.
func (r *Run) holds(c Cursor) bool {
	now := r.Cursor()
	if c.Run != "" && c.Run != now.Run || now.Evaluation < c.Evaluation || now.Sample < c.Sample || now.Log < c.Log {
		return false
	}
	if c.Update == 0 {
		return true
	}
	if c.Peak != now.Peak {
		return false // a resumed session may know a higher one
	}
	rows := r.curve.rows
	i := sort.Search(len(rows), func(i int) bool { return rows[i].update >= c.Update })
	return i < len(rows) && rows[i].update == c.Update && rows[i].sum() == c.Sum
}

// linesAfter returns the last lines of the log after a cursor.
func (r *Run) linesAfter(c Cursor, most int) []LogLine {
	lines := r.lastLines(maxLines)
	first, same := len(lines), 0
	for i, l := range lines {
		if l.Time == c.Log {
			same++
		}
		if l.Time > c.Log || l.Time == c.Log && same > c.Lines {
			first = i
			break
		}
	}
	lines = lines[first:]
	return append([]LogLine(nil), lines[max(0, len(lines)-most):]...)
}

// sum distinguishes lines of the same update: even a run that repeats it bit for bit
// takes a different time.
func (x *row) sum() uint32 {
	h := fnv.New32a()
	for _, f := range []float64{float64(x.update), x.time, x.loss, float64(x.updateSeconds), float64(x.rate)} {
		_ = binary.Write(h, binary.LittleEndian, math.Float64bits(f)) // a hash never fails
	}
	return h.Sum32()
}
