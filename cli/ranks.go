package cli

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/session"
)

// Training with several processes. With --nproc this process starts all of them (spawn.go), and the one with
// rank 0 has the terminal. Other launchers start them before snug runs.

// processes is the value of --nproc.
type processes struct {
	n    int  // 0 if not given
	auto bool // as many as use the whole machine; n is set later
}

// Decode implements kong.MapperValue.
func (p *processes) Decode(ctx *kong.DecodeContext) error {
	var text string
	if err := ctx.Scan.PopValueInto("number", &text); err != nil {
		return err
	}
	n, err := strconv.Atoi(text)
	switch {
	case text == "auto":
		*p = processes{auto: true}
		return nil
	case err != nil:
		return fmt.Errorf("want a whole number or auto, got %q", text)
	case n < 1:
		return fmt.Errorf("want 1 or more, or auto, got %d", n)
	}
	if e := config.QuantityOf("processes").Exceeds(text, nil); e != "" {
		return fmt.Errorf("want %s, got %d", e, n)
	}
	*p = processes{n: n}
	return nil
}

// silence is how long a rank may show no sign of life; 0 means the default. Tests shorten it.
var silence time.Duration

// place is the role of this process among those that train together. It trains alone if launch is nil, starts
// others if spawn is set, and otherwise is a rank of group.
type place struct {
	launch *dist.Launch
	group  dist.Group
	spawn  *spawn
}

// local returns the place on this machine.
func (p *place) local() session.Local {
	l := session.Local{Rank: p.launch.LocalRank, World: p.launch.LocalWorld}
	if p.launch.By == "snug" {
		l.Processors = session.OfAll
		if os.Getenv(boundVariable) != "" {
			l.Processors = session.OfOne
		}
	}
	return l
}

// join finds the place of this process. It waits for the other ranks, but first rejects what all of them
// would reject.
func (t *trainCmd) join(a *app) (p place, err error) {
	launch, err := dist.FindLaunch(os.Getenv)
	if err != nil {
		return p, session.UsageError{Err: err}
	}
	if launch != nil && launch.By != "snug" && launch.World > 1 && !launch.Machines && (t.Nproc.n > 0 || t.Nproc.auto) {
		return p, usage("--nproc starts processes by itself, and %s has started %d: give one of the two", launch.By, launch.World)
	}
	own := session.Options{Sources: a.sources(t.choice), Dir: t.Out, Resume: t.Resume, Fresh: t.Fresh, Phase: t.Phase}
	started := launch != nil && launch.By == "snug" // by a process like this one, which has already counted and checked
	var bound [][]int
	if t.Nproc.auto && !started {
		d, err := session.Divide(a.ctx, own)
		if err != nil {
			return p, err
		}
		a.warnf("snug: --nproc auto: %d: %s\n", d.Processes, d.Because)
		t.Nproc.n, bound = d.Processes, d.Processors
	}
	if launch != nil && launch.Machines {
		if err := launch.Spread(t.Nproc.n, t.Nproc.auto); err != nil {
			return p, session.UsageError{Err: err}
		}
		if launch.World == max(1, t.Nproc.n) { // there is only one machine
			launch = nil
		} else if t.Nproc.n > 1 { // this process starts the ranks of this machine
			if err := session.Preflight(a.ctx, own, launch.World, false); err != nil {
				return p, err
			}
			return place{spawn: &spawn{app: a, machine: launch, n: t.Nproc.n, bound: bound}}, nil
		}
	}
	switch {
	case launch != nil && (started || launch.World > 1):
	case t.Nproc.n == 1:
		launch = &dist.Launch{By: "snug", World: 1, LocalWorld: 1}
		return place{launch: launch, group: dist.InProcess(1)[0]}, nil
	case t.Nproc.n > 1:
		if err := session.Preflight(a.ctx, own, t.Nproc.n, true); err != nil {
			return p, err
		}
		return place{spawn: &spawn{app: a, n: t.Nproc.n, bound: bound}}, nil
	default:
		return p, nil
	}
	if started {
		err = inherit(a, launch)
	} else {
		err = session.Preflight(a.ctx, own, launch.World, false)
	}
	if err != nil {
		return p, err
	}
	if launch.Rank > 0 {
		a.signals.does(following)
	}
	launch.Asked, launch.Silence = t.asked(a), silence
	waiting := time.AfterFunc(quietly, func() {
		a.warnf("snug: rank %d of %d is waiting for the others to join %s; it gives up after %v\n", launch.Rank, launch.World, launch.Meeting(), dist.Meet)
	})
	defer waiting.Stop()
	g, err := launch.Join(a.ctx)
	if errors.As(err, new(*dist.AskedError)) {
		err = session.UsageError{Err: err}
	}
	return place{launch: launch, group: g}, err
}

// everywhere lists the commands that every process of a launch may run. All others are for a single process:
// several would repeat the work and write the same files.
var everywhere = []string{"train", "doctor", "config"}

// alone rejects a command for a single process if a launcher has started several.
func alone(verb string) error {
	launch, err := dist.FindLaunch(os.Getenv)
	if err != nil || launch == nil || launch.World == 1 || slices.Contains(everywhere, verb) {
		return nil // contradictory variables do not show that there are several
	}
	return usage("%s is the work of one process, and this is one of several (%v): start it without the launcher, or, where each has work of its own, with %s=none", verb, launch, dist.LauncherVariable)
}

// asked returns the part of the command line that must be the same on all ranks. How each one prints may
// differ.
func (t *trainCmd) asked(a *app) map[string]string {
	m := map[string]string{}
	add := func(name, value string) {
		if value != "" && value != "false" && value != "0" {
			m[name] = value
		}
	}
	preset := t.Preset
	if preset == "" && t.Config == "" && !t.Resume {
		preset = session.DefaultPreset
	}
	add("preset", preset)
	add("--config", t.Config)
	add("--out", t.Out)
	add("--resume", strconv.FormatBool(t.Resume))
	add("--fresh", strconv.FormatBool(t.Fresh))
	add("--phase", t.Phase)
	add("--until", strconv.FormatInt(t.Until, 10))
	for _, o := range a.overrides {
		m["--"+o.Key] = o.Text
	}
	return m
}

// quietly is how long ranks wait for others before they say so.
const quietly = 5 * time.Second

// Files that a process inherits from the one that started it: the first after stderr.
const (
	lifelineFile = 3 // closed when the parent process ends
	listenerFile = 4 // for rank 0 only
)

// inherit takes over the files from the process that started this one, and makes this process end with it.
func inherit(a *app, launch *dist.Launch) (err error) {
	syscall.CloseOnExec(lifelineFile)
	go func() {
		orphaned(os.NewFile(lifelineFile, "lifeline"))
		a.warnf("snug: rank %d ends: the process that started it is gone\n", launch.Rank)
		os.Exit(exitLostRank)
	}()
	if launch.Rank > 0 {
		return nil
	}
	f := os.NewFile(listenerFile, "listener")
	if launch.Listener, err = net.FileListener(f); err != nil {
		return fmt.Errorf("the listener of the process that started this one: %w", err)
	}
	return f.Close() // the listener has a copy
}

// orphaned returns when the other end of a pipe is closed.
func orphaned(lifeline io.Reader) {
	if _, err := io.Copy(io.Discard, lifeline); err != nil {
		select {} // not a pipe, so wait forever
	}
}

// follow trains with rank 0.
func (a *app) follow(p *place) error {
	err := session.Follow(a.ctx, p.group, p.local(), a.fetch(true))
	own := err
	if err != nil && !errors.As(err, new(*dist.LostError)) && !errors.As(err, new(*dist.EndedError)) {
		own = fmt.Errorf("rank %d: %w", p.group.Rank(), err)
	}
	return errors.Join(own, p.group.Leave(err))
}
