package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/session"
)

// TestEveryEdgeIsPlannedOrRefused plans every number of every system at the limits of what its key accepts.
// The command ends with a plan, or with a refusal of the setting or its memory, but never with a failure.
// Plans that take too long are interrupted, and must stop.
func TestEveryEdgeIsPlannedOrRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("plans a thousand models")
	}
	t.Parallel()
	every, ended := everySystem(t), map[int]int{}
	for _, s := range session.Systems {
		run := every[s.Config.Name]
		raw, err := config.JSONSchema(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		var root keySchema
		if err := json.Unmarshal(raw, &root); err != nil {
			t.Fatal(err)
		}
		numbers := root.numbers("")
		var keys []string
		for key := range numbers {
			if !strings.HasPrefix(key, "tasks.") || strings.HasPrefix(key, "tasks.translation.") {
				keys = append(keys, key)
			}
		}
		sort.Strings(keys)
		for _, key := range keys {
			values := []string{"0", "1"}
			if m := numbers[key].Maximum; m != nil {
				values = append(values, strconv.FormatFloat(*m, 'f', -1, 64))
			}
			for _, v := range values {
				code, said := planWithin(t, 5*time.Second, run.config, "--"+key+"="+v)
				ended[code]++
				if code == exitLate {
					t.Logf("%s: %s %s: still planning after a while", s.Config.Name, key, v)
					continue
				}
				if code != exitDone && code != exitUsage && code != exitNoFit {
					t.Errorf("%s: %s %s: code %d, %s", s.Config.Name, key, v, code, said)
				}
			}
		}
	}
	if ended[exitDone]+ended[exitLate] < 200 || // a slow machine interrupts many
		ended[exitUsage] < 100 || ended[exitNoFit] == 0 {
		t.Errorf("plans ended with %v: too few of a kind", ended)
	}
	t.Logf("exit codes: %v", ended)
}

// exitLate marks a plan that was interrupted.
const exitLate = -1

// planWithin plans a configuration for a card and returns the exit code and the output.
func planWithin(t *testing.T, limit time.Duration, path string, settings ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	overrides, rest := config.SplitFlags(settings)
	if len(rest) > 0 {
		t.Fatalf("no settings: %q", rest)
	}
	var stderr bytes.Buffer
	a := &app{ctx: ctx, out: newStream(io.Discard, false), err: newStream(&stderr, false), overrides: overrides}
	defer func() {
		if r := recover(); r != nil {
			code, said = exitFailed, fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	code = a.fail(func() error {
		s, err := a.load(choice{Config: path}, nil, false)
		if err != nil {
			return err
		}
		targets, err := s.Targets([]string{"t4"})
		if err != nil {
			return err
		}
		_, no, err := s.Plan(targets[0])
		if no != nil {
			err = no
		}
		return err
	}())
	if ctx.Err() != nil {
		code = exitLate
	}
	return code, stderr.String()
}
