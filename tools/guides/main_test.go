package main

import (
	"fmt"
	"os"
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
