// Terminalsvg draws what snug monitor --once shows of runs as a picture, in the colors
// of a dark terminal. Of a finished run it gives the same bytes each time.
//
//	go run ./tools/terminalsvg --out docs/monitor.svg runs/quickstart
package main

import (
	"context"
	"fmt"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/tool"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/monitor/terminal"
)

type options struct {
	Runs   []string `arg:"" help:"Run directories."`
	Out    string   `help:"File to write." required:"" type:"path"`
	Width  int      `help:"Columns of the screen." default:"100"`
	Height int      `help:"Rows of the screen." default:"34"`
}

func main() {
	var o options
	tool.Main(&o, "terminalsvg", "Draws what snug monitor --once shows of runs.", o.run)
}

func (o *options) run(context.Context) error {
	var f terminal.Frame
	for _, dir := range o.Runs {
		r, err := monitor.Open(dir)
		if err != nil {
			return err
		}
		if f.Now = r.LastSeen(); f.Now.IsZero() {
			return fmt.Errorf("%s: nothing was written yet", dir)
		}
		f.Runs = append(f.Runs, r.Snapshot(f.Now, monitor.View{Width: o.Width, Lines: o.Height}))
	}
	text := terminal.Once(terminal.Options{Looks: terminal.Looks{Color: true}}, o.Width, o.Height, f)
	return durable.Replace(o.Out, draw(text, o.Width))
}
