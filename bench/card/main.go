// Command card is what bench/gpu.sh needs besides snug itself on a machine without Go: it
// times kernels, holds the losses of two runs against each other, and writes the summary.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"
)

type commands struct {
	Kernels kernelsCmd `cmd:"" help:"Time kernels by shape, one JSON object each."`
	Losses  lossesCmd  `cmd:"" help:"Hold the losses of a run against those of another."`
	Line    lineCmd    `cmd:"" help:"Make what a part printed, on standard input, a line of results.jsonl."`
	Report  reportCmd  `cmd:"" help:"Write results as Markdown."`
}

func main() {
	var c commands
	k := kong.Parse(&c, kong.Name("card"), kong.Description("What bench/gpu.sh needs besides snug."))
	if err := k.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "card:", err)
		os.Exit(1)
	}
}
