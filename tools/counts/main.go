// Counts runs the kernels of engine/cuda in the interpreter of PTX at small shapes and
// writes what they do for a unit of their work: internal/counts/sm_75.tsv, from
// which `snug plan --card t4 --ops` prices a program. No card is needed.
//
//	go run ./tools/counts                 after a change of kernels
//	go run ./tools/counts --only gemm     print what it would write for some kernels
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/internal/counts"
	"github.com/snug-ml/snug/internal/durable"
)

type options struct {
	Only string `help:"Print units whose names begin so, and write nothing." placeholder:"PREFIX"`
	To   string `help:"Table to write." default:"internal/counts/sm_75.tsv" type:"path"`
}

const header = `# What kernels of engine/cuda for sm_75 do for a unit of their work, in warp instructions, wavefronts of shared
# memory and sectors of global memory, as the interpreter of their PTX counts. Written by tools/counts.
`

func main() {
	var o options
	kong.Parse(&o, kong.Name("counts"), kong.Description("Counts what kernels do for a unit of their work."))
	if err := o.run(); err != nil {
		fmt.Fprintf(os.Stderr, "counts: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) run() error {
	table, err := measure(o.Only)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(header + "# unit\t" + strings.Join(counts.Columns, "\t") + "\n")
	var names []string
	for name := range table {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		b.WriteString(name)
		for _, v := range table[name].Values() {
			fmt.Fprintf(&b, "\t%.5g", v)
		}
		b.WriteByte('\n')
	}
	if o.Only != "" {
		fmt.Print(b.String())
		return nil
	}
	return durable.Replace(o.To, []byte(b.String()))
}
