package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Every point of the five guides is on the page once, in order, with what does it or where it
// belongs.
func TestEveryPointIsThere(t *testing.T) {
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for guide, n := range []int{34, 33, 24, 45, 27} {
		for k := range n {
			want = append(want, fmt.Sprintf("%03d-%d", guide, k+1))
		}
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " 00") {
			continue
		}
		if n := strings.TrimSpace(cells[1]); len(want) == 0 || n != want[0] {
			t.Fatalf("%s is out of order, want %.1v", n, want)
		}
		if want = want[1:]; strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]+cells[4]) == "" {
			t.Errorf("%s says nothing", cells[1])
		}
	}
	if len(want) > 0 {
		t.Errorf("%v are missing", want)
	}
	if n := len(commands(string(text), "")); n < 90 {
		t.Errorf("%d commands are run", n)
	}
}

// What counts as an answer: success, a plan that is refused by memory, a benchmark that says how long it would take.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		verb, exit, out string
		ok              bool
	}{
		{"train", "0", "", true},
		{"plan", "3", "", true},
		{"train", "3", "", false},
		{"plan", "2", "", false},
		{"bench", "2", "x: predicted to take 9m, 1m an update, over --limit 1m (0 runs all)", true},
		{"bench", "2", "unknown flag", false},
	} {
		err := exec.Command("sh", "-c", "exit "+c.exit).Run()
		if text, ok := (point{args: []string{c.verb}}).verdict(err, c.out); ok != c.ok {
			t.Errorf("%s with exit code %s: %s", c.verb, c.exit, text)
		}
	}
}

// Trainings and benchmarks are made short, with what the page sets left as it is.
func TestShortened(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"plan quickstart", "plan quickstart"},
		{"bench quickstart --updates 9", "bench quickstart --updates 9 --limit 1m"},
		{"train quickstart --training.max_steps 7", "train quickstart --training.max_steps 7 --fresh --training.warmup_steps 0 --training.eval_batches 1 --training.sample.tokens 8"},
	} {
		if got := strings.Join(shortened(strings.Fields(c.line)), " "); got != c.want {
			t.Errorf("%s: %s", c.line, got)
		}
	}
}
