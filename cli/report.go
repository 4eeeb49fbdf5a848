package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/runreport"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train/rundir"
)

type reportCmd struct {
	Runs     []string `arg:"" name:"run" help:"Run directories; several are compared." placeholder:"RUN"`
	Format   string   `help:"html: a page that needs no other file; md: Markdown; json: all figures." enum:"html,md,json" default:"html"`
	Out      string   `help:"Folder to write to (default for html: RUN/report, and comparison for several runs; md and json are printed)." placeholder:"DIR"`
	Pictures string   `help:"Write each picture as a file too: svg." enum:",svg" default:"" placeholder:"FORMAT"`
}

// Help implements kong.HelpProvider.
func (reportCmd) Help() string {
	return `Reports on runs, whether they ended or not: what was trained on what, curves,
evaluations and baselines, where time and memory went, the machine, advice, warnings,
and the system's own results. Only the run directories are read: the same files give
the same report. Each table and picture names the file that it comes from.

Examples:
  snug report runs/quickstart
  snug report runs/a runs/b --out comparison
  snug report runs/quickstart --format md --pictures svg --out summary
  snug report runs/quickstart --format json | jq .runs[0].evaluations`
}

// Run implements the command.
func (c *reportCmd) Run(a *app) error {
	format := c.Format
	if a.asJSON {
		if format == runreport.Markdown {
			return usage("--json and --format md: give only one")
		}
		format = runreport.JSON
	}
	r, err := runreport.Open(c.Runs, session.PresetSettings)
	if err != nil {
		return session.UsageError{Err: err}
	}
	out, pictures := c.Out, runreport.Pictures(c.Pictures)
	switch {
	case out != "":
	case format == runreport.HTML && len(c.Runs) == 1:
		const folder = "report"
		out = filepath.Join(c.Runs[0], folder)
		if err := unlinked(c.Runs[0], folder); err != nil {
			return err
		}
	case format == runreport.HTML:
		out = "comparison"
	case pictures != "":
		return usage("--pictures %s: name a folder with --out DIR", c.Pictures)
	case a.asJSON:
		return a.json(r)
	default:
		text, err := r.Text(format, "")
		if err == nil {
			_, err = a.out.Write(text)
		}
		return err
	}
	path, n, err := r.Write(out, format, pictures)
	if err != nil && c.Out == "" {
		err = fmt.Errorf("%w; --out DIR writes the report to another folder", err)
	}
	if err != nil {
		return err
	}
	if a.asJSON {
		if err := a.json(r); err != nil {
			return err
		}
	}
	a.printf("report: %s\n", path)
	if n > 0 {
		a.printf("pictures: %s in %s\n", size.Of(n, "file"), out)
	}
	return nil
}

// unlinked rejects a link in place of a run's folder, because a report would be written through it.
func unlinked(run, folder string) (err error) {
	dir, err := rundir.Look(run)
	if err != nil {
		return err
	}
	return errors.Join(dir.Unlinked(folder), dir.Close())
}
