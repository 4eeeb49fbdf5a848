// Nvrtc compiles the kernels of engine/cuda with NVIDIA's compiler, and runs conformance cases through the
// interpreter with what it makes of them: the sources then mean the same in NVIDIA's C++ as in clang's, and the
// interpreter understands PTX that clang did not write. No card is needed:
//
//	go run ./tools/nvrtc --nvrtc PATH,PATH     a few cases of each operation
//	go run ./tools/nvrtc --cases 0             all of them: hours
//
// Every result must be within the bounds of its case, the kernels of the exchange between cards must have the bits of
// the embedded ones, and every family of kernels must have run.
// docs/gpu.md says how to install NVRTC.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Nvrtc      []string `help:"Libraries (default: those in $$SNUG_NVRTC, a list like $$PATH)." placeholder:"PATH"`
	Cases      int      `help:"How many conformance cases of each operation; 0 for all." default:"4"`
	Operations []string `help:"Only the cases of these operations, without the exchange between cards; it then does not matter which kernels ran." placeholder:"NAME"`
	Kernels    string   `help:"Folder of the sources." default:"engine/cuda/kernels" type:"path"`
	Keep       string   `help:"Write the PTX to this folder." placeholder:"DIR" type:"path"`
}

func main() {
	var o options
	tool.Main(&o, "nvrtc", "Compiles the kernels with NVIDIA's compiler and interprets what it makes of them.", o.run)
}

func (o *options) run(ctx context.Context) error {
	paths := o.Nvrtc
	if len(paths) == 0 {
		paths = filepath.SplitList(os.Getenv("SNUG_NVRTC"))
	}
	if len(paths) == 0 {
		return errors.New("which libraries? Name them by --nvrtc or in SNUG_NVRTC")
	}
	for _, path := range paths {
		if err := o.try(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// try compares the kernels of one library with the embedded ones.
func (o *options) try(ctx context.Context, path string) (err error) {
	c, err := open(path)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.Keep, c.Version())
	if o.Keep == "" {
		temporary, err2 := os.MkdirTemp("", "nvrtc")
		if err2 != nil {
			return err2
		}
		defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
		dir = temporary
	}
	set, err := compileAll(c, o.Kernels, dir)
	if err != nil {
		return fmt.Errorf("NVRTC %s: %w", c.Version(), err)
	}
	fmt.Printf("NVRTC %s compiles every kernel, and the interpreter takes what it wrote\n", c.Version())
	cases := some(conformance.Cases(), o.Cases, o.Operations)
	for _, card := range []driver.Card{fakegpu.T4, fakegpu.A10} {
		of := cases
		if card.Capability() >= 80 {
			of = slices.Concat(cases, some(conformance.TF32Cases(), o.Cases, o.Operations))
		}
		found, ran, err := compare(ctx, card, set, of)
		if err != nil {
			return fmt.Errorf("NVRTC %s: %w", c.Version(), err)
		}
		if err := report(card, found); err != nil {
			return err
		}
		if len(o.Operations) > 0 {
			continue
		}
		more, err := compareExchange(card, set)
		if err != nil {
			return fmt.Errorf("NVRTC %s: %w", c.Version(), err)
		}
		fmt.Println("  the exchange between cards: the bits of clang's kernels")
		maps.Copy(ran, more)
		if err := o.missing(card, set, ran); err != nil {
			return err
		}
	}
	return nil
}

// report prints what a comparison found.
func report(card driver.Card, found map[string]*result) error {
	all := result{}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range found {
		all.cases += r.cases
		all.same += r.same
	}
	_, _ = fmt.Fprintf(w, "%s, PTX for sm_%d: %d cases, all within their bounds, %d with the bits of clang's kernels\n",
		card.Name, kernels.Target(card.Capability()), all.cases, all.same)
	if all.same < all.cases {
		_, _ = fmt.Fprintf(w, "  operation\tsame bits\tlargest difference by largest result\n")
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if r := found[name]; r.same < r.cases {
			_, _ = fmt.Fprintf(w, "  %s\t%d of %d\t%.1e\n", name, r.same, r.cases, r.off)
		}
	}
	return w.Flush()
}

// building is the family of which other kernels are put together: it has none.
const building = "steps"

// missing reports families of which no kernel ran.
func (o *options) missing(card driver.Card, set *kernels.Set, ran map[string]bool) error {
	list, err := filepath.Glob(filepath.Join(o.Kernels, "*.cu"))
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%s has no sources", o.Kernels)
	}
	var none []string
	for _, path := range list {
		family := strings.TrimSuffix(filepath.Base(path), ".cu")
		if family == building {
			continue
		}
		text, err := set.Family(kernels.Target(card.Capability()), family)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(ran)), func(kernel string) bool { return has(text, kernel) }) {
			none = append(none, family)
		}
	}
	if none != nil {
		return fmt.Errorf("no kernel of %s ran on %s", strings.Join(none, ", "), card.Name)
	}
	return nil
}

// has reports whether a family has the kernel, or the one that it was made of.
func has(text, kernel string) bool {
	base := kernel
	if at := strings.LastIndexByte(kernel, '_'); at >= 0 {
		base = kernel[:at]
	}
	return strings.Contains(text, ".entry "+kernel+"(") || strings.Contains(text, ".entry "+base+"(")
}
