// Command guides runs every command of the tables in docs/guides.md on small data.
//
//	go run ./tools/guides                     all of them, in a new folder
//	go run ./tools/guides --list              print them, as they are run
//	go run ./tools/guides --only 003          those of one guide, or of one point
//	go run ./tools/guides --in DIR --from 003-7   continue in the folder of an earlier run
//
// Start it in the repository's root. Trainings take three updates, and a benchmark plans what would take longer
// than a minute. That the commands fit the grammar, with presets and settings that exist, is tested
// in package cli, in seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/tool"
)

// page has the commands.
const page = "docs/guides.md"

// small makes a training short; tasks are those of dynamo. quick makes a benchmark short.
var small = []string{
	"--training.max_steps", "3", "--training.warmup_steps", "0", "--training.eval_batches", "1", "--training.sample.tokens", "8",
}

// phases do the same where each phase counts updates of its own; what so little training gives is ready for the next.
var phases = []string{
	"--training.warmup_steps", "0", "--training.eval_batches", "1", "--phases.encoder_steps", "3", "--phases.router_steps", "3",
	"--phases.joint_steps", "3", "--phases.min_encoder_gain", "-100", "--phases.min_gain", "-100", "--phases.min_routing", "0",
}

var tasks = []string{"sentiment", "qa", "summarization", "code_generation", "translation"}

var quick = []string{"--updates", "5", "--limit", "1m"}

// point is a command and the first number of the page that names it.
type point struct {
	number string
	args   []string
}

// options say which commands are run, and where.
type options struct {
	List  bool          `help:"Print the commands and run none."`
	Only  string        `help:"Run the points whose number begins like this." placeholder:"NUMBER"`
	From  string        `help:"Run this point and those after it." placeholder:"NUMBER"`
	In    string        `help:"Run in this folder, which stays (default: a temporary one)." placeholder:"DIR"`
	Limit time.Duration `help:"The most that one command may take." default:"10m"`
}

func main() {
	var o options
	tool.Main(&o, "guides", "Runs the commands of docs/guides.md.", o.run)
}

func (o *options) run(ctx context.Context) (err error) {
	text, err := regular.Read(page, 1<<20)
	if err != nil {
		return fmt.Errorf("%w: start it in the repository's root", err)
	}
	points := commands(string(text), o.Only)
	if o.From != "" {
		i := slices.IndexFunc(points, func(p point) bool { return p.number == o.From })
		points = points[max(0, i):]
		if i < 0 {
			points = nil
		}
	}
	if len(points) == 0 {
		return fmt.Errorf("%s has no such command", page)
	}
	if o.List {
		for _, p := range points {
			fmt.Printf("%s  snug %s\n", p.number, strings.Join(p.args, " "))
		}
		return nil
	}
	dir := o.In
	if dir == "" {
		if dir, err = durable.Scratch("guides"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	binary := filepath.Join(dir, "snug")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return o.all(ctx, points, binary, dir)
}

// all runs the commands and says what came of them.
func (o *options) all(ctx context.Context, points []point, binary, dir string) error {
	began := time.Now()
	var failed []string
	for _, p := range points {
		if !p.run(ctx, binary, dir, o.Limit) {
			failed = append(failed, p.number)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; go on with --in DIR --from %s", p.number)
		}
	}
	version, err := exec.CommandContext(ctx, binary, "--version").Output()
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(version), "\n")
	host := device.DetectHost()
	fmt.Printf("%s, %s\n%s, %d threads\n%d commands, %d failed, %s\n", time.Now().UTC().Format(time.DateOnly), line,
		host.CPU.String(), host.CPU.Threads, len(points), len(failed), time.Since(began).Round(time.Second))
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// commands are those of the page, each once, with what makes them small.
func commands(text, only string) (out []point) {
	quoted := regexp.MustCompile("`snug ([^`]+)`")
	words := regexp.MustCompile(`"[^"]*"|\S+`)
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " 00") || strings.Contains(line, "in work") {
			continue
		}
		number := strings.TrimSpace(cells[1])
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			if seen[m[1]] || !strings.HasPrefix(number, only) {
				continue
			}
			seen[m[1]] = true
			args := words.FindAllString(m[1], -1)
			for i := range args {
				args[i] = strings.Trim(args[i], `"`)
			}
			out = append(out, point{number, shortened(args)})
		}
	}
	return out
}

// shortened are the arguments with what makes a training or a benchmark small and lets a run replace an earlier one.
func shortened(args []string) []string {
	var settings []string
	switch args[0] {
	case "bench":
		settings = quick
	case "train":
		args, settings = append(args, "--fresh"), small
	default:
		return args
	}
	if args[0] == "train" && args[1] == "dynamo-quickstart" {
		settings = slices.Clone(phases)
		for _, t := range tasks {
			settings = append(settings, "--tasks."+t+".steps", "3")
		}
	}
	for i := 0; i < len(settings); i += 2 {
		if !slices.Contains(args, settings[i]) {
			args = append(args, settings[i], settings[i+1])
		}
	}
	return args
}

// run runs a command. A plan that is refused by memory is an answer, and so is a benchmark that says how long it would take.
func (p point) run(ctx context.Context, binary, dir string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := slices.Clone(p.args)
	for i := range args { // a folder of the page is one of the new folder
		args[i] = strings.Replace(args[i], "file:///", "file://"+filepath.ToSlash(dir)+"/", 1)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = dir
	began := time.Now()
	out, err := cmd.CombinedOutput()
	verdict, ok := p.verdict(err, string(out))
	fmt.Printf("%s  %6.1f s  %s  snug %s\n", p.number, time.Since(began).Seconds(), verdict, strings.Join(p.args, " "))
	if !ok {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fmt.Printf("    %s\n", strings.Join(lines[max(0, len(lines)-6):], "\n    "))
	}
	return ok
}

// verdict is what came of a command that ended with err and printed out.
func (p point) verdict(err error, out string) (text string, ok bool) {
	const refused = 3
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "ok", true
	case p.args[0] == "plan" && errors.As(err, &exit) && exit.ExitCode() == refused:
		return "ok, refused by memory", true
	case p.args[0] == "bench" && strings.Contains(out, "over --limit"):
		return "ok, planned", true
	}
	return fmt.Sprintf("FAILED: %v", err), false
}
