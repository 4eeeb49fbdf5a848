// Package tool is what the programs below tools have in common.
package tool

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Main fills in options from the command line, as kong reads their tags, and calls run, whose context ends with SIGINT
// or SIGTERM; a second one ends the process. If run fails, Main prints why after the tool's name, and exits with 1.
func Main(options any, name, description string, run func(context.Context) error) {
	kong.Parse(options, kong.Name(name), kong.Description(description))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
