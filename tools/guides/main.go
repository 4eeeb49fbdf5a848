// Command guides runs every command of the tables in docs/guides.md on small data.
//
//	go run ./tools/guides            all of them, in a new folder
//	go run ./tools/guides --list     print them, as they are run
//	go run ./tools/guides --only 003 those of one guide, or of one point
//
// It wants to be started in the repository's root. Trainings take three updates. Points that are in work are left out.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// page has the commands.
const page = "docs/guides.md"

// small makes a training short; tasks are those of dynamo.
var small = []string{
	"--training.max_steps", "3", "--training.warmup_steps", "0", "--training.eval_batches", "1", "--training.sample.tokens", "8",
}

var tasks = []string{"sentiment", "qa", "summarization", "code_generation", "translation"}

// point is a command and the first number of the page that names it.
type point struct {
	number string
	args   []string
}

func main() {
	list := flag.Bool("list", false, "print the commands and run none")
	only := flag.String("only", "", "run the points whose number begins like this")
	limit := flag.Duration("limit", 10*time.Minute, "the most that one command may take")
	flag.Parse()
	if err := run(*list, *only, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "guides:", err)
		os.Exit(1)
	}
}

func run(list bool, only string, limit time.Duration) error {
	text, err := regular.Read(page, 1<<20)
	if err != nil {
		return fmt.Errorf("%w: start it in the repository's root", err)
	}
	points := commands(string(text), only)
	if len(points) == 0 {
		return fmt.Errorf("%s has no command of a point %q", page, only)
	}
	if list {
		for _, p := range points {
			fmt.Printf("%s  snug %s\n", p.number, strings.Join(p.args, " "))
		}
		return nil
	}
	dir, err := durable.Scratch("guides")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "snug")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	failed := 0
	for _, p := range points {
		if !p.run(binary, dir, limit) {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d commands failed", failed, len(points))
	}
	fmt.Printf("%d commands, all as the page says\n", len(points))
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

// shortened are the arguments with what makes a training small and lets it take the place of one before.
func shortened(args []string) []string {
	if args[0] != "train" {
		return args
	}
	args = append(args, "--fresh")
	settings := small
	if args[1] == "dynamo-quickstart" { // each of its phases counts updates of its own
		settings = []string{"--training.warmup_steps", "0", "--training.eval_batches", "1", "--phases.encoder_steps", "3"}
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

// run runs a command; a refusal of a plan by memory is an answer.
func (p point) run(binary, dir string, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, p.args...)
	cmd.Dir = dir
	began := time.Now()
	out, err := cmd.CombinedOutput()
	const refused = 3
	ok := err == nil || p.args[0] == "plan" && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == refused
	verdict := "ok"
	if !ok {
		verdict = fmt.Sprintf("FAILED: %v", err)
	}
	fmt.Printf("%s  %6.1f s  %s  snug %s\n", p.number, time.Since(began).Seconds(), verdict, strings.Join(p.args, " "))
	if !ok {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		fmt.Printf("    %s\n", strings.Join(lines[max(0, len(lines)-6):], "\n    "))
	}
	return ok
}
