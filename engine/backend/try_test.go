package backend

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// tryT4 tries a T4 whose calls fail as fail has it.
func tryT4(t *testing.T, fail func(call string) driver.Code) *Tried {
	t.Helper()
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: fail}
	defer UseDriver(d)()
	cards, err := Try()
	if err != nil || len(cards) != 1 {
		t.Fatalf("%+v, %v", cards, err)
	}
	if err := d.Left(); err != nil {
		t.Error(err)
	}
	return &cards[0]
}

// Everything that a run does on a card is tried. Each call of the driver fails in turn, in a way that
// the card survives and in one that it does not: the call is named with what to do next, what came
// before it is as it was, and what follows is tried where it can be.
func TestTryNamesTheCallThatFails(t *testing.T) {
	var calls []string
	whole := tryT4(t, func(call string) driver.Code { calls = append(calls, call); return 0 })
	for what, found := range map[string]string{
		"context": "free", "memory": "page-locked", "assembler": "sm_75", "kernel": "numbers are right", "copies": "GB/s, and back at ", "graph": "replayed twice",
	} {
		if i := slices.IndexFunc(whole.Trials, func(x cuda.Trial) bool { return x.What == what }); i < 0 || !strings.Contains(whole.Trials[i].Found, found) {
			t.Errorf("%s: %q is not in %+v", what, found, whole.Trials)
		}
	}
	if whole.Failed() != nil {
		t.Errorf("%+v", whole)
	}
	for _, code := range []driver.Code{driver.NotPermitted, driver.ECCUncorrectable} {
		for i, call := range calls {
			if call == "cuDeviceGetCount" || testing.Short() && i%5 != 0 {
				continue // without the first there is no card to try
			}
			t.Run(fmt.Sprintf("%d %s %d", i, call, code), func(t *testing.T) {
				n := 0
				got := tryT4(t, func(string) driver.Code {
					if n++; n == i+1 {
						return code
					}
					return 0
				})
				failed := false
				for j, x := range got.Trials {
					switch {
					case x.Problem != "":
						if failed || !strings.Contains(x.Problem, fmt.Sprintf("%s: %s (CUDA error %d): ", call, code.Meaning(), code)) {
							t.Errorf("%+v", x)
						}
						failed = true
					case x.Skipped != "":
						if !failed {
							t.Errorf("nothing failed before %+v", x)
						}
					case failed && code.Sticky():
						t.Errorf("%+v on a card that is lost", x)
					case j >= len(whole.Trials) || x.What != whole.Trials[j].What:
						t.Errorf("%+v, want what %+v has", x, whole.Trials)
					}
				}
				if !failed || got.Failed() == nil {
					t.Errorf("no trial has failed: %+v", got.Trials)
				}
			})
		}
	}
}

// Numbers that are wrong are a failure, though every call succeeds.
func TestTryChecksNumbers(t *testing.T) {
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Corrupt: true}
	defer UseDriver(d)()
	cards, err := Try()
	if err != nil {
		t.Fatal(err)
	}
	if got := cards[0].Failed(); !slices.Equal(got, []string{"kernel", "copies", "graph"}) {
		t.Errorf("failed: %q\n%+v", got, cards[0].Trials)
	}
	for _, x := range cards[0].Trials {
		if x.Problem != "" && !strings.Contains(x.Problem, "have the card tested") {
			t.Errorf("%+v", x)
		}
	}
}
