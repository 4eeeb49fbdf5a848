package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train/checkpoint"
)

type checkCmd struct {
	Target    string  `arg:"" name:"run" help:"Run directory, preset, or YAML file with settings."`
	Update    int64   `help:"The update to run twice." default:"1" placeholder:"N" min:"1" of:"updates"`
	Precision string  `help:"The format to try: bf16, fp16 or fp32 (default: the configured one)." placeholder:"FORMAT"`
	Against   string  `help:"The trusted format, also used for the updates before." default:"fp32" placeholder:"FORMAT"`
	Device    string  `help:"The device to try: cpu, cuda, cuda:N or reference (default: the configured one, which is trusted)." placeholder:"DEVICE"`
	Factor    float64 `help:"Tolerance: a row may differ by this many times what its format explains." default:"8"`
	Faults    bool    `help:"Compute the updates of a run again, from its newest checkpoint before --update N to that, one operation at a time, and name the one that the card fails at."`
	Fused     bool    `help:"Compare the programs as trained; results inside fused loops are then not visible."`
	Phase     string  `help:"For a preset that trains in phases: the folder of the phase to check (default: the first)." placeholder:"NAME"`
}

// Help implements kong.HelpProvider.
func (checkCmd) Help() string {
	return `Runs one update twice from the same state on the same data, in two formats or on two
devices, and names the first operations, layers and rows whose results differ by more
than the format explains (see docs/check.md). A run starts from its newest checkpoint
before that update, a preset from its initial weights; the updates in between use the
trusted format and device. Nothing is saved except prepared data (for a preset, in
runs/check).

With --faults nothing is compared: the run's own program is computed again, each
operation waited for, so that a fault of a card has a name. A run whose card is lost
does that by itself.

Exit codes: 0 nothing differs by more than its format explains, or nothing failed, 1
something does, or the check failed, 2 wrong usage.

Examples:
  snug check quickstart --update 20 --precision bf16
  snug check runs/quickstart --update 500 --precision fp16 --against bf16 --json
  snug check small.yaml --device reference --precision fp32
  snug check runs/quickstart --faults --update 500`
}

// errDiffers is the error of a check that found differences.
var errDiffers = errors.New("results differ by more than their formats explain")

// Run implements the command.
func (c *checkCmd) Run(a *app) error {
	if c.Update < 1 {
		return usage("--update %d: want 1 or more", c.Update)
	}
	if !(c.Factor >= 1) {
		return usage("--factor %v: want 1 or more", c.Factor)
	}
	check := &session.Check{
		Phase: c.Phase, Update: c.Update, Precision: c.Precision, Device: c.Device, Against: c.Against, Factor: c.Factor, Fused: c.Fused, OnEvent: a.onEvent,
	}
	from := choice{Preset: c.Target}
	if ext := filepath.Ext(c.Target); ext == ".yaml" || ext == ".yml" {
		from = choice{Config: c.Target}
	}
	if _, err := os.Stat(filepath.Join(c.Target, checkpoint.ConfigFile)); err == nil {
		if check.Dir, err = a.runWithModel(c.Target); err != nil {
			return err
		}
		from = choice{Config: filepath.Join(check.Dir, checkpoint.ConfigFile)}
	}
	check.Sources = a.sources(from)
	if c.Faults {
		return a.replay(check)
	}
	report, err := check.Run(a.ctx)
	if err != nil {
		return err
	}
	if a.asJSON {
		err = a.json(report)
	} else {
		a.printCheck(report)
	}
	if err == nil && !report.Clean {
		err = errDiffers
	}
	return err
}

// errFault is the error of a replay in which the card failed.
var errFault = errors.New("the card has failed")

// replay finds out what a card fails at.
func (a *app) replay(c *session.Check) error {
	report, err := c.Replay(a.ctx)
	if err != nil {
		return err
	}
	if a.asJSON {
		err = a.json(report)
	} else {
		a.printf("%s: %v\n", report.Device, report)
	}
	if err == nil && report.Fault != "" {
		err = errFault
	}
	return err
}

// replayElsewhere replays a run in another process, because this one has lost its card.
var replayElsewhere = func(ctx context.Context, dir string, update int64, on string) (*session.Replayed, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, longestReplay)
	defer cancel()
	c := exec.CommandContext(ctx, self)
	c.Args = append(os.Args[:1:1], replayArguments(dir, update, on)...)
	c.SysProcAttr = diesWithParent()
	var says, out bytes.Buffer
	c.Stdout, c.Stderr = &out, &says
	runtime.LockOSThread() // the system kills the child when the thread that started it ends
	defer runtime.UnlockOSThread()
	err = c.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("it took longer than %v", longestReplay)
	}
	return replayed(out.Bytes(), says.String(), err)
}

// longestReplay limits how long the end of a run may spend on finding what its card fails at.
const longestReplay = 10 * time.Minute

func replayArguments(dir string, update int64, on string) []string {
	return []string{"check", dir, "--faults", "--update", fmt.Sprint(update), "--hardware.device", on, "--json"}
}

// replayed parses the result of a process that ended with err.
func replayed(out []byte, says string, err error) (*session.Replayed, error) {
	r := new(session.Replayed)
	if e := json.Unmarshal(out, r); e == nil && r.From != "" {
		return r, nil // exit code 1 means that the card failed
	}
	if says = strings.TrimSpace(says); says != "" {
		return nil, errors.New(strings.TrimPrefix(says, "snug: "))
	}
	return nil, err
}

// on names a format and, if there are several, the device.
func on(p device.Precision, name string) string {
	if name == "" {
		return string(p)
	}
	return fmt.Sprintf("%s on %s", p, name)
}

// printCheck prints the result.
func (a *app) printCheck(r *session.CheckReport) {
	a.printf("update %d from %s, %s against %s\n", r.Update, r.From, on(r.Precision, r.Device), on(r.Against, r.AgainstDevice))
	a.printf("  %-6s loss %-10.6g gradient norm %.6g\n", on(r.Precision, r.Device), float64(r.Tried.Loss), float64(r.Tried.GradNorm))
	a.printf("  %-6s loss %-10.6g gradient norm %.6g\n", on(r.Against, r.AgainstDevice), float64(r.Trusted.Loss), float64(r.Trusted.GradNorm))
	for _, f := range r.Functions {
		name := f.Func
		if strings.HasPrefix(f.Func, engine.FuncMicro) {
			name = fmt.Sprintf("%s %d", f.Func, f.Micro+1)
		}
		a.printf("%s: %s compared, %d with more than their format explains", name, size.Of(f.Compared, "value"), len(f.Findings))
		for _, s := range []struct {
			n    int
			what string
		}{{f.Cleared, "correct for their inputs"}, {f.Only, "in one program only"}, {f.Unjudged, "more not examined"}} {
			if s.n > 0 {
				a.printf("; %d %s", s.n, s.what)
			}
		}
		a.printf("\n")
		for i, x := range f.Findings {
			if i == mostFindings {
				a.printf("  and %d more (--json has all)\n", len(f.Findings)-i)
				break
			}
			a.printf("%v", x)
		}
		a.printf("  the widest differences, by the middle row:\n")
		for _, w := range f.Widest {
			half := "forward"
			if w.Backward {
				half = "backward"
			}
			a.printf("    %-8.2g (worst %.2g)  %s of layer %s, %s\n", float64(w.Middle), float64(w.Worst), w.Op, w.Layer, half)
		}
	}
}

// mostFindings limits the findings printed, because later ones are mostly consequences.
const mostFindings = 8
