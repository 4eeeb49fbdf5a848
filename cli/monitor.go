package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/monitor/terminal"
	"github.com/snug-ml/snug/train"
)

type monitorCmd struct {
	Runs     []string      `arg:"" optional:"" name:"run" help:"Run directories (default: the newest run in the folder runs/)."`
	Only     bool          `help:"Show this machine without a run: processors, memory, card."`
	Once     bool          `help:"Print what is known now and end."`
	Interval time.Duration `default:"1s" help:"Time between two looks." above:"0" of:"duration"`
	ASCII    bool          `name:"ascii" help:"Draw with ASCII characters (default: where the locale is not UTF-8)."`
	webFlags
}

// Help implements kong.HelpProvider.
func (monitorCmd) Help() string {
	return `A run is watched over its directory alone: from any terminal, from another machine
over a network file system, and after it ended. Watching changes nothing in it.

Examples:
  snug monitor                      the newest run in the folder runs/
  snug monitor runs/a runs/b        two runs, their curves laid over each other
  snug monitor --once runs/a        the screen once, for a terminal or a file
  snug monitor --json runs/a        what is known of the run, as one JSON document
  snug monitor --only               this machine without a run
  snug monitor --web                all runs in the folder runs/ in a browser, and for Prometheus
  snug train --monitor              train, and watch in the same terminal

On a terminal q leaves and ? lists the keys. Elsewhere (a pipe, a file, TERM=dumb)
there is one line whenever something changed, until the run ends.

With --web, runs that come later show too, and a RUN may be a folder of runs. Without a
token only this machine may ask; from another, forward the port:
ssh -L 8412:127.0.0.1:8412 HOST. With a token (--token-file, or the variable
SNUG_MONITOR_TOKEN) a browser asks for it once, and a program sends the header
Authorization: Bearer TOKEN.`
}

// Run implements the command.
func (m *monitorCmd) Run(a *app) error {
	if m.Interval < 100*time.Millisecond {
		return usage("--interval %s: want 100ms or more", m.Interval)
	}
	if m.Only && len(m.Runs) > 0 {
		return usage("--only shows this machine without a run: give no run with it")
	}
	if err := m.check(m.Only || m.Once); err != nil {
		return err
	}
	if m.Web {
		return a.serveMonitor(m.webFlags, m.Runs, m.Interval)
	}
	w, err := m.watcher()
	if err != nil {
		return err
	}
	switch {
	case a.asJSON:
		return m.document(a, w)
	case m.Once:
		return m.once(a, w)
	}
	if in, out, ok := a.terminal(); ok {
		o := terminal.Options{Looks: m.looks(), Look: w.Look, Interval: m.Interval}
		_, err := terminal.Show(a.ctx, in, out, o)
		return err
	}
	return m.lines(a, w)
}

// watcher opens the runs to watch.
func (m *monitorCmd) watcher() (*terminal.Watcher, error) {
	if m.Only {
		return terminal.WatchMachine(monitor.NewMachine()), nil
	}
	dirs := m.Runs
	if len(dirs) == 0 {
		dir, err := newestRun(runsFolder)
		if err != nil {
			return nil, err
		}
		dirs = []string{dir}
	}
	var runs []*monitor.Run
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) {
			return nil, usage("%s: given twice", dir)
		}
		r, err := monitor.Open(dir)
		if err != nil {
			return nil, usage("%v", err)
		}
		runs = append(runs, r)
	}
	return terminal.WatchRuns(runs...), nil
}

// runsFolder is the default folder for runs without --out.
const runsFolder = "runs"

// newestRun returns the most recently written run in a folder or its subfolders.
func newestRun(folder string) (string, error) {
	list, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	newest, at := "", time.Time{}
	for _, e := range list {
		dir := filepath.Join(folder, e.Name())
		if t := lastWritten(dir); t.After(at) {
			newest, at = dir, t
		}
	}
	if newest == "" {
		return "", usage("there is no run below %s here: name a run directory, as in snug monitor /data/run (snug train writes to %s/PRESET unless --out says otherwise)", folder, runsFolder)
	}
	return newest, nil
}

// lastWritten returns when the run in dir, or a phase of it, was last written; zero if there is none.
func lastWritten(dir string) (last time.Time) {
	for _, pattern := range []string{"", "*"} {
		for _, name := range []string{monitor.InfoFile, train.MetricsFile} {
			files, _ := filepath.Glob(filepath.Join(globQuoted(dir), pattern, name)) // only fails on a bad pattern
			for _, f := range files {
				if info, err := os.Stat(f); err == nil && info.ModTime().After(last) {
					last = info.ModTime()
				}
			}
		}
	}
	return last
}

// globQuoted quotes a path as a pattern that matches only the path.
func globQuoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// document prints the snapshots.
func (m *monitorCmd) document(a *app, w *terminal.Watcher) error {
	m.settle(a)
	f := w.Look(monitor.View{Width: 1000, Lines: 100})
	if m.Only {
		return a.json(map[string]any{"machine": f.Runs[0]})
	}
	return a.json(map[string]any{"runs": f.Runs})
}

// settle waits until the machine has been sampled once, which takes one interval.
func (m *monitorCmd) settle(a *app) {
	if m.Only {
		select {
		case <-a.ctx.Done():
		case <-time.After(m.Interval):
		}
	}
}

// The size of a screen that is printed only once.
const (
	onceWidth  = 80
	onceHeight = 36
)

func (m *monitorCmd) once(a *app, w *terminal.Watcher) error {
	m.settle(a)
	looks := m.looks()
	looks.Color = looks.Color && a.out.live
	width := clampWidth(cmp.Or(a.out.width(), onceWidth))
	f := w.Look(monitor.View{Width: width, Lines: onceHeight})
	a.out.steer(terminal.Once(terminal.Options{Looks: looks}, width, onceHeight, f) + "\n")
	return nil
}

// clampWidth limits the width that a terminal reports to what can be drawn.
func clampWidth(w int) int { return min(max(w, 40), 400) }

// lines prints a line whenever something changes, until the runs end.
func (m *monitorCmd) lines(a *app, w *terminal.Watcher) error {
	var last []string
	said := map[string]bool{}
	tick := time.NewTicker(m.Interval)
	defer tick.Stop()
	for first := true; ; first = false {
		if !first || m.Only {
			select {
			case <-a.ctx.Done():
				return nil // Ctrl-C is the normal way to end watching
			case <-tick.C:
			}
		}
		f := w.Look(monitor.View{Width: 1})
		for i, s := range flat(f.Runs) {
			line := terminal.Line(s)
			if len(last) <= i {
				last = append(last, "")
			}
			if line != last[i] {
				a.printf("%s  %s\n", f.Now.Format(time.TimeOnly), line)
				last[i] = line
			}
			for _, n := range s.Alerts {
				if key := s.Path + string(n.Kind) + fmt.Sprint(n.Count); !said[key] {
					said[key] = true
					a.printf("%s  %s  %s: %s\n", f.Now.Format(time.TimeOnly), s.Name, n.Level, strings.TrimSuffix(n.Text+"; "+n.Do, "; "))
				}
			}
		}
		if !m.Only && f.Over() {
			return nil
		}
	}
}

// flat returns the runs, with a run in phases replaced by its phases.
func flat(runs []*monitor.Snapshot) (list []*monitor.Snapshot) {
	for _, s := range runs {
		if len(s.Phases) == 0 {
			list = append(list, s)
		}
		list = append(list, s.Phases...)
	}
	return list
}

// looks returns what the terminal can show.
func (m *monitorCmd) looks() terminal.Looks {
	l := looksOf(os.Getenv)
	l.ASCII = l.ASCII || m.ASCII
	return l
}

// looksOf reads the environment: color unless NO_COLOR is set, ASCII unless the locale is UTF-8.
func looksOf(env func(string) string) terminal.Looks {
	locale := strings.ToLower(cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG")))
	utf8 := strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
	return terminal.Looks{Color: env("NO_COLOR") == "", ASCII: !utf8 && env("WT_SESSION") == ""}
}

// terminal returns the files for a screen: stdin and stdout, if both are terminals that can be drawn on.
func (a *app) terminal() (in, out *os.File, ok bool) {
	in, isIn := a.in.(*os.File)
	out, isOut := a.stdout.w.(*os.File)
	if !isIn || !isOut || os.Getenv("TERM") == "dumb" || os.Getenv("TERM") == "" && os.Getenv("WT_SESSION") == "" {
		return nil, nil, false
	}
	return in, out, term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}
