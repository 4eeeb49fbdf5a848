package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// screen runs a command line with a terminal as stdout and stderr, and returns what reaches the terminal.
func screen(t *testing.T, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	seen := make(chan string)
	go func() {
		all, _ := io.ReadAll(master) // ends with an error when the other side is closed
		seen <- string(all)
	}()
	Main(args, strings.NewReader(""), slave, slave)
	if err := slave.Close(); err != nil {
		t.Error(err)
	}
	return <-seen
}

// TestTerminal: a line is overwritten only if the terminal supports it and the user allows it.
func TestTerminal(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "a\u202eb.txt")
	if err := os.WriteFile(text, []byte(lines()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		term, noColor string
		live          bool
	}{{"xterm", "", true}, {"dumb", "", false}, {"xterm", "1", false}} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		run := filepath.Join(dir, "run\x1b[31m"+c.term+c.noColor)
		out := screen(t, tinyRun(run, text)...)
		if !strings.Contains(out, "4/4") {
			t.Errorf("%+v: no progress in %q", c, out)
		}
		if got := strings.Contains(out, "\x1b[K"); got != c.live {
			t.Errorf("%+v: lines written over: %v", c, got)
		}
		if rest := strings.ReplaceAll(out, "\r\x1b[K", ""); strings.ContainsAny(rest, "\x1b\u202e") {
			t.Errorf("%+v: %q", c, rest)
		}
	}
}
