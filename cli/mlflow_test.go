package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/snug-ml/snug/train/mlflow/mlflowtest"
)

// trackers maps URLs to the servers of serve-mlflow; scripts run concurrently.
var trackers sync.Map

// serveMLflow is a command for scripts. It starts a tracking server and sets MLFLOW_URL to its URL.
func serveMLflow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: serve-mlflow")
	}
	s := mlflowtest.New()
	ts.Defer(s.Close)
	trackers.Store(s.URL, s)
	ts.Setenv("MLFLOW_URL", s.URL)
}

// showMLflow is a command for scripts, "show-mlflow FILE". It writes what the server has received to a file,
// and fails if the server rejected anything.
func showMLflow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: show-mlflow FILE")
	}
	found, _ := trackers.Load(ts.Getenv("MLFLOW_URL"))
	s, ok := found.(*mlflowtest.Server)
	if !ok {
		ts.Fatalf("serve-mlflow comes first")
	}
	if list := s.Errors(); len(list) > 0 {
		ts.Fatalf("refused: %q", list)
	}
	var b strings.Builder
	for _, r := range s.Runs() {
		fmt.Fprintf(&b, "run %s %s experiment %s\n", r.Name, r.Status, r.Experiment)
		for _, k := range slices.Sorted(maps.Keys(r.Params)) {
			fmt.Fprintf(&b, "param %s %s\n", k, r.Params[k])
		}
		for _, k := range slices.Sorted(maps.Keys(r.Tags)) {
			fmt.Fprintf(&b, "tag %s %s\n", k, r.Tags[k])
		}
		for _, k := range slices.Sorted(maps.Keys(r.Metrics)) {
			fmt.Fprintf(&b, "metric %s", k)
			for _, p := range r.Metrics[k] {
				fmt.Fprintf(&b, " %d", p.Step)
			}
			b.WriteByte('\n')
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o666))
}
