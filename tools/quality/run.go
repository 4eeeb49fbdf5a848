package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/tools/bits"
	"github.com/snug-ml/snug/train"
)

// matters are the files that decide what a run computes.
var matters = []string{"--", ".", ":!*.md", ":!docs", ":!*_test.go", ":!*/testdata", ":!tools", ":!bench", ":!.ci"}

// sources names what snug would be built from: the last commit that changed something
// that matters, and a hash of what is not committed.
func sources(ctx context.Context) (string, error) {
	git := func(args ...string) ([]byte, error) {
		out, err := exec.CommandContext(ctx, "git", append(args, matters...)...).Output()
		if err != nil {
			return nil, fmt.Errorf("git %s: %w", args[0], err)
		}
		return out, nil
	}
	commit, err := git("log", "-1", "--format=%h")
	if err != nil {
		return "", err
	}
	diff, err := git("diff", "HEAD")
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(commit))
	if len(diff) > 0 {
		h := fnv.New32a()
		_, _ = h.Write(diff) // a hash never fails to write
		name += fmt.Sprintf("+%08x", h.Sum32())
	}
	return name, nil
}

func build(ctx context.Context, binary string) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, ".").CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// scheduler runs cells, several at a time.
type scheduler struct {
	*options
	results *results
	work    string
	binary  string

	mu    sync.Mutex
	todo  []cell
	total int
	done  int
	// prepared maps a folder of prepared data to whether it is complete (true) or
	// being filled by its first run (false): one run prepares, others read.
	prepared map[string]bool
}

// try trains every program for ten updates, unless these sources were tried.
func (s *scheduler) try(ctx context.Context) error {
	commit, err := sources(ctx)
	if err != nil {
		return err
	}
	for _, p := range s.programs() {
		if known := s.results.program(p); known != nil && known.Commit == commit {
			continue
		}
		sum, err := s.bits(ctx, p)
		if err != nil {
			return err
		}
		if err := s.results.tried(bitsOf{p, sum, commit}); err != nil {
			return err
		}
		fmt.Printf("%v: bits %s\n", p, sum)
	}
	return nil
}

// bits hashes what a short training of a program saves, and the figures it reports.
func (s *scheduler) bits(ctx context.Context, p program) (string, error) {
	r := bits.Run{
		Binary: s.binary, Preset: presetOf(p.System), Dir: filepath.Join(s.work, "bits", strings.ReplaceAll(p.String(), " ", "-")),
		Updates: 10, Threads: runtime.NumCPU(), Set: p.set(),
	}
	defer func() { _ = os.RemoveAll(filepath.Dir(r.Dir)) }() // the folder of all of them goes too
	if err := r.Train(ctx); err != nil {
		return "", err
	}
	saved, err := bits.Hashes(r.Dir)
	if err != nil {
		return "", err
	}
	x := result{cell: cell{program: p}, Failed: "cut short: it may lack figures"}
	if err := x.read(r.Dir); err != nil {
		return "", err
	}
	return bits.Sum(saved, fmt.Sprint(x.Figures)), nil // a map is printed in the order of its keys
}

func (s *scheduler) run(ctx context.Context) error {
	s.prepared = map[string]bool{}
	errs := make([]error, s.Parallel)
	var wg sync.WaitGroup
	for i := range s.Parallel {
		wg.Go(func() { errs[i] = s.work1(ctx) })
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// work1 takes one cell after the other.
func (s *scheduler) work1(ctx context.Context) error {
	for ctx.Err() == nil {
		c, more := s.next()
		if !more {
			return nil
		}
		if c == nil { // those left wait for data that another run prepares
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		x, err := s.measure(ctx, *c)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if err := s.results.add(*x); err != nil {
			return err
		}
		s.mu.Lock()
		s.prepared[s.data(*c)] = true
		s.done++
		fmt.Printf("[%d/%d] %v: %s\n", s.done, s.total, *c, x.line())
		s.mu.Unlock()
	}
	return nil
}

// next is a cell whose data nobody is preparing; nil: there is none just now.
func (s *scheduler) next() (c *cell, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.todo {
		dir := s.data(x)
		if ready, begun := s.prepared[dir]; begun && !ready {
			continue
		}
		if _, begun := s.prepared[dir]; !begun {
			s.prepared[dir] = false
		}
		s.todo = append(s.todo[:i:i], s.todo[i+1:]...)
		return &x, true
	}
	return nil, len(s.todo) > 0
}

// data is the folder of the prepared data of a cell: a seed has a split of its own.
func (s *scheduler) data(c cell) string {
	return filepath.Join(s.work, fmt.Sprintf("data-%s-%d", c.System, c.Seed))
}

// measure trains a cell as a user would and reads its run directory.
func (s *scheduler) measure(ctx context.Context, c cell) (*result, error) {
	dir := filepath.Join(s.work, c.folder())
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if !s.Keep {
		defer func() { _ = os.RemoveAll(dir) }() // the folder of all of them goes too
	}
	limited, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	set := c.set()
	set["training.seed"], set["hardware.threads"] = strconv.FormatUint(c.Seed, 10), strconv.Itoa(s.Threads)
	set["data.cache_dir"] = s.data(c)
	cmd := exec.CommandContext(limited, s.binary, append([]string{"train", presetOf(c.System), "--out", dir}, bits.Flags(set)...)...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	err := cmd.Run()
	x := &result{cell: c, Date: began.UTC().Format(time.DateOnly), Threads: s.Threads, Seconds: time.Since(began).Round(time.Second / 10).Seconds()}
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("not done after %v", s.Limit)
		}
		x.Failed = fmt.Sprintf("%v: %s", err, tail(said.String()))
	}
	return x, x.read(dir)
}

// tail is the end of a run's output.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

// read takes the figures from a run directory; a run that failed may have some.
func (x *result) read(dir string) error {
	x.Figures, x.Baselines = map[string]float64{}, map[string]float64{}
	for _, p := range promises {
		if p.system != x.System {
			continue
		}
		raw, err := regular.Read(filepath.Join(dir, p.file), 64<<20)
		if errors.Is(err, fs.ErrNotExist) && x.Failed != "" {
			continue
		}
		if err != nil {
			return err
		}
		if x.Device == "" {
			x.Device = deviceOf(filepath.Join(dir, filepath.Dir(p.file)))
		}
		v, err := figure(raw, p.path)
		if err != nil {
			return fmt.Errorf("%s of %v: %w", p.file, x.cell, err)
		}
		x.Figures[p.name] = v
		if p.baseline == "" {
			continue
		}
		if v, err = figure(raw, p.baseline); err != nil {
			return fmt.Errorf("%s of %v: %w", p.file, x.cell, err)
		}
		x.Baselines[p.name] = v
	}
	h, err := train.ReadHistory(dir, heldOut)
	if err != nil {
		return err
	}
	x.Curve = nil
	for i, loss := range h.Metrics[heldOut] {
		if !math.IsNaN(loss) && !math.IsInf(loss, 0) {
			x.Curve = append(x.Curve, point{h.Evals[i], loss})
		}
	}
	return nil
}

// heldOut is the metric of a curve.
const heldOut = "eval_loss"

// deviceOf is the machine that a run's summary names.
func deviceOf(dir string) string {
	var s struct{ Device string }
	if raw, err := regular.Read(filepath.Join(dir, "summary.json"), 64<<20); err == nil {
		_ = json.Unmarshal(raw, &s) // a name for people; without it there is none
	}
	return s.Device
}

// misses are the promises that a result does not keep, each with its figure.
func (x *result) misses() (out []string) {
	if x.Format != "" {
		return nil // quickstarts promise what they are shipped with
	}
	for _, p := range promises {
		if p.system != x.System {
			continue
		}
		v, ok := x.Figures[p.name]
		if !ok {
			continue // the run failed, which is reported
		}
		if !p.better(v, p.bound) && v != p.bound {
			out = append(out, fmt.Sprintf("%s is %.4g, promised is %.4g", p.name, v, p.bound))
		}
		base, ok := x.Baselines[p.name]
		want := base + p.margin
		if p.lower {
			want = base - p.margin
		}
		if ok && !p.better(v, want) {
			miss := fmt.Sprintf("%s is %.4g, its baseline %.4g", p.name, v, base)
			if p.margin > 0 {
				miss += fmt.Sprintf(", promised is %.4g better", p.margin)
			}
			out = append(out, miss)
		}
	}
	return out
}

func (p *promise) better(a, b float64) bool {
	if p.lower {
		return a < b
	}
	return a > b
}

// line is a result in a line.
func (x *result) line() string {
	s := fmt.Sprintf("%.0f s", x.Seconds)
	for _, p := range promises {
		if v, ok := x.Figures[p.name]; ok && p.system == x.System {
			s += fmt.Sprintf(", %s %.4g", p.name, v)
		}
	}
	if x.Failed != "" {
		s += "; FAILED: " + x.Failed
	}
	for _, m := range x.misses() {
		s += "; MISSED: " + m
	}
	return s
}
