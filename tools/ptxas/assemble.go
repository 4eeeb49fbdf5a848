package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// assembler is a ptxas.
type assembler struct{ path, version string }

var release = regexp.MustCompile(`, V([0-9.]+)`)

// find are the assemblers at the paths; where there are none, those that SNUG_PTXAS
// lists, and the one in PATH.
func find(ctx context.Context, paths []string) ([]assembler, error) {
	if len(paths) == 0 {
		paths = filepath.SplitList(os.Getenv("SNUG_PTXAS"))
	}
	if len(paths) == 0 {
		path, err := exec.LookPath("ptxas")
		if err != nil {
			return nil, fmt.Errorf("%w: name one by --ptxas", err)
		}
		paths = []string{path}
	}
	var found []assembler
	for _, path := range paths {
		out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", path, err, out)
		}
		m := release.FindSubmatch(out)
		if m == nil {
			return nil, fmt.Errorf("%s is not ptxas: its --version says %q", path, out)
		}
		found = append(found, assembler{path, string(m[1])})
	}
	return found, nil
}

// figures are what ptxas reports about a kernel.
type figures struct{ registers, shared, stack, stores, loads int }

func (f figures) spills() bool { return f.stack+f.stores+f.loads > 0 }

// job is a module of kernels to be assembled for an architecture.
type job struct {
	by    assembler
	sm    int // of the PTX
	arch  string
	file  string
	names []string
}

func (j job) String() string { return fmt.Sprintf("ptxas %s -arch=%s", j.by.version, j.arch) }

var (
	function  = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	stack     = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	registers = regexp.MustCompile(`Used (\d+) registers`)
	shared    = regexp.MustCompile(`(\d+) bytes smem`)
)

// run gives the figures of each kernel. Not -Werror, under which ptxas ends with the
// first kernel that spills: all are to be reported.
func (j job) run(ctx context.Context) (map[string]figures, error) {
	out, err := exec.CommandContext(ctx, j.by.path, "-arch="+j.arch, "-v", "-warn-spills", "-warn-lmem-usage", j.file, "-o", os.DevNull).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%v refuses %s: %w\n%s", j, strings.Join(j.names, ", "), err, complaints(out))
	}
	found := map[string]figures{}
	name := ""
	for line := range strings.Lines(string(out)) {
		if m := function.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		f := found[name]
		if m := stack.FindStringSubmatch(line); m != nil {
			f.stack, f.stores, f.loads = number(m[1]), number(m[2]), number(m[3])
		}
		if m := registers.FindStringSubmatch(line); m != nil {
			f.registers = number(m[1])
			if m := shared.FindStringSubmatch(line); m != nil {
				f.shared = number(m[1])
			}
		}
		if name != "" {
			found[name] = f
		}
	}
	for _, n := range j.names {
		if found[n].registers == 0 {
			return nil, fmt.Errorf("%v says nothing about %s", j, n)
		}
	}
	return found, nil
}

// complaints are the lines of ptxas's output that are not figures.
func complaints(out []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "ptxas info") && !stack.MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func number(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err) // the expressions let only digits through
	}
	return n
}

// pack writes the kernels of a target into modules of about equal length.
func pack(dir string, sm int, texts map[string]string) (jobs []job, err error) {
	const length = 256 << 10
	var names []string
	var text strings.Builder
	flush := func() error {
		if len(names) == 0 {
			return nil
		}
		file := filepath.Join(dir, fmt.Sprintf("sm_%d_%d.ptx", sm, len(jobs)))
		jobs = append(jobs, job{file: file, names: slices.Clone(names)})
		module := fmt.Sprintf(".version 7.0\n.target sm_%d\n.address_size 64\n\n", sm) + text.String()
		names = names[:0]
		text.Reset()
		return os.WriteFile(file, []byte(module), 0o600)
	}
	for _, n := range slices.Sorted(maps.Keys(texts)) {
		names = append(names, n)
		text.WriteString(texts[n])
		if text.Len() >= length {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return jobs, flush()
}

// build is an architecture and the kind of PTX that is assembled for it.
type build struct {
	arch string
	sm   int
}

func (b build) capability() int { return number(strings.TrimPrefix(b.arch, "sm_")) }

func (b build) String() string { return fmt.Sprintf("%s from PTX for sm_%d", b.arch, b.sm) }

// assembled are the figures of kernels by name.
type assembled map[build]map[string]figures

// assembleAll runs the jobs, some at a time, and gives the figures by version of the
// assembler, and what was refused.
func assembleAll(ctx context.Context, jobs []job, parallel int) (map[string]assembled, []error, error) {
	results := make([]map[string]figures, len(jobs))
	refusals := make([]error, len(jobs))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, j := range jobs {
		g.Go(func() error {
			if ctx.Err() == nil {
				results[i], refusals[i] = j.run(ctx)
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	all := map[string]assembled{}
	for i, j := range jobs {
		if all[j.by.version] == nil {
			all[j.by.version] = assembled{}
		}
		b := build{j.arch, j.sm}
		if all[j.by.version][b] == nil {
			all[j.by.version][b] = map[string]figures{}
		}
		maps.Copy(all[j.by.version][b], results[i])
	}
	return all, slices.DeleteFunc(refusals, func(err error) bool { return err == nil }), nil
}
