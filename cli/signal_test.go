package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// TestEveryVerbHasAStop: every command says what it does when it is interrupted.
func TestEveryVerbHasAStop(t *testing.T) {
	parser, err := kong.New(&commands{}, kong.Name("snug"), kong.Vars{"passes": strings.Join(pass.Names(), ", ")})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, leaf := range parser.Model.Leaves(false) {
		verb := typed(leaf)
		found[verb] = true
		s, ok := stops[verb]
		if !ok || s.says == "" {
			t.Errorf("%s says nothing when it is interrupted", verb)
		}
		if verb != "train" && strings.Contains(s.says, "micro-batch") {
			t.Errorf("%s: %q", verb, s.says)
		}
	}
	for verb := range stops {
		if !found[verb] {
			t.Errorf("there is no verb %s", verb)
		}
	}
}

// TestInterrupted: a command at work ends at a signal, with a suitable message and exit code.
func TestInterrupted(t *testing.T) {
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	if err := manyTexts(filepath.Join(work, "many.txt")); err != nil {
		t.Fatal(err)
	}
	deep := []string{"--config", "tiny.yaml", "--model.n_layers", "1024"}
	long := []string{"--config", "tiny.yaml", "--data.source", "many.txt", "--data.documents", "line"}
	if code := start(t, work, "run").wait(); code != exitDone {
		t.Fatalf("the run to use ended with %d", code)
	}
	for i, c := range []struct {
		verb  string
		args  []string
		words string
	}{
		{"plan", deep, "stopping the planner"},
		{"plan", append([]string{"--card", "all"}, deep...), "stopping the planner"},
		{"fit", append([]string{"--card", "t4"}, deep...), "stopping the search"},
		{"train", append([]string{"--out", "deep"}, deep...), "nothing was trained since"},
		{"train", append([]string{"--out", "long"}, long...), "nothing was trained since"},
		{"data prepare", append([]string{"--out", "prepared"}, long...), "a partly prepared folder is dropped"},
		{"bench", []string{"--config", "tiny.yaml", "--updates", "100000", "--limit", "0"}, "what was measured is printed"},
		{"eval", []string{"run", "--data.source", "many.txt", "--data.documents", "line", "--data.cache_dir", "other"}, "none of it is kept"},
	} {
		t.Run(c.verb, func(t *testing.T) {
			s := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, hangUp()}[i%3]
			code, out := interrupt(t, work, append(strings.Fields(c.verb), c.args...), s)
			if code != exitFailed || !strings.Contains(out, c.words) || !strings.Contains(out, "again to stop at once") || strings.Contains(out, "micro-batch") {
				t.Errorf("%v: code %d, want %d with %q:\n%s", s, code, exitFailed, c.words, out)
			}
		})
	}
}

// TestInterruptedTwice: a second signal ends the process, whatever it is doing.
func TestInterruptedTwice(t *testing.T) {
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	args := []string{"train", "--config", "tiny.yaml", "--out", "run", "--model.n_layers", "1024"}
	if code, out := interrupt(t, work, args, syscall.SIGTERM, syscall.SIGTERM); code != exitFailed {
		t.Errorf("code %d:\n%s", code, out)
	}
}

// interrupt runs the tool and signals it once it is at work. If the signal killed it, it was not at work yet,
// and is started again.
func interrupt(t *testing.T, dir string, args []string, signals ...syscall.Signal) (code int, out string) {
	t.Helper()
	for wait := 400 * time.Millisecond; wait < time.Minute; wait *= 2 {
		v := begin(t, dir, args)
		time.Sleep(wait)
		for _, s := range signals {
			v.signal(t, s)
		}
		if code, out = v.end(t); code >= 0 {
			break
		}
	}
	return code, out
}

// worker is a process of the tool.
type worker struct {
	cmd *exec.Cmd
	out *strings.Builder
}

// begin starts the tool in a folder.
func begin(t *testing.T, dir string, args []string) *worker {
	t.Helper()
	name, err := exec.LookPath("snug")
	if err != nil {
		t.Fatal(err)
	}
	v := &worker{exec.Command(name, args...), &strings.Builder{}}
	v.cmd.Dir, v.cmd.Stdout, v.cmd.Stderr = dir, io.Discard, v.out
	v.cmd.Env = append(os.Environ(), "TERM=dumb")
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *worker) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := v.cmd.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

// end waits for the end of the process, and kills it if it hangs.
func (v *worker) end(t *testing.T) (code int, out string) {
	t.Helper()
	hung := time.AfterFunc(10*time.Minute, func() { _ = v.cmd.Process.Kill() })
	defer hung.Stop()
	_ = v.cmd.Wait() // the exit code shows it
	return v.cmd.ProcessState.ExitCode(), v.out.String()
}

// manyTexts writes a file that takes long to tokenize.
func manyTexts(path string) error {
	var b strings.Builder
	n := uint32(1)
	for range 400_000 {
		for range 12 {
			n = n*1664525 + 1013904223
			b.WriteString(string(rune('a'+n>>16%26)) + string(rune('a'+n>>20%26)) + string(rune('a'+n>>24%26)) + " ")
		}
		b.WriteString("\n")
	}
	return os.WriteFile(path, []byte(b.String()), 0o666)
}

// hangUp returns SIGHUP, or SIGTERM if the tests run under nohup, because processes that they start
// ignore it too.
func hangUp() syscall.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return syscall.SIGTERM
	}
	return syscall.SIGHUP
}

// TestStoppedBetweenPhases: a stop while a phase is prepared, after one that is done, counts as a stop with the state
// saved, and the run resumes.
func TestStoppedBetweenPhases(t *testing.T) {
	r, out := everySystem(t)["dynamo"], filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancelCause(t.Context())
	said := ""
	_, err := session.Train(ctx, session.Options{
		Sources: config.Sources{File: r.config}, Dir: out,
		OnEvent: func(e session.Event) {
			switch e := e.(type) {
			case session.PhaseBegins:
				if e.Name == r.phases[1] {
					cancel(errInterrupted)
				}
			case session.Info:
				said += e.Text + "\n"
			}
		},
	})
	if want := "stopped while preparing " + r.phases[1]; !errors.Is(err, train.ErrStopped) || !strings.Contains(said, want) {
		t.Fatalf("error %v, want one of the kind %v and %q in:\n%s", err, train.ErrStopped, want, said)
	}
	done(t, "train", "--resume", "--out", out)
}

// A run that was stopped before it had done an update did not succeed in stopping: there is nothing to resume.
func TestStopInTheFirstUpdate(t *testing.T) {
	for err, want := range map[error]int{train.ErrStopped: exitStopped, train.ErrNothingSaved: exitFailed} {
		var said strings.Builder
		a := &app{ctx: t.Context(), out: newStream(io.Discard, false), err: newStream(&said, false)}
		if code := a.fail(err); code != want || (want == exitFailed) != strings.Contains(said.String(), "nothing is saved") {
			t.Errorf("%v: code %d, want %d, and %q", err, code, want, said.String())
		}
	}
}
