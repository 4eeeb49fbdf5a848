package session

import (
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// Expected is the predicted time of a training on its device, in seconds.
type Expected struct {
	Runs        int   // number of runs
	Updates     int64 // left to do
	Evaluations int64

	Updating, Evaluating, Saving float64
	// Reporting and Sampling are the time after the last update. Whole is the part of the report that runs on
	// data not limited by training.eval_batches.
	Reporting, Sampling, Whole float64
	// Slow is the factor by which all of it may take longer; 1 on a processor, whose speed was measured.
	Slow float64
}

// Seconds returns the sum of all parts.
func (e Expected) Seconds() float64 {
	return e.Updating + e.Evaluating + e.Saving + e.Reporting + e.Sampling
}

// with adds the time of another run.
func (e Expected) with(o Expected) Expected {
	return Expected{
		e.Runs + o.Runs, e.Updates + o.Updates, e.Evaluations + o.Evaluations,
		e.Updating + o.Updating, e.Evaluating + o.Evaluating, e.Saving + o.Saving,
		e.Reporting + o.Reporting, e.Sampling + o.Sampling, e.Whole + o.Whole, max(e.Slow, o.Slow),
	}
}

// ofShare scales e to a share of the updates, with as many evaluations, each on that share of the data.
func (e Expected) ofShare(share float64) Expected {
	e.Updates = int64(math.Round(share * float64(e.Updates)))
	e.Updating, e.Evaluating = share*e.Updating, share*e.Evaluating
	e.Reporting = e.Whole + share*(e.Reporting-e.Whole)
	return e
}

// savedBytes is the assumed rate, in bytes per second, at which a checkpoint becomes durable while an update
// waits for it.
const savedBytes = 500e6

// expected returns the time that a run takes from the given update on, if one evaluation takes the given
// seconds.
func (s *Setup) expected(report *plan.Report, p *engine.Program, from int64, evaluation float64, d *system.Run) Expected {
	t := &s.Config.Training
	last := int64(t.MaxSteps)
	every := func(n int) int64 { // counts the one at the end too
		if n == 0 || last <= from {
			return 1
		}
		return (last-1)/int64(n) - from/int64(n) + 1
	}
	e := Expected{Runs: 1, Updates: last - from, Updating: float64(last-from) * report.Time.Update, Slow: 1}
	saves := every(t.SaveSteps)
	if evaluation > 0 {
		e.Evaluations = every(t.EvalSteps)
		e.Evaluating = float64(e.Evaluations) * evaluation
		if s.Config.Checkpoint.KeepBest {
			saves = max(saves, e.Evaluations)
		}
		if d == nil || d.Report != nil {
			e.Reporting = evaluation
			if d != nil && d.ReportPasses > 0 {
				e.Reporting = d.ReportPasses * evaluation
				e.Whole = e.Reporting
			}
		}
	}
	if states := p.Layout.States.Bytes; train.StagingBytes(p) < states {
		e.Saving = float64(saves) * float64(states) / savedBytes
	}
	if s.System.Language != nil {
		all, _ := p.Parameters()
		token := max(2*float64(all)/report.Speed.Full, 4*float64(all)/report.Speed.Bandwidth)
		e.Sampling = float64(t.Sample.Tokens) * token
	}
	if report.Time.Slow != nil {
		e.Slow = report.Time.Slow.Update / report.Time.Update
	}
	return e
}

// evaluation returns the time of an evaluation that runs each function on count micro-batches.
func evaluation(report *plan.Report, p *engine.Program, count map[string]int) (seconds float64) {
	for name, n := range count {
		if f := p.Func(name); f != nil {
			seconds += float64(n) * report.Speed.Function(f)
		}
	}
	return seconds
}

// expect completes the event before the first update: how long the run and the later phases take, and what
// would take less.
func (r *run) expect(b *Begins, from int64) (err error) {
	var count map[string]int
	if r.data.Evaluator != nil {
		if count, err = r.data.Evaluator.Count(r.ctx, r.runner); err != nil {
			return err
		}
	}
	b.Expected = r.expected(r.report, r.program, from, evaluation(r.report, r.program, count), r.data)
	b.Whole, b.Of = b.Expected, 1+len(r.phasesLater)
	if len(r.phasesLater) > 0 {
		b.Whole = b.Whole.with(r.later(r.target, r.phasesLater))
		debug.FreeOSMemory() // planning left more than a run's garbage may take
	}
	if from == 0 {
		batches := 0
		for _, n := range count {
			batches += n
		}
		b.Shorter = r.shorter(b.Whole, batches)
	}
	return nil
}

// later sums the time of phases that have not begun, as far as their configuration tells. Phases that cannot
// be planned yet are left out.
func (t *training) later(target plan.Target, phases []system.Phase) (sum Expected) {
	for _, p := range phases {
		s, err := t.load(p.Settings)
		if err != nil {
			continue // the error is reported when the phase begins
		}
		report, program, err := s.Fit(target, s.Precision)
		if err != nil {
			continue
		}
		count := map[string]int{}
		for _, f := range program.Funcs {
			if engine.IsVariant(f.Name, engine.FuncEval) && p.HeldOut > 0 {
				rows := s.Model.Shape.Rows(false)
				count[f.Name] = (p.HeldOut + rows - 1) / rows
				if n := s.Config.Training.EvalBatches; n > 0 {
					count[f.Name] = min(n, count[f.Name])
				}
			}
		}
		sum = sum.with(s.expected(report, program, 0, evaluation(report, program, count), nil))
	}
	return sum
}

// QuickRun is how long a quickstart may take before a shorter one is offered.
const QuickRun = 5 * time.Minute

// leastUpdates is the minimum number of updates of the longest run in a shorter training: with fewer there is
// nothing to see.
const leastUpdates = 50

// Shorter is a variant of a training with fewer updates.
type Shorter struct {
	Flags   []config.Override
	Seconds float64
}

// shorter returns a training that takes at most QuickRun, or as close to it as possible, to replace one that
// takes much longer; nil if there is none. batches is the number of micro-batches of an evaluation.
func (s *Setup) shorter(whole Expected, batches int) *Shorter {
	if !strings.HasSuffix(s.Config.Preset, "quickstart") || whole.Seconds() < QuickRun.Seconds() {
		return nil
	}
	values := map[string]string{}
	for _, v := range s.Config.Values() {
		values[v.Key] = v.Text
	}
	number := func(key string) int {
		n, _ := strconv.Atoi(values[key])
		return n
	}
	lengths, lenient := []string{"training.max_steps"}, []config.Override(nil)
	if s.System.Lengths != nil {
		lengths, lenient = s.System.Lengths(s.Config)
	}
	longest := 1
	for _, key := range lengths {
		longest = max(longest, number(key))
	}
	scaled := whole.ofShare(1).Seconds() - whole.ofShare(0).Seconds()
	share := max((QuickRun.Seconds()-whole.ofShare(0).Seconds())/scaled, leastUpdates/float64(longest))
	if share > 0.9 {
		return nil
	}
	out := &Shorter{Seconds: whole.ofShare(share).Seconds()}
	add := func(key string, n int) {
		if n > 0 {
			n = max(1, int(math.Round(share*float64(n))))
			out.Flags = append(out.Flags, config.Override{Key: key, Text: strconv.Itoa(n), Flag: "--" + key})
		}
	}
	for _, key := range lengths {
		add(key, number(key))
	}
	for _, key := range []string{"training.warmup_steps", "training.eval_steps", "training.save_steps", "training.log_steps"} {
		add(key, number(key))
	}
	add("training.eval_batches", batches)
	out.Flags = append(out.Flags, lenient...)
	return out
}

// String returns the flags as they are typed.
func (s *Shorter) String() string {
	var b strings.Builder
	for i, f := range s.Flags {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s %s", f.Flag, f.Text)
	}
	return b.String()
}
