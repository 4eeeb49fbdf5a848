// Command snug trains neural networks fast on the hardware at hand, and knows
// the memory of a run before its first step.
package main

import (
	"os"

	"github.com/snug-ml/snug/cli"
	"github.com/snug-ml/snug/dist/mpi"
)

func main() { mpi.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
