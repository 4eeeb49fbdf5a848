package monitor

import (
	"math"
	"path/filepath"
	"time"

	"github.com/snug-ml/snug/device"
)

// View says how much a snapshot holds.
type View struct {
	// Width is the number of parts of the range of x in which each series keeps its
	// lowest and highest point; 0: every point.
	Width int
	// Lines is how many of the last lines of the log; 0: none.
	Lines int
	// Evaluations is how many of the last ones; 0: all.
	Evaluations int
	// From and To limit the series of updates; To 0: the last.
	From, To int64

	evalsFrom int64 // From for evaluations, if it differs
}

// Snapshot is everything that a view needs to know about a run at one time.
type Snapshot struct {
	Path string    `json:"path"`
	Name string    `json:"name"` // the last part of the path
	At   time.Time `json:"at"`
	Info Info      `json:"info"` // of a run of an earlier version, what is known

	State State `json:"state"`
	// Why explains the state: how long nothing was written, or the error it ended with.
	Why   string `json:"why,omitempty"`
	Doing Doing  `json:"doing,omitempty"`
	// Update is how many of Updates are done. Began is when the run began, Seen its last
	// sign of life, Updated its last update; zero: unknown.
	Update  int64     `json:"update"`
	Updates int64     `json:"updates"`
	Began   time.Time `json:"began,omitzero"`
	Seen    time.Time `json:"seen,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	// Left are the seconds until the last update, at the speed of the last updates; null:
	// unknown.
	Left Number `json:"seconds_left"`

	Latest Latest    `json:"latest"`
	Time   TimeShare `json:"time"`
	Memory Memory    `json:"memory"`

	// Series are over updates, Machine over time, each in the order of panels.
	Series      []Series     `json:"series"`
	Machine     []Series     `json:"machine"`
	Sample      *Sample      `json:"sample,omitempty"` // the newest
	Evaluations []Evaluation `json:"evaluations,omitempty"`

	Advice []device.Advice `json:"advice,omitempty"`
	Alerts []Alert         `json:"alerts,omitempty"`
	Log    []LogLine       `json:"log,omitempty"`

	// Phases are the phases of a run that consists of several, in the order in which they
	// began.
	Phases []*Snapshot `json:"phases,omitempty"`
	// Problems are files that could not be read.
	Problems []string `json:"problems,omitempty"`
}

// Latest are the newest figures; null if there is none.
type Latest struct {
	Loss     Number `json:"loss"`
	LR       Number `json:"learning_rate"`
	GradNorm Number `json:"grad_norm"`
	Scale    Number `json:"loss_scale"` // null: no loss scaling
	Rate     Number `json:"units_per_second"`
	Share    Number `json:"peak_share"` // of Info.Plan.PeakName, 0 to 1
	// Seconds is the time of an update, the mean since the previous line.
	Seconds Number `json:"update_seconds"`
	// LossZ and NormZ are z-scores against the last 128 updates.
	LossZ Number `json:"loss_z"`
	NormZ Number `json:"grad_norm_z"`
	// Skipped is the number of skipped updates of the whole run.
	Skipped int64 `json:"skipped_updates"`
}

// TimeShare says where the time of the last updates went. The shares add up to 1.
type TimeShare struct {
	Updates    int64   `json:"updates"` // that it is of; 0: unknown
	Seconds    float64 `json:"seconds"`
	Compute    float64 `json:"compute_share"`
	Data       float64 `json:"data_share"` // waiting for data
	Save       float64 `json:"save_share"` // waiting for checkpoints
	Evaluation float64 `json:"evaluation_share"`
}

// Memory is in bytes; 0: unknown. It is the card's if the run computes on one, otherwise
// the process's.
type Memory struct {
	Planned  int64 `json:"planned_bytes"`
	Arena    int64 `json:"arena_bytes"`    // of Planned, exact
	Capacity int64 `json:"capacity_bytes"` // what a plan may use
	Used     int64 `json:"used_bytes"`
	Peak     int64 `json:"peak_bytes"`
	Limit    int64 `json:"limit_bytes"` // of the card, of the control group, or of the machine
	Card     bool  `json:"card,omitempty"`
}

// maxLeft is the longest remaining time that is reported for a run: 300 years.
const maxLeft = 1e10

// recentUpdates is how many updates current figures are averaged over, at least.
const recentUpdates = 50

// Snapshot returns what is known about the run at a time. It reads nothing: Poll reads
// the folder.
func (r *Run) Snapshot(now time.Time, v View) *Snapshot {
	s := &Snapshot{Path: Printable(r.path), Name: Printable(filepath.Base(r.path)), At: now.UTC(), Left: Number(math.NaN())}
	s.State, s.Why = r.state(now)
	s.Info = r.aboutIt()
	s.Update, s.Updates = r.lastUpdate(), s.Info.Updates
	s.Seen, s.Updated = r.seen()
	if s.Began = r.firstSeen(); r.empty() {
		s.Began = time.Time{}
	}
	if !s.State.Over() && s.State != Gone {
		s.Doing = r.doing()
	}
	s.Latest, s.Time = r.latest(&s.Info), r.timeShare(recentUpdates)
	if speed := r.updateSeconds(); !s.State.Over() && s.Updates > s.Update && speed > 0 {
		if left := float64(s.Updates-s.Update) * speed; left < maxLeft {
			s.Left = Number(left)
		}
	}
	s.Memory = r.memory(&s.Info)
	s.Series, s.Machine = r.series(v, &s.Info), r.machineSeries(v, s.Info.Card)
	if n := len(r.machine); n > 0 {
		last := r.machine[n-1]
		s.Sample = &last
	}
	s.Evaluations = r.curve.evals
	if v.Evaluations > 0 {
		s.Evaluations = s.Evaluations[max(0, len(s.Evaluations)-v.Evaluations):]
	}
	s.Evaluations = append([]Evaluation(nil), s.Evaluations...)
	s.Log = append([]LogLine(nil), r.lastLines(v.Lines)...)
	for _, name := range sortedKeys(r.problems) {
		s.Problems = append(s.Problems, r.problems[name])
	}
	for _, p := range r.phases {
		s.Phases = append(s.Phases, p.Snapshot(now, v))
	}
	if len(s.Phases) > 0 {
		s.ofPhases()
		return s
	}
	s.Advice = device.Advise(r.deviceSummary(s))
	s.Alerts = r.alerts(s)
	return s
}

// ofPhases sets the state of a run that consists of phases to that of the running phase,
// or of the last.
func (s *Snapshot) ofPhases() {
	if s.State == Gone {
		return
	}
	now := s.Phases[len(s.Phases)-1]
	for _, p := range s.Phases {
		if !p.State.Over() {
			now = p
		}
		if s.Began.IsZero() || !p.Began.IsZero() && p.Began.Before(s.Began) {
			s.Began = p.Began
		}
		if p.Seen.After(s.Seen) {
			s.Seen = p.Seen
		}
		if p.Updated.After(s.Updated) {
			s.Updated = p.Updated
		}
	}
	s.State, s.Why, s.Doing = now.State, now.Why, now.Doing
	s.Info, s.Update, s.Updates, s.Left = now.Info, now.Update, now.Updates, now.Left
	s.Latest, s.Time, s.Memory, s.Sample = now.Latest, now.Time, now.Memory, now.Sample
	if s.Why != "" {
		s.Why = now.Name + ": " + s.Why
	}
}

// aboutIt returns the run's own description, or what can be inferred without one.
func (r *Run) aboutIt() Info {
	if r.about != nil {
		i := *r.about
		return i
	}
	i := Info{}
	if s := r.result; s != nil {
		i = Info{
			System: s.System, Preset: s.Preset, Updates: s.UpdatesPlanned, Device: s.Device, Precision: device.Precision(s.Precision), Threads: s.Threads,
			Parameters: s.Parameters, Plan: Plan{Arena: s.ArenaPlanned, Total: s.PlannedTotal, PeakName: s.Peak},
		}
	}
	return i
}

// latest returns the newest figures.
func (r *Run) latest(i *Info) Latest {
	none := Number(math.NaN())
	l := Latest{none, none, none, none, none, none, none, none, none, 0}
	for _, k := range r.curve.odd {
		if r.curve.rows[k].skipped {
			l.Skipped++
		}
	}
	if n := len(r.curve.rows); n > 0 {
		x := &r.curve.rows[n-1]
		l.Loss, l.LR, l.GradNorm, l.LossZ, l.NormZ = Number(x.loss), Number(x.lr), Number(x.norm), Number(x.lossZ), Number(x.normZ)
		if x.scale > 0 {
			l.Scale = Number(x.scale)
		}
		l.Rate, l.Share = Number(x.speed()), Number(x.share(i.Plan.Peak))
		l.Seconds = Number(x.updateSeconds)
		if x.since.Updates > 0 {
			l.Seconds = Number(x.since.Seconds / float64(x.since.Updates))
		}
	}
	return l
}

// TotalTime says where the time of all updates in the metrics went.
func (r *Run) TotalTime() TimeShare { return r.timeShare(math.MaxInt64) }

// timeShare sums up the last updates, at least the given number.
func (r *Run) timeShare(updates int64) (t TimeShare) {
	rows := r.curve.rows
	var wait, save, eval float64
	for i := len(rows) - 1; i >= 0 && t.Updates < updates; i-- {
		x := rows[i].since
		if x.Updates == 0 { // a line of an earlier version covers only its own update
			x.Updates, x.Seconds, x.Wait = 1, float64(rows[i].updateSeconds), float64(rows[i].wait)
		}
		t.Updates += x.Updates
		t.Seconds += x.Seconds + x.Save + x.Evaluation
		wait, save, eval = wait+x.Wait, save+x.Save, eval+x.Evaluation
	}
	if t.Seconds > 0 {
		t.Data, t.Save, t.Evaluation = wait/t.Seconds, save/t.Seconds, eval/t.Seconds
		t.Compute = max(0, 1-t.Data-t.Save-t.Evaluation)
	}
	return t
}

// updateSeconds is how long an update takes now, saving and evaluating included; 0:
// unknown.
func (r *Run) updateSeconds() float64 {
	t := r.timeShare(recentUpdates)
	if t.Updates == 0 {
		return 0
	}
	return t.Seconds / float64(t.Updates)
}

// memory returns the card's memory, or the process's.
func (r *Run) memory(i *Info) Memory {
	m := Memory{Planned: i.Plan.Total, Arena: i.Plan.Arena, Capacity: i.Plan.Capacity, Card: i.Card}
	for k := range r.machine {
		s := &r.machine[k]
		switch {
		case !i.Card:
			m.Used, m.Peak, m.Limit = s.RSS, max(m.Peak, s.PeakRSS), s.MemoryTotal
			if s.CgroupLimit > 0 {
				m.Limit = min(m.Limit, s.CgroupLimit)
			}
		case s.GPU != nil && s.GPU.Used != nil:
			m.Used = int64(*s.GPU.Used)
			m.Peak = max(m.Peak, m.Used)
			if s.GPU.Total != nil {
				m.Limit = int64(*s.GPU.Total)
			}
		}
	}
	return m
}

// lastLines returns the last lines of the log or, for a run of an earlier version, the
// warnings in its metrics.
func (r *Run) lastLines(n int) []LogLine {
	lines := r.lines
	if r.log.info == nil {
		for _, x := range r.curve.notes {
			level := LevelWarning
			if x.event == "checkpoint" {
				level = LevelInfo
			}
			lines = append(lines, LogLine{x.time, level, x.update, x.text})
		}
	}
	return lines[max(0, len(lines)-n):]
}
