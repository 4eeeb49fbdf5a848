// Ptxas assembles the kernels of engine/cuda for every architecture, without a card:
// those that are made beforehand and, of those generated for real programs, the
// longest of each kind. A kernel that an assembler refuses, that spills registers or
// uses local memory is an error:
//
//	go run ./tools/ptxas --ptxas PATH,PATH          all of them
//	go run ./tools/ptxas --ptxas PATH,PATH --write  and write the tables
//	go run ./tools/ptxas --longest 0                every generated kernel: an hour
//
// Two versions are worth having, one of CUDA 12 and one of CUDA 13, whose drivers
// contain the same assemblers: they disagree about some PTX. docs/kernels.md says
// how to install them.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Ptxas    []string `help:"Assemblers (default: those in $$SNUG_PTXAS, a list like $$PATH, or the one in $$PATH)." placeholder:"PATH"`
	Longest  int      `help:"How many generated kernels of each kind: those with the longest texts; 0 for all." default:"3"`
	Archs    []string `help:"Architectures (default: all)." placeholder:"SM"`
	Parallel int      `help:"Assemblers at a time (default: one a processor)."`
	Write    bool     `help:"Write the tables." xor:"tables"`
	Check    bool     `help:"Compare the tables with what would be written; they must be of the same assemblers." xor:"tables"`
	// What people read, and what plans are made with.
	Doc       string `help:"Table of kernels in Markdown." default:"docs/kernels.md" type:"path"`
	Resources string `help:"Table of what kernels take of a card of capability 7.5." default:"internal/counts/resources_sm_75.tsv" type:"path"`
}

func main() {
	var o options
	tool.Main(&o, "ptxas", "Assembles the kernels of NVIDIA cards and reports what they take.", o.run)
}

func (o *options) run(ctx context.Context) (err error) {
	by, err := find(ctx, o.Ptxas)
	if err != nil {
		return err
	}
	if o.Parallel < 1 {
		o.Parallel = runtime.NumCPU()
	}
	dir, err := os.MkdirTemp("", "ptxas")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	jobs, texts, err := o.jobs(ctx, dir, by)
	if err != nil {
		return err
	}
	all, refusals, err := assembleAll(ctx, jobs, o.Parallel)
	if err != nil {
		return err
	}
	if bad := errors.Join(append(refusals, spills(by, all)...)...); bad != nil {
		return bad
	}
	fmt.Println(summary(by, all))
	if !o.Write && !o.Check {
		return nil
	}
	last := all[by[len(by)-1].version]
	takes, err := resources(by, last, texts[0])
	if err != nil {
		return err
	}
	r, err := rows(last, texts)
	if err != nil {
		return err
	}
	does, err := longest(ctx)
	if err != nil {
		return err
	}
	for _, f := range []struct{ path, text string }{{o.Resources, takes}, {o.Doc, markdown(by, r) + doing(does)}} {
		if o.Write {
			err = errors.Join(err, durable.Replace(f.path, []byte(f.text)))
		} else {
			err = errors.Join(err, compare(f.path, f.text))
		}
	}
	return err
}

// jobs are the kernels of all targets, packed, for all architectures and assemblers.
func (o *options) jobs(ctx context.Context, dir string, by []assembler) (jobs []job, texts []map[string]string, err error) {
	for i := range targets {
		t := &targets[i]
		of, err := t.kernelsOf(ctx, o.Longest)
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, of)
		modules, err := pack(dir, t.sm, of)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range by {
			for _, arch := range t.archs {
				if len(o.Archs) > 0 && !slices.Contains(o.Archs, arch) {
					continue
				}
				for _, j := range modules {
					j.by, j.arch, j.sm = a, arch, t.sm
					jobs = append(jobs, j)
				}
			}
		}
	}
	return jobs, texts, nil
}

// spills is an error for each kernel that spills or uses local memory where a card
// runs it: a card gets the highest PTX that it takes, whatever else it would take.
func spills(by []assembler, all map[string]assembled) (errs []error) {
	for _, a := range by {
		of := all[a.version]
		for _, b := range slices.SortedFunc(maps.Keys(of), func(x, y build) int { return strings.Compare(x.String(), y.String()) }) {
			if kernels.Target(b.capability()) != b.sm {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(of[b])) {
				if f := of[b][name]; f.spills() {
					errs = append(errs, fmt.Errorf("%s, %v by ptxas %s: %d registers, %d bytes of stack, spills of %d bytes stored and %d loaded", name, b, a.version, f.registers, f.stack, f.stores, f.loads))
				}
			}
		}
	}
	return errs
}

// summary says how many kernels were assembled.
func summary(by []assembler, all map[string]assembled) string {
	lines := make([]string, len(by))
	for i, a := range by {
		n := 0
		for _, of := range all[a.version] {
			n += len(of)
		}
		lines[i] = fmt.Sprintf("ptxas %s: %d kernels in %d builds, no spills", a.version, n, len(all[a.version]))
	}
	return strings.Join(lines, "\n")
}

// compare compares a table with the committed file.
func compare(path, want string) error {
	have, err := regular.Read(path, regular.Text)
	if err != nil {
		return err
	}
	assembledBy := func(text string) string {
		for line := range strings.Lines(text) {
			if at := strings.Index(line, "ssembled by "); at >= 0 && at < 4 {
				return strings.TrimSpace(line)
			}
		}
		return ""
	}
	switch {
	case string(have) == want:
	case assembledBy(string(have)) != assembledBy(want):
		fmt.Printf("%s was not compared, it says: %s\n", path, assembledBy(string(have)))
	default:
		return fmt.Errorf("%s is out of date: write it by --write", path)
	}
	return nil
}
