package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snug-ml/snug/session"
)

// broken is a writer that accepts only a limited number of bytes.
type broken struct {
	bytes.Buffer
	takes int
	err   error
}

func (b *broken) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.takes {
		return 0, b.err
	}
	return b.Buffer.Write(p)
}

// TestStdoutIsGone: lost output is reported once on stderr, and by the exit code. A reader that has left is
// not an error, and gives the exit code of SIGPIPE.
func TestStdoutIsGone(t *testing.T) {
	full := &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	gone := &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}
	dir := t.TempDir()
	for _, c := range []struct {
		args string
		code int // if stdout works
	}{
		{"--help", 0},
		{"train --help", 0},
		{"config --presets", 0},
		{"config --reference refocused", 0},
		{"config quickstart", 0},
		{"doctor", 0},
		{"doctor --json", 0},
		{"plan quickstart --card t4", 0},
		{"plan quickstart --card t4 --json", 0},
		{"plan quickstart --card t4 --hardware.memory_budget 10MiB", exitNoFit},
		{"plan quickstart --model.nope 1", exitUsage},
		{"generate " + dir, exitFailed},
	} {
		args := strings.Fields(c.args)
		var out, errs bytes.Buffer
		if code := Main(args, strings.NewReader(""), &out, &errs); code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.args, code, c.code, errs.String())
			continue
		}
		if out.Len() == 0 {
			continue // a refusal prints nothing on stdout
		}
		for _, takes := range []int{0, out.Len() / 2} {
			var said bytes.Buffer
			code := Main(args, strings.NewReader(""), &broken{takes: takes, err: full}, &said)
			if code != max(exitFailed, c.code) || strings.Count(said.String(), "no space left on device") != 1 {
				t.Errorf("%s, a full device after %d bytes: exit code %d, %q", c.args, takes, code, said.String())
			}
			said.Reset()
			code = Main(args, strings.NewReader(""), &broken{takes: takes, err: gone}, &said)
			want := exitUnread
			if c.code > exitFailed {
				want = c.code
			}
			if code != want || strings.Contains(said.String(), "stdout") {
				t.Errorf("%s, a reader that leaves after %d bytes: exit code %d, %q", c.args, takes, code, said.String())
			}
		}
	}
}

// tinyRun returns the arguments of a tiny training on a text file.
func tinyRun(dir, text string) []string {
	return append([]string{"train", "--out", dir, "--data.source", text}, strings.Fields(`--data.format text --data.documents line --data.split_by document --data.held_out_fraction 0.2 --training.log_steps 1 --data.tokenizer.vocab_size 300
		--model.vocab_size 300 --model.d_model 32 --model.n_heads 2 --model.n_layers 1 --model.d_ff 64 --model.max_seq_len 32 --data.seq_len 32
		--training.max_steps 4 --training.eval_steps 4 --training.save_steps 4 --hardware.threads 1`)...)
}

// TestTrainingOutlivesStdout: a run continues if nobody reads its output, and is complete.
func TestTrainingOutlivesStdout(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(text, []byte(lines()), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		err  error
		code int
	}{"full": {syscall.ENOSPC, exitFailed}, "closed": {syscall.EPIPE, exitUnread}} {
		run := filepath.Join(dir, name)
		var said bytes.Buffer
		code := Main(tinyRun(run, text), strings.NewReader(""), &broken{takes: 100, err: c.err}, &said)
		if code != c.code || strings.Count(said.String(), "the work continues") != 1 {
			t.Errorf("%s: exit code %d, %q", name, code, said.String())
		}
		raw, err := os.ReadFile(filepath.Join(run, session.SummaryFile))
		var s session.Summary
		if err := errors.Join(err, json.Unmarshal(raw, &s)); err != nil || !s.Done {
			t.Errorf("%s: the run is not whole: %v", name, err)
		}
	}
}

func TestEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain, tiếng Việt, 日本語\tand\n":   "plain, tiếng Việt, 日本語\tand\n",
		"\x1b[31mred\x1b[0m":              `\u001b[31mred\u001b[0m`,
		"over\rwritten\b\a":               `over\u000dwritten\u0008\u0007`,
		"\x1b]0;title\x07":                `\u001b]0;title\u0007`,
		"del\x7f":                         `del\u007f`,
		"C1 \u009b31m":                    `C1 \u009b31m`,
		"raw C1 \x9b31m":                  `raw C1 \x9b31m`,
		"user\u202etxt.exe":               `user\u202etxt.exe`,
		"\u2066a\u2069\u200e\u200f\u061c": `\u2066a\u2069\u200e\u200f\u061c`,
		"line\u2028two\u2029":             `line\u2028two\u2029`,
		"tag\U000e0041":                   `tag\udb40\udc41`,
		"family 👩\u200d👧":                 "family 👩\u200d👧",
		"cut \xe2\x80":                    `cut \xe2\x80`,
	} {
		// However the output is split.
		for size := 1; size <= len(in); size++ {
			var b bytes.Buffer
			s := newStream(&b, true)
			for p := in; p != ""; {
				n := min(size, len(p))
				_, _ = io.WriteString(s, p[:n])
				p = p[n:]
			}
			if err := s.end(); err != nil || b.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, size, b.String(), want)
			}
		}
	}
}

// TestEscapedJSON: an escape within a JSON document is a JSON escape.
func TestEscapedJSON(t *testing.T) {
	var all strings.Builder
	for r := rune(1); r < 0xe0100; r++ {
		if steers(r) {
			all.WriteRune(r)
		}
	}
	raw, err := json.Marshal(all.String())
	if err != nil {
		t.Fatal(err)
	}
	out, _ := escaped(raw)
	var back string
	if err := json.Unmarshal(out, &back); err != nil || back != all.String() {
		t.Errorf("%v: %q", err, back)
	}
}

// TestNamesDoNotSteer: text from a file reaches stderr escaped, and stdout unchanged unless that is a
// terminal.
func TestNamesDoNotSteer(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a\x1b[2J\u202eb")
	for _, args := range [][]string{
		{"generate", name}, {"eval", name}, {"train", "--config", name}, {"plan", "--config", name}, {"config", "--config", name},
		{"ckpt", "verify", name}, {"export", name, name}, {"predict", name}, {"serve", name}, {"plan", name}, {name}, {"train", "--" + name, "1"},
		{"plan", "quickstart", "--data.source", name}, {"data", "prepare", "quickstart", "--data.source", name}, {"plan", "quickstart", "--card", name},
	} {
		var out, errs bytes.Buffer
		code := Main(args, strings.NewReader(""), &out, &errs)
		if strings.ContainsAny(errs.String(), "\x1b\u202e") {
			t.Errorf("%q: exit code %d, stderr %q", args, code, errs.String())
		}
	}
	var pipe, terminal bytes.Buffer
	_, _ = fmt.Fprint(newStream(&pipe, false), name)
	s := newStream(&terminal, false)
	s.escape = true
	_, _ = fmt.Fprint(s, name)
	if pipe.String() != name || strings.ContainsAny(terminal.String(), "\x1b\u202e") {
		t.Errorf("a program reads %q, a terminal %q", pipe.String(), terminal.String())
	}
}

// lines returns a text of different lines.
func lines() string {
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, "the quick brown fox jumps over the lazy dog number %d\n", i)
	}
	return b.String()
}
