package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/table"
	"github.com/snug-ml/snug/session"
)

type planCmd struct {
	choice
	Card   []string `help:"Card to plan for (t4, a100-80, h100, ...), repeatable; all: the whole table (default: this machine)." placeholder:"NAME"`
	Epoch  int64    `help:"Tokens (examples) of training data, to print the time of an epoch (default: as many as data.cache_dir has)." placeholder:"N" min:"1" of:"corpus"`
	Ops    bool     `help:"Print what each operation's kernels take on a card, and what limits them."`
	Shapes bool     `help:"With --ops: one line per shape."`
	Dump   string   `help:"Print the program before and after a pass: ${passes}." placeholder:"PASS"`
	Nproc  int      `help:"Plan for this many processes on each machine, which share the micro-batches of every update: the memory of one, what they exchange, and how much faster all are." placeholder:"N" min:"1" of:"processes"`
	Nodes  int      `help:"Plan for this many machines, each with the processes of --nproc (default: 1)." placeholder:"M" min:"1" of:"machines"`
	Link   string   `help:"What is between the machines of --nodes, by its rate: 10Gb, 25Gb, 100Gb, 3GB (b: bits, B: bytes a second)." placeholder:"RATE"`
	// CardLink is only for the prediction of NCCL, because snug's own exchange crosses main memory.
	CardLink string `help:"What is between the cards of a machine: pcie3, pcie4, pcie5, nvlink2, nvlink3, nvlink4 (default: what the card usually has)." placeholder:"NAME"`
}

// Help implements kong.HelpProvider.
func (planCmd) Help() string {
	return `Nothing is run, and the card need not be present: the program is compiled and
placed, and its memory counted to the byte. What does not fit is refused (exit
code 3) with the changes that would make it fit, each compiled and measured.

Examples:
  snug plan                                       the quickstart on this machine
  snug plan refocused-production --card t4 --training.optimizer adamw   why it does not fit a T4
  snug plan refocused-production --card all       every card of the table
  snug plan --training.gradient_checkpointing full
  snug plan moderation-t4 --card t4 --epoch 24000 the time of an epoch of 24,000 examples
  snug plan refocused-t4 --card t4 --ops          each operation: its kernels next to the roofline
  snug plan --dump recompute | less               the program around a pass
  snug plan refocused-t4 --card t4 --nproc 4 --nodes 2 --link 25Gb   8 processes on 2 machines

With --nproc or --nodes the time of an update with several processes is predicted, not
measured; docs/scaling.md has the model and what it was held against.`
}

// planningGC is the percentage by which the heap may grow between garbage collections while planning, which
// discards far more than it keeps.
const planningGC = 200

// Run implements the command.
func (p *planCmd) Run(a *app) error {
	s, err := p.load(a)
	if err != nil {
		return err
	}
	s.Remember()
	defer debug.SetGCPercent(debug.SetGCPercent(planningGC))
	s.EpochUnits = p.Epoch
	if p.Dump != "" && slices.Contains(p.Card, "all") {
		return usage("--dump with --card all: name the cards")
	}
	if p.Shapes && !p.Ops {
		return usage("--shapes: tells the shapes of --ops apart, which is not given")
	}
	if p.Ops && (p.Dump != "" || slices.Contains(p.Card, "all")) {
		return usage("--ops with --dump or --card all: name the cards, and leave --dump out")
	}
	if p.Dump != "" {
		return p.dump(a, s)
	}
	if p.Ops {
		return p.ops(a, s)
	}
	if slices.Contains(p.Card, "all") {
		return p.all(a, s)
	}
	targets, err := s.Targets(p.Card)
	if err != nil {
		return err
	}
	clusters, err := p.clusters(s, targets)
	if err != nil {
		return err
	}
	var refused error
	var said []any // one report or refusal per target
	for i, t := range targets {
		report, no, err := s.Plan(t)
		var hopeless *plan.Hopeless
		if errors.As(err, &hopeless) {
			extents, err := s.Extents(t, hopeless.Settings)
			if err != nil {
				return err
			}
			refused = errors.Join(refused, hopeless)
			said = append(said, hopelessPlan{hopeless, extents})
			if !a.asJSON {
				a.printf("%s", strings.TrimPrefix(extentsText(extents), "\n"))
			}
			continue
		}
		if err != nil {
			return err
		}
		if clusters != nil && no == nil {
			if err := s.Scale(t, report, clusters[i]); err != nil {
				return err
			}
		}
		extents, err := s.Extents(t, report.Run.Settings)
		if err != nil {
			return err
		}
		switch {
		case a.asJSON && no != nil:
			said = append(said, refusedPlan{no, extents})
		case a.asJSON:
			said = append(said, fittingPlan{report, extents})
		default:
			if i > 0 {
				a.printf("\n")
			}
			a.printf("%v\n%s\n", report, times(s, report.Time)) // printed before the ladder, which takes longer
			ladder, err := s.Ladder(t, report, no)
			if err != nil {
				return err
			}
			a.printf("what each change would save and cost\n%s", plan.FormatLadder(ladder))
			if report.Scaling != nil {
				a.printf("\n%v", report.Scaling)
			}
			a.printf("%s", extentsText(extents))
		}
		if no != nil {
			refused = errors.Join(refused, no)
		}
	}
	if a.asJSON {
		var document any = said
		if len(said) == 1 {
			document = said[0]
		}
		if err := a.json(document); err != nil {
			return err
		}
	}
	return refused
}

// fittingPlan and refusedPlan are plans as JSON, with how large settings could be.
type (
	fittingPlan struct {
		*plan.Report
		Extents []session.Extent `json:"extents,omitempty"`
	}
	refusedPlan struct {
		*plan.DoesNotFit
		Extents []session.Extent `json:"extents,omitempty"`
	}
	hopelessPlan struct {
		*plan.Hopeless
		Extents []session.Extent `json:"extents,omitempty"`
	}
)

// load returns the setup to plan; with --nproc or --nodes, that of one of several processes.
func (p *planCmd) load(a *app) (*session.Setup, error) {
	if p.Nproc == 0 && p.Nodes == 0 {
		for _, flag := range [][2]string{{"--link", p.Link}, {"--card-link", p.CardLink}} {
			if flag[1] != "" {
				return nil, usage("%s %s: is for a run of several processes; give --nproc or --nodes", flag[0], flag[1])
			}
		}
		if len(p.Card) > 0 {
			return a.loadElsewhere(p.choice, 0, 0)
		}
		return a.load(p.choice, nil, false)
	}
	if p.Ops || p.Dump != "" || slices.Contains(p.Card, "all") {
		return nil, usage("--nproc and --nodes with --ops, --dump or --card all: name the cards, and leave the others out")
	}
	if len(p.Card) > 0 {
		return a.loadElsewhere(p.choice, max(1, p.Nproc), max(1, p.Nodes))
	}
	return a.loadShared(p.choice, max(1, p.Nproc), max(1, p.Nodes))
}

// clusters returns one cluster for each target, or nil if the plan is for one process.
func (p *planCmd) clusters(s *session.Setup, targets []plan.Target) (list []plan.Cluster, err error) {
	if s.World == 0 {
		return nil, nil
	}
	for _, t := range targets {
		c, err := s.Cluster(t, p.Link, p.CardLink)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// extentsText says how large settings can be.
func extentsText(extents []session.Extent) string {
	if !slices.ContainsFunc(extents, func(e session.Extent) bool { return e.Largest > 0 }) {
		return ""
	}
	rows := [][]string{}
	for _, e := range extents {
		if e.Largest == 0 {
			rows = append(rows, []string{e.Key, "none fits", "", ""})
			continue
		}
		note := ""
		if e.Largest == e.Most {
			note = "all that the model takes"
		}
		value := fmt.Sprint(e.Largest)
		if e.Unit != "" {
			value, note = fmt.Sprintf("%s %s", size.Count(float64(e.Largest)), e.Unit), e.Of
		}
		rows = append(rows, []string{e.Key, value, size.Bytes(e.Total).String(), note})
	}
	return "\nthe largest that fit, each with the other settings as they are and gradient_checkpointing full\n" + table.Format(rows)
}

// times returns the lines about a whole run and an epoch.
func times(s *session.Setup, t plan.Timing) string {
	text := fmt.Sprintf("whole run: %s in %s, without evaluations and saves\n", size.Of(s.Config.Training.MaxSteps, "update"), wholeRun(t))
	if t.EpochUnits > 0 {
		text += epochLine(s, t)
	}
	return text
}

// epochLine returns the line about an epoch, and how many of them, or how much of one, the run has.
func epochLine(s *session.Setup, t plan.Timing) string {
	update := int64(s.Model.Shape.MicroBatch*s.Model.Shape.Accumulation) * s.Model.UnitsPerRow
	epochs := float64(update*int64(s.Config.Training.MaxSteps)) / float64(t.EpochUnits)
	has := fmt.Sprintf("%.3g of them", epochs)
	if epochs < 0.1 {
		has = fmt.Sprintf("%.2g %% of one", 100*epochs)
	}
	return fmt.Sprintf("an epoch: %s %s in %s; the run has %s\n", size.Count(float64(t.EpochUnits)), s.Model.Unit, epoch(t), has)
}

// all prints one line per card.
func (p *planCmd) all(a *app, s *session.Setup) error {
	type row struct {
		Card      string           `json:"card"`
		Precision device.Precision `json:"precision"`
		Needs     int64            `json:"planned_total_bytes"`
		Has       int64            `json:"capacity_bytes"`
		Fits      bool             `json:"fits"`
		Rate      float64          `json:"units_per_second"`
		Least     float64          `json:"units_per_second_least"` // the slow end of the range
		Note      string           `json:"note,omitempty"`         // applies to both ends
		Change    string           `json:"smallest_change,omitempty"`

		predicted string
	}
	rows := []row{}
	for _, c := range device.Cards() {
		t := plan.OnCard(c, backend.Lower(c))
		precision, _, err := device.ChoosePrecision(s.Asked, c)
		if err != nil {
			rows = append(rows, row{Card: c.Name, Has: t.Memory, Change: err.Error()})
			continue
		}
		report, _, err := s.Fit(t, precision)
		var hopeless *plan.Hopeless
		if errors.As(err, &hopeless) {
			rows = append(rows, row{Card: c.Name, Precision: precision, Needs: hopeless.Least, Has: t.Memory, Change: "no change of settings is enough: at least this much is needed"})
			continue
		}
		var no *plan.DoesNotFit
		if err != nil && !errors.As(err, &no) {
			return err
		}
		r := row{Card: c.Name, Precision: precision, Needs: report.Total, Has: report.Capacity, Fits: report.Fits,
			Note: report.Time.Note, predicted: predicted(report.Time)}
		r.Rate, r.Least = report.Time.Rate()
		if no != nil {
			r.Change = "no change of settings is enough"
			if no.Smallest != nil {
				r.Change = no.Smallest.Change
			}
		}
		rows = append(rows, r)
	}
	if a.asJSON {
		return a.json(rows)
	}
	out := [][]string{{"CARD", "PRECISION", "NEEDS", "HAS", "", strings.ToUpper(s.Model.Unit) + "/S (PREDICTED, NOT MEASURED)", "SMALLEST CHANGE THAT FITS"}}
	for _, r := range rows {
		verdict := "fits"
		if !r.Fits {
			verdict = "does not fit"
		}
		out = append(out, []string{r.Card, string(r.Precision), size.Bytes(r.Needs).String(), size.Bytes(r.Has).String(), verdict, cmp.Or(r.predicted, "0"), r.Change})
	}
	return a.table(out)
}

// ops prints the predicted times of the operations that training would run.
func (p *planCmd) ops(a *app, s *session.Setup) error {
	targets, err := s.Targets(p.Card)
	if err != nil {
		return err
	}
	var said [][]plan.OpRow
	for i, t := range targets {
		if t.Card == nil {
			return usage("--ops: prices the kernels of a card, name one by --card; snug bench --ops measures operations on this processor")
		}
		rows, err := s.Ops(t, p.Shapes)
		if err != nil {
			return err
		}
		said = append(said, rows)
		if !a.asJSON {
			if i > 0 {
				a.printf("\n")
			}
			a.printf("%s\n%s", t.Name, plan.FormatOps(rows))
		}
	}
	if a.asJSON && len(said) == 1 {
		return a.json(said[0])
	}
	if a.asJSON {
		return a.json(said)
	}
	return nil
}

// dump compiles what would be trained and prints the programs.
func (p *planCmd) dump(a *app, s *session.Setup) error {
	ok := false
	for _, n := range pass.Names() {
		ok = ok || n == p.Dump
	}
	if !ok {
		return usage("--dump %s: no such pass; the passes are %s", p.Dump, strings.Join(pass.Names(), ", "))
	}
	targets, err := s.Targets(p.Card)
	if err != nil {
		return err
	}
	var text strings.Builder
	to := io.Writer(a.out)
	if a.asJSON {
		to = &text
	}
	for _, t := range targets {
		if err := s.Dump(t, p.Dump, to); err != nil {
			return err
		}
	}
	if a.asJSON {
		return a.json(map[string]string{"pass": p.Dump, "programs": text.String()})
	}
	return nil
}

// usageError is a mistake in the command line.
type usageError = session.UsageError

func usage(format string, args ...any) error { return usageError{Err: fmt.Errorf(format, args...)} }
