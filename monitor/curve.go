package monitor

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sort"

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
	updateSeconds float32 // of this update alone
	wait          float32
}

// Evaluation is one on held-out data.
type Evaluation struct {
	Update  int64             `json:"update"`
	Time    float64           `json:"time,omitempty"`
	Metrics map[string]Number `json:"metrics"`
	Best    bool              `json:"best,omitempty"` // so far
	Seconds float64           `json:"seconds,omitempty"`
}

// note is a warning, or news of a checkpoint.
type note struct {
	update int64
	time   float64
	event  string
	text   string
}

// curve is the content of a run's metrics.
type curve struct {
	rows  []row
	evals []Evaluation
	notes []note
	last  int64 // update of the last line of an update or an evaluation

	scanner lineScanner
}

// add takes a line. A run that was resumed goes back to its checkpoint: what was after
// it is dropped, as in the file that the run itself writes. Checkpoints are written in the
// background: a line of one comes after those of later updates, and drops nothing.
func (c *curve) add(raw []byte) {
	l, ok := c.scanner.scan(raw)
	if !ok {
		l = new(train.Line)
		if json.Unmarshal(raw, l) != nil || l.Event == "run" {
			return
		}
	}
	if l.Event == "update" || l.Event == "eval" {
		if l.Update < c.last {
			c.cut(l.Update)
		}
		c.last = l.Update
	}
	switch l.Event {
	case "update":
		if l.Loss == nil {
			return
		}
		if n := len(c.rows); n > 0 && c.rows[n-1].update == l.Update {
			c.rows = c.rows[:n-1]
		}
		x := row{
			update: l.Update, time: l.Time, loss: float64(*l.Loss), lr: math.NaN(), norm: math.NaN(), scale: float32(l.Scale), rate: float32(l.Rate),
			lossZ: float32(l.LossZ), normZ: float32(l.NormZ), skipped: l.Skipped, updateSeconds: float32(l.Seconds), wait: float32(l.Wait),
		}
		if l.LR != nil {
			x.lr = float64(*l.LR)
		}
		if l.GradNorm != nil {
			x.norm, x.normed = float64(*l.GradNorm), true
		}
		if l.Since != nil {
			x.since = *l.Since
		}
		c.rows = append(c.rows, x)
	case "eval":
		if n := len(c.evals); n > 0 && c.evals[n-1].Update == l.Update {
			c.evals = c.evals[:n-1]
		}
		e := Evaluation{Update: l.Update, Time: l.Time, Metrics: map[string]Number{}, Best: l.Best, Seconds: l.Seconds}
		for k, v := range l.Metrics {
			e.Metrics[Printable(k)] = Number(v)
		}
		c.evals = append(c.evals, e)
	default:
		if c.notes = append(c.notes, note{l.Update, l.Time, l.Event, Printable(l.Text)}); len(c.notes) > 2*maxLines {
			c.notes = slices.Clone(c.notes[maxLines:])
		}
	}
}

// cut drops what is after an update.
func (c *curve) cut(update int64) {
	c.rows = c.rows[:sort.Search(len(c.rows), func(i int) bool { return c.rows[i].update > update })]
	c.evals = c.evals[:sort.Search(len(c.evals), func(i int) bool { return c.evals[i].Update > update })]
	c.notes = slices.DeleteFunc(c.notes, func(n note) bool { return n.update > update })
}

// metrics are the names of what evaluations measured.
func (c *curve) metrics() []string {
	names := map[string]bool{}
	for _, e := range c.evals {
		for k := range e.Metrics {
			names[k] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// share is the share of the peak that the updates up to a row had.
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
