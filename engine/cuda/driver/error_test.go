package driver

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Every driver error that snug knows has its own text, says what to do next, and is listed in docs/gpu.md
// with its exit code.
func TestErrorsAreExplained(t *testing.T) {
	page, err := os.ReadFile("../../../docs/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		rows[strings.TrimSpace(line)] = true
	}
	named := map[string]Code{}
	for _, c := range Codes() {
		if other, ok := named[c.Meaning()]; ok {
			t.Errorf("errors %d and %d are both %q", c, other, c.Meaning())
		}
		named[c.Meaning()] = c
		e := &Error{Call: "cuLaunchKernel", Code: c, Log: "line 1"}
		if want := fmt.Sprintf("cuLaunchKernel: %s (CUDA error %d): %s\nline 1", c.Meaning(), c, c.Help()); e.Error() != want || c.Help() == "" {
			t.Errorf("%q, want %q", e, want)
		}
		if row := fmt.Sprintf("| %d | %s | %d | %s |", c, c.Meaning(), e.ExitCode(), strings.ReplaceAll(c.Help(), "|", `\|`)); !rows[row] {
			t.Errorf("docs/gpu.md lacks the row\n%s", row)
		}
	}
	if e := (&Error{Call: "cuInit", Code: 12345}); !strings.Contains(e.Error(), "the driver failed (CUDA error 12345): please report") {
		t.Error(e)
	}
	card, host := &Error{Call: "cuMemAlloc", Code: OutOfMemory}, &Error{Call: HostAlloc, Code: OutOfMemory}
	if !strings.Contains(card.Error(), "the card has") || !strings.Contains(host.Error(), "the host has") || !strings.Contains(host.Error(), "ulimit -l") {
		t.Errorf("%v\n%v", card, host)
	}
}
