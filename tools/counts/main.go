// Counts runs the kernels of engine/cuda in the interpreter of PTX at small shapes and
// writes what they do for a unit of their work: internal/counts/sm_75.tsv, from
// which plans for a card of capability 7.5 are priced. No card is needed.
//
//	go run ./tools/counts                 after a change of kernels
//	go run ./tools/counts --only gemm     after one of those whose names begin so: the others stay as they are
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/snug-ml/snug/internal/counts"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/tool"
)

type options struct {
	Only string `help:"Count kernels whose names begin so, and take the others from the table." placeholder:"PREFIX"`
	To   string `help:"Table to write." default:"internal/counts/sm_75.tsv" type:"path"`
}

const header = `# What kernels of engine/cuda for sm_75 do for a unit of their work, in warp instructions, wavefronts of shared
# memory, sectors of global memory, and clocks of a block alone, as the interpreter of their PTX counts. Written by
# tools/counts.
`

func main() {
	var o options
	tool.Main(&o, "counts", "Counts what kernels do for a unit of their work.", o.run)
}

func (o *options) run(ctx context.Context) error {
	table := map[string]counts.Work{}
	if o.Only != "" {
		maps.Copy(table, counts.Table())
		maps.DeleteFunc(table, func(unit string, _ counts.Work) bool { return strings.HasPrefix(unit, o.Only) })
	}
	for _, list := range groups() {
		seen, err := observeAll(ctx, list, o.Only)
		if err != nil {
			return err
		}
		found, err := solve(seen, table)
		if err != nil {
			return err
		}
		maps.Copy(table, found)
		for _, o := range seen {
			for what, off := range deviations(o, table) {
				if off.by() > tolerated {
					fmt.Fprintf(os.Stderr, "%s of %s: %.0f %s counted, the units say %.0f\n", o.kernel, o.sample, off.done, what, off.said)
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString(header + "# unit\t" + strings.Join(counts.Columns, "\t") + "\n")
	for _, name := range slices.Sorted(maps.Keys(table)) {
		b.WriteString(name)
		for _, v := range table[name].Values() {
			b.WriteString("\t" + written(v))
		}
		b.WriteByte('\n')
	}
	return durable.Replace(o.To, []byte(b.String()))
}

// written formats a number with four digits. It rounds to nine digits first: the last digit of a number halfway
// between two would otherwise depend on rounding errors, and so on what else was solved for.
func written(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 9, 64), 64)
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// tolerated is how far off the units may be from what was counted of a sample, without a word.
const tolerated = .1

const alone = "clocks alone"

// deviation is what units say and what a kernel did.
type deviation struct{ said, done float64 }

// by is how far one is from the other.
func (d deviation) by() float64 {
	if d.done < 100 {
		return 0
	}
	return max(d.said/d.done, d.done/max(d.said, 1e-9)) - 1
}

// deviations are those of all instructions, of tensor cores, of shared memory, of sectors and of
// the time alone.
func deviations(o observation, table map[string]counts.Work) map[string]deviation {
	w := table[o.blocks.Of]
	w = w.Plus(o.blocks.N-1, w)
	for _, u := range o.units {
		w = w.Plus(u.N, of(u.Of, table))
	}
	all := map[string]deviation{
		"instructions": {w.Issued(), o.did.Issued()}, "tensor instructions": {w.Tensor, o.did.Tensor}, "wavefronts": {w.Shared, o.did.Shared},
		"sectors": {w.Sectors, o.did.Sectors}, "bytes": {w.Bytes, o.did.Bytes}, alone: {w.Alone, o.did.Alone},
	}
	if o.declared {
		delete(all, "bytes")
	}
	return all
}

// memory is what samples may take that run at the same time, in bytes: their inputs come and go, and the
// collector would let garbage grow to as much again.
const memory = 2500 << 20

// observeAll runs samples that launch a kernel whose name begins with only.
func observeAll(ctx context.Context, list []sample, only string) ([]observation, error) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memory))
	found := make([][]observation, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.NumCPU())
	for i, s := range list {
		g.Go(func() (err error) {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if found[i], err = observe(s, only); err != nil {
				return fmt.Errorf("%s: %w", s.F.Name, err)
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.Concat(found...), err
}
