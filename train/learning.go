package train

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Floor is the value of the monitored metric for a model that knows nothing but
// frequencies.
type Floor struct {
	Name  string
	Value float64
}

// Warning means that a run learns nothing, or has lost what it had learned.
type Warning struct {
	Kind WarningKind `json:"kind"`
	// Update is the update after which it was noticed.
	Update int64  `json:"update"`
	Text   string `json:"text"`
	// Helps lists what to change.
	Helps []string `json:"what_helps,omitempty"`
}

func (t *Warning) String() string {
	if len(t.Helps) == 0 {
		return t.Text
	}
	return t.Text + "; try " + strings.Join(t.Helps, ", ")
}

// WarningKind says what is wrong with a run.
type WarningKind string

// The kinds of warning.
const (
	// Unlearned: no better than frequencies, and not improving towards that.
	Unlearned WarningKind = "unlearned"
	// Unmoved is Unlearned with a loss that never left its start.
	Unmoved WarningKind = "unmoved"
	// Thrown is Unlearned with a loss above its start.
	Thrown WarningKind = "thrown"
	// Memorized: the loss falls in training but stays at the level of frequencies on
	// held-out data.
	Memorized WarningKind = "memorised"
	// Lost: the loss rose and did not come down again.
	Lost WarningKind = "lost"
	// Diverged: a number left its format, which ends the run.
	Diverged WarningKind = "diverged"
)

// Learning watches whether a run learns. It takes the loss of every update and
// the monitored metric of every evaluation, and compares the last fifth of the run so
// far with what came before and with the floor.
//
// Losses are kept as the moments of parts of the run, all of the same number of updates:
// 20 to 40 of them, whatever its length. Only means of several parts count, and only
// differences that exceed the variation of the losses.
type Learning struct {
	Monitor Metric
	Floor   *Floor // nil: none is known
	// Drifts: the composition of the loss changes during the run, so that only
	// evaluations count.
	Drifts bool
	// From is the update before which no warning is given during the run.
	From int64

	memory learned
}

// learned is the state of Learning; its JSON form is in checkpoints.
type learned struct {
	Each  int64  `json:"each"` // updates of a part
	Parts []part `json:"parts"`
	// Initial is the first loss, Start the mean of the first losses, and First how
	// many of them there are.
	Initial float64 `json:"initial"`
	Start   float64 `json:"start"`
	First   int64   `json:"first"`
	// Best value of the monitored metric; Measured means that there is one.
	Best     float64 `json:"best"`
	Measured bool    `json:"measured"`
	// Warnings given during the run, and the update of the last call of End.
	ToldUnlearned bool  `json:"told_unlearned,omitempty"`
	ToldLost      bool  `json:"told_lost,omitempty"`
	Ended         int64 `json:"ended,omitempty"`
}

// part sums up the losses of consecutive updates.
type part struct {
	First int64   `json:"first"` // its first update
	N     int64   `json:"n"`
	Mean  float64 `json:"mean"`
	M2    float64 `json:"m2"` // sum of squared distances from the mean
}

const (
	// mostParts is how many parts are kept; when that many are full, pairs are merged.
	mostParts = 40
	// firstLosses is how many losses form the start of a curve.
	firstLosses = 8
	// leastUpdates is how many updates allow a conclusion; fewer are too few.
	leastUpdates = 64
	// worth is the share of the possible gain over the floor that a model must reach to
	// count as having learned something.
	worth = 0.02
	// apart is how many deviations must separate two parts that were chosen by their
	// values, sure how many must separate two means that were not.
	apart, sure = 5, 2
	// way is the share of the loss's total descent, or of half of what is missing, that
	// it must make in two fifths of the run to be still improving.
	way = 0.08
	// rise is the share of its total descent by which the loss must rise to have lost
	// something.
	rise = 0.1
	// moved is the share of itself by which a loss must change to count as changed.
	moved = 0.02
	// out is the share of itself by which a loss must exceed its start to have been
	// thrown out.
	out = 0.25
	// byHeart is the share of itself by which a loss must fall to show that the training
	// data is memorized, if there is no floor for the loss itself.
	byHeart = 0.2
)

// Loss records the loss of an update and reports whether it is time to call Running.
func (l *Learning) Loss(update int64, loss float64) (ask bool) {
	if !finite(loss) {
		return false
	}
	m := &l.memory
	if m.First == 0 {
		m.Initial = loss
	}
	if m.First < firstLosses {
		m.First++
		m.Start += (loss - m.Start) / float64(m.First)
	}
	if n := len(m.Parts); n == 0 || m.Parts[n-1].N == m.Each {
		if n == mostParts {
			m.pair()
		}
		m.Each = max(1, m.Each)
		m.Parts = append(m.Parts, part{First: update})
	}
	p := &m.Parts[len(m.Parts)-1]
	p.N++
	d := loss - p.Mean
	p.Mean += d / float64(p.N)
	p.M2 += d * (loss - p.Mean)
	return p.N == m.Each
}

// pair merges pairs of parts.
func (m *learned) pair() {
	for i := range len(m.Parts) / 2 {
		a, b := m.Parts[2*i], m.Parts[2*i+1]
		d := b.Mean - a.Mean
		m.Parts[i] = part{a.First, a.N + b.N, a.Mean + d*float64(b.N)/float64(a.N+b.N), a.M2 + b.M2 + d*d*float64(a.N*b.N)/float64(a.N+b.N)}
	}
	m.Parts, m.Each = m.Parts[:len(m.Parts)/2], 2*m.Each
}

// Evaluated records the monitored metric of an evaluation.
func (l *Learning) Evaluated(value float64) {
	m := &l.memory
	if finite(value) && (!m.Measured || l.Monitor.Better(value, m.Best, 0)) {
		m.Best, m.Measured = value, true
	}
}

// Running returns the warning after an update during a run, each kind only once.
func (l *Learning) Running(update int64) *Warning {
	if update < l.From {
		return nil
	}
	t := l.judge(update, false)
	if t == nil {
		return nil
	}
	told := &l.memory.ToldUnlearned
	if t.Kind == Lost {
		told = &l.memory.ToldLost
	}
	if *told {
		return nil
	}
	*told = true
	return t
}

// End returns the warning that a run of that many updates ends with, nil for none; first
// means that the resumed run has not given it before.
func (l *Learning) End(updates int64) (t *Warning, first bool) {
	first = l.memory.Ended != updates
	l.memory.Ended = updates
	return l.judge(updates, true), first
}

func (l *Learning) judge(update int64, ended bool) *Warning {
	c, ok := l.curve()
	if !ok || update < leastUpdates {
		return nil
	}
	if !l.Drifts {
		if since, low, ok := c.lost(ended); ok && (ended || !c.falling(0, ended)) {
			return &Warning{Kind: Lost, Update: update, Text: fmt.Sprintf(
				"the loss was %.4g in updates %d to %d, rose, and has not been below %.4g since update %d", c.parts[c.best].Mean,
				c.parts[c.best].First, c.parts[c.best].First+c.parts[c.best].N-1, low, since)}
		}
	}
	if l.Floor == nil {
		return nil
	}
	return l.unlearned(update, c, ended)
}

// unlearned returns the warning for a run that is not above its floor.
func (l *Learning) unlearned(update int64, c *curve, ended bool) *Warning {
	m, now := &l.memory, c.now()
	comparable := l.comparable()
	missing := math.Abs(c.start) / 2 // without a floor
	if comparable {
		missing = now - l.Floor.Value
	}
	var is string
	switch {
	case m.Measured && l.beats(m.Best):
		return nil
	case m.Measured && (ended || !comparable):
		is = fmt.Sprintf("%s was %.4g at best", l.Monitor.Name, m.Best)
	case comparable && !l.beats(now):
		is = fmt.Sprintf("the loss is %.4g (mean of the updates since %d)", now, c.parts[len(c.parts)-c.fifth].First)
	default:
		return nil
	}
	floor := fmt.Sprintf("%s gives %.4g", l.Floor.Name, l.Floor.Value)
	t := &Warning{Kind: Unlearned, Update: update, Text: is + ", and " + floor + ": nothing was learned beyond that"}
	switch {
	case comparable && l.beats(now):
		t.Kind = Memorized
	case c.falling(missing, ended || c.jumped()) && !(ended && c.jumped()):
		return nil // slowly, but it learns
	case !comparable && !l.Drifts && now < (1-byHeart)*c.start:
		t.Kind = Memorized
	case !l.Drifts && c.still():
		t.Kind, t.Text = Unmoved, fmt.Sprintf("%s, %s, and the loss has not moved from its start (%.4g)", is, floor, c.start)
	}
	if !l.Drifts && now > c.start+out*math.Abs(c.start) {
		t.Kind, t.Text = Thrown, fmt.Sprintf("%s, %s, and the loss (%.4g) is above its start (%.4g)", is, floor, now, c.start)
	}
	if t.Kind == Memorized {
		t.Text = fmt.Sprintf("the training loss fell from %.4g to %.4g, but %s, and %s: the model memorizes the training data", c.start, now, is, floor)
	}
	return t
}

// comparable reports whether the floor is for the loss itself.
func (l *Learning) comparable() bool { return l.Monitor.Name == lossMetric && !l.Drifts }

// lossMetric is the name of the loss on held-out data in every system.
const lossMetric = "eval_loss"

// beats reports whether a value of the monitored metric shows that more than frequencies
// was learned: perfect losses and errors are 0, perfect scores 1.
func (l *Learning) beats(value float64) bool {
	f := l.Floor.Value
	if l.Monitor.Higher {
		return value > f+worth*math.Abs(1-f)
	}
	return value < f-worth*math.Abs(f)
}

// curve is the course of the loss in whole parts.
type curve struct {
	parts []part
	start float64
	fifth int     // parts of a fifth of the run
	each  float64 // deviation of a loss from its neighbors
	noise float64 // deviation of a part's mean
	best  int     // the part with the lowest mean
}

// curve returns the course so far; ok is false while it is too short.
func (l *Learning) curve() (*curve, bool) {
	m := &l.memory
	c := &curve{parts: m.Parts, start: m.Start}
	if n := len(c.parts); n > 0 && c.parts[n-1].N < m.Each {
		c.parts = c.parts[:n-1]
	}
	n := len(c.parts)
	if c.fifth = n / 5; c.fifth < 2 {
		return nil, false
	}
	var variances []float64
	for i, p := range c.parts {
		variances = append(variances, p.M2/float64(max(1, p.N-1)))
		if p.Mean < c.parts[c.best].Mean {
			c.best = i
		}
	}
	// The median ignores the steep start and single bad batches. The median of sample
	// variances is below the variance (Wilson and Hilferty 1931).
	slices.Sort(variances)
	c.each = math.Sqrt(variances[n/2] / math.Pow(1-2/(9*max(1, float64(m.Each-1))), 3))
	c.noise = c.each / math.Sqrt(float64(m.Each))
	if m.Start > m.Initial+out*math.Abs(m.Initial) {
		c.start = m.Initial // it was thrown out by the first updates
	}
	return c, true
}

// mean returns the mean of some parts, and its standard error.
func (c *curve) mean(parts []part) (mean, deviation float64) {
	n := float64(len(parts))
	for _, p := range parts {
		mean += p.Mean / n
	}
	between := 0.0
	for _, p := range parts {
		between += (p.Mean - mean) * (p.Mean - mean) / (n - 1)
	}
	return mean, math.Sqrt(max(between, c.noise*c.noise) / n)
}

// now returns the mean loss of the last fifth.
func (c *curve) now() float64 {
	mean, _ := c.mean(c.parts[len(c.parts)-c.fifth:])
	return mean
}

// falling reports whether the loss is still improving: whether the last fifth is lower
// than the middle one by a share of the total descent, or of half of what is missing. It
// gets the benefit of the doubt unless surely is set.
func (c *curve) falling(missing float64, surely bool) bool {
	n := len(c.parts)
	now, a := c.mean(c.parts[n-c.fifth:])
	before, b := c.mean(c.parts[n-3*c.fifth : n-2*c.fifth])
	by := before - now
	if !surely {
		by += sure * math.Hypot(a, b)
	}
	return by > way*max(math.Abs(c.start-now), missing/2)
}

// step is how much higher than the lowest part a mean must be to have risen.
func (c *curve) step() float64 {
	low := c.parts[c.best].Mean
	return max(apart*c.noise, rise*(c.start-low), moved*math.Abs(low))
}

// lost reports whether the loss has risen above its lowest part and stayed up for a fifth
// of the run, or, in a run that has ended, for a tenth; low is the lowest mean since.
func (c *curve) lost(ended bool) (since int64, low float64, ok bool) {
	n, wait := len(c.parts), c.fifth
	if ended {
		wait = max(2, wait/2)
	}
	line := c.parts[c.best].Mean + c.step()
	i := n
	for low = math.Inf(1); i > 0 && c.parts[i-1].Mean > line; i-- {
		low = min(low, c.parts[i-1].Mean)
	}
	if i > c.best && n-i >= wait {
		return c.parts[i].First, low, true
	}
	return 0, 0, false
}

// jumped reports whether the loss was clearly above its start.
func (c *curve) jumped() bool {
	return slices.ContainsFunc(c.parts, func(p part) bool {
		own := math.Sqrt(p.M2 / float64(max(1, p.N-1)) / float64(p.N))
		return p.Mean > c.start+max(moved*math.Abs(c.start), apart*own)
	})
}

// still reports whether the loss never left its start.
func (c *curve) still() bool {
	return !slices.ContainsFunc(c.parts, func(p part) bool { return math.Abs(p.Mean-c.start) > c.near() })
}

// near is how close to its start a loss counts as unchanged.
func (c *curve) near() float64 {
	return max(moved*math.Abs(c.start), apart*math.Hypot(c.noise, c.each/math.Sqrt(firstLosses)))
}
