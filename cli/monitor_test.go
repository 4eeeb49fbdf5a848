package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLooks: the environment decides about colors and characters.
func TestLooks(t *testing.T) {
	for _, c := range []struct {
		env          map[string]string
		color, ascii bool
	}{
		{map[string]string{"LANG": "C.UTF-8"}, true, false},
		{map[string]string{"LANG": "en_US.utf8", "NO_COLOR": "1"}, false, false},
		{map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, true, true},
		{nil, true, true},
	} {
		l := looksOf(func(key string) string { return c.env[key] })
		if l.Color != c.color || l.ASCII != c.ascii {
			t.Errorf("%v: %+v", c.env, l)
		}
	}
}

// pane is a terminal of 80 x 24 in tmux.
type pane struct {
	t      *testing.T
	socket string
}

// newPane runs a command line in a terminal. It skips the test if there is no tmux.
func newPane(t *testing.T, dir, line string) *pane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: the monitor is not tried in a terminal")
	}
	p := &pane{t, filepath.Join(t.TempDir(), "tmux")}
	p.tmux("-f", os.DevNull, "-u", "new-session", "-d", "-s", "it", "-x", "80", "-y", "24", "-c", dir, line)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() })
	return p
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", p.socket}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (p *pane) keys(keys ...string) { p.tmux(append([]string{"send-keys", "-t", "it"}, keys...)...) }

// shows waits until the screen contains a text.
func (p *pane) shows(want string) string {
	p.t.Helper()
	var screen string
	for range 600 {
		if screen = p.tmux("capture-pane", "-p", "-t", "it"); strings.Contains(screen, want) {
			return screen
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.t.Fatalf("the screen never had %q:\n%s", want, screen)
	return ""
}

// TestMonitorInTerminal runs a monitor in a real terminal: new lines appear, it follows a resize, keys work,
// and q leaves the terminal as it was.
func TestMonitorInTerminal(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, "run", name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
			_ = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("run.json", `{"system":"refocused","preset":"p","updates":50,"started":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)
	write("metrics.jsonl", `{"event":"update","update":1,"loss":8.125,"grad_norm":1,"learning_rate":0.1}`+"\n")
	p := newPane(t, dir, `LANG=C.UTF-8 TERM=screen-256color snug monitor run; echo "code $?"; exec sleep 600`)
	p.shows("loss 8.125")
	write("metrics.jsonl", `{"event":"update","update":2,"loss":4.75,"grad_norm":1,"learning_rate":0.1}`+"\n"+`{"event":"update","upd`)
	p.shows("loss 4.75")
	p.keys("l")
	p.shows("[log scale]")
	p.tmux("resize-window", "-t", "it", "-x", "40", "-y", "12")
	screen := p.shows("? help  tab panel")
	for _, line := range strings.Split(screen, "\n") {
		if n := len([]rune(line)); n > 40 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
	p.keys("?")
	p.shows("quit; the run continues")
	p.keys("q")
	p.keys("r")
	p.shows("loss 4.75")
	p.keys("q")
	p.shows("code 0")
}

// TestTrainInTerminal: training watched in its own terminal continues with plain lines after q, and ends as
// it would without.
func TestTrainInTerminal(t *testing.T) {
	dir := t.TempDir()
	if err := tiny(dir); err != nil {
		t.Fatal(err)
	}
	p := newPane(t, dir, `LANG=C.UTF-8 TERM=screen-256color snug train --config tiny.yaml --monitor --training.max_steps 100000 --training.eval_steps 0 --training.save_steps 0 --out run; echo "code $?"; exec sleep 600`)
	p.shows("q plain lines")
	p.shows("loss")
	p.keys("q")
	p.shows("training goes on; snug monitor run shows it again")
	p.keys("C-c")
	p.shows("code 4")
}
