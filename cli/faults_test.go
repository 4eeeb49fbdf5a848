package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/checkpoint"
)

// undisturbed creates a work folder with a finished run named "whole".
func undisturbed(t *testing.T, settings ...string) (work string) {
	t.Helper()
	work = t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	if v := start(t, work, "whole", settings...); v.wait() != exitDone {
		t.Fatalf("the undisturbed run ended with code %d:\n%s", v.code, v.output())
	}
	return work
}

// threeSaves creates a work folder with a run whose checkpoints are those of updates 4, 8 and 12, the last
// one.
func threeSaves(t *testing.T) (work string) {
	t.Helper()
	work = t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	for _, until := range [][]string{{"--until", "4"}, {"--until", "8"}, nil} {
		if v := start(t, work, "whole", append([]string{"--training.save_steps", "0", "--checkpoint.keep_best", "false"}, until...)...); v.wait() != exitDone && v.code != exitStopped {
			t.Fatalf("the undisturbed run ended with code %d:\n%s", v.code, v.output())
		}
	}
	return work
}

// sameRuns compares a finished run with the undisturbed one.
func sameRuns(t *testing.T, work, dir string) {
	t.Helper()
	whole := filepath.Join(work, "whole")
	sameLines(t, dir, metricLines(t, filepath.Join(work, dir)), metricLines(t, whole))
	sameBits(t, whole, filepath.Join(work, dir))
}

// TestTerminated: a machine that is taken away sends SIGTERM, a terminal that is closed SIGHUP. The state is
// saved within the grace period, the exit code shows that, and the resumed run equals the undisturbed one.
func TestTerminated(t *testing.T) {
	t.Parallel()
	work := undisturbed(t, crashSettings...)
	rng := rand.New(rand.NewPCG(3, 4))
	stops := 0
	for {
		v := start(t, work, "stopped", crashSettings...)
		v.until("  loss ")
		time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		if err := v.cmd.Process.Signal([]os.Signal{syscall.SIGTERM, hangUp()}[stops%2]); err != nil {
			t.Log(err) // it was done before
		}
		if v.wait() == exitDone {
			break
		}
		if v.code != exitStopped {
			t.Fatalf("exit code %d, want %d:\n%s", v.code, exitStopped, v.output())
		}
		stops++
	}
	if stops == 0 {
		t.Fatal("the run was done before it could be stopped")
	}
	t.Logf("stopped %d times", stops)
	sameRuns(t, work, "stopped")
}

// TestTerminatedAtTheEnd: a signal that arrives when the work is done does not change the exit code.
func TestTerminatedAtTheEnd(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		v := start(t, work, fmt.Sprint("run", i), "--training.max_steps", "2")
		v.until("snug ckpt show")
		if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Log(err) // it has already ended
		}
		if v.wait() != exitDone {
			t.Fatalf("exit code %d:\n%s", v.code, v.output())
		}
	}
}

// TestGraceTooShort: if the grace period is too short, the exit code shows that the state was not saved, and
// the run continues from the last good checkpoint.
func TestGraceTooShort(t *testing.T) {
	t.Parallel()
	work := undisturbed(t, crashSettings...)
	v := start(t, work, "late", append([]string{"--checkpoint.grace", "1us"}, crashSettings...)...)
	v.until("checkpoint step-")
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if v.wait() != exitGrace || !strings.Contains(v.output(), "grace ended before the state was saved") {
		t.Fatalf("exit code %d, want %d:\n%s", v.code, exitGrace, v.output())
	}
	nothingLost(t, filepath.Join(work, "late"), v.saved())
	v = start(t, work, "late", crashSettings...)
	if v.wait() != exitDone || !strings.Contains(v.output(), "resuming from step-") {
		t.Fatalf("exit code %d:\n%s", v.code, v.output())
	}
	sameRuns(t, work, "late")
}

// TestTwoProcesses: a run directory belongs to one process, and the lock of a dead process does not outlive
// it.
func TestTwoProcesses(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	first := start(t, work, "run", "--training.max_steps", "1000000", "--training.eval_steps", "0", "--training.log_steps", "1000000")
	first.until("checkpoint step-")
	second := start(t, work, "run")
	want := fmt.Sprintf("in use by process %d on host", first.cmd.Process.Pid)
	if second.wait() != exitFailed || !strings.Contains(second.output(), want) {
		t.Errorf("exit code %d, want %d and %q:\n%s", second.code, exitFailed, want, second.output())
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.wait()
	third := start(t, work, "run", "--training.max_steps", "1000000", "--until", "1")
	if third.wait() != exitStopped {
		t.Errorf("exit code %d after the first process is dead:\n%s", third.code, third.output())
	}
}

// in runs a shell script in a mount namespace with an empty file system of the given size mounted at "run".
// It skips the test if that is not allowed.
func in(t *testing.T, work, size, script string) (out string, code int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(work, "run"), 0o777); err != nil {
		t.Fatal(err)
	}
	mount := "mount -t tmpfs -o size=" + size + " tmpfs run && "
	probe := exec.Command("unshare", "-rm", "sh", "-c", mount+"true")
	probe.Dir = work
	if err := probe.Run(); err != nil {
		t.Skipf("file systems cannot be mounted here: %v", err)
	}
	v := launch(t, work, "unshare", "-rm", "sh", "-c", mount+script)
	code = v.wait()
	return v.output(), code
}

// TestFullDisk: on a full disk, training continues, attempts and failures are reported, and the last good
// checkpoint stays. Once there is room, the run ends as if nothing had happened.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	work := undisturbed(t)
	out, code := in(t, work, "2200k", `
		snug train --config tiny.yaml --out run; echo "first: $?"
		snug ckpt verify run || exit 1
		cat run/summary.json
		mount -o remount,size=32m run || exit 1
		snug train --config tiny.yaml --out run --resume; echo "second: $?"
		snug ckpt compare run whole
		cp -r run copy`)
	for _, want := range []string{
		"failed (attempt 1)", "a checkpoint needs", "training continues", "was given up", "12 of 12 updates", "first: 1",
		"step-00000004: whole", `"save_failures": 1`, "resuming from step-00000004", "second: 0",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if strings.Contains(out, `"save_retries": 0`) {
		t.Error("the summary tells of no retries")
	}
	if t.Failed() || code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	sameRuns(t, work, "copy")
}

// TestFullDiskForData: where the disk is full before the data is prepared, one line says so, another where there
// may be room, and nothing is left behind.
func TestFullDiskForData(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	out, code := in(t, work, "1m", `
		snug train cloudbase-quickstart --synthetic.flights 12 --split.validation flight-1 --split.calibration flight-2 --split.test flight-3 --out run/a; echo "code: $?"
		find run -mindepth 1`)
	_, after, _ := strings.Cut(out, "data: storing")
	lines := strings.Split(strings.TrimSpace(after), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[1], "no space left on device") || !strings.Contains(lines[2], "make room there, or choose another folder with --data.cache_dir") || lines[3] != "code: 1" || code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
}

// TestReadOnly: a run directory that cannot be written to is rejected before any work.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	out, code := in(t, work, "8m", `
		snug train --config tiny.yaml --out run --until 4 > log
		mount -o remount,ro run || exit 1
		snug train --config tiny.yaml --out run --resume; echo "code: $?"
		snug ckpt verify run`)
	for _, want := range []string{"read-only file system", "code: 1", "step-00000004: whole"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if t.Failed() || code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
}

// TestDamage damages each kind of file in the newest checkpoint. verify names the file and, if there are any,
// the tensor; resume reports that it falls back to an older checkpoint, and the run still ends like the
// undisturbed one.
func TestDamage(t *testing.T) {
	work := threeSaves(t)
	t.Chdir(work)
	const newest = "step-00000012"
	list, err := os.ReadDir(filepath.Join("whole", checkpoint.Folder, newest))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 6 {
		t.Fatalf("the checkpoint has %d files", len(list))
	}
	for i, e := range list {
		for _, damage := range []struct {
			name string
			do   func(b []byte) []byte
		}{
			{"cut", func(b []byte) []byte { return b[:len(b)*2/3] }},
			{"bit", func(b []byte) []byte { b[len(b)*2/3] ^= 4; return b }},
		} {
			t.Run(e.Name()+"/"+damage.name, func(t *testing.T) {
				dir := fmt.Sprintf("%s-%d", damage.name, i)
				if err := os.CopyFS(dir, os.DirFS("whole")); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, checkpoint.Folder, newest, e.Name())
				raw, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage.do(raw), 0o666); err != nil {
					t.Fatal(err)
				}
				out, code := tool("ckpt", "verify", dir)
				if code != exitFailed || !strings.Contains(out, path) || !strings.Contains(out, "1 of 3 checkpoints are damaged") {
					t.Errorf("verify ends with code %d:\n%s", code, out)
				}
				if filepath.Ext(e.Name()) == ".safetensors" && !strings.Contains(out, "tensor \"") {
					t.Errorf("verify names no tensor:\n%s", out)
				}
				out, code = tool("train", "--config", "tiny.yaml", "--resume", "--out", dir, "--training.save_steps", "0")
				if code != exitDone || !strings.Contains(out, newest+" is not used: ") || !strings.Contains(out, "resuming from step-00000008") {
					t.Fatalf("resume ends with code %d:\n%s", code, out)
				}
				sameRuns(t, ".", dir)
			})
		}
	}
}

// tool runs the command line in this process.
func tool(args ...string) (out string, code int) {
	var b bytes.Buffer
	code = Main(args, strings.NewReader(""), &b, io.Writer(&b))
	return b.String(), code
}

// TestClockJumpsBack: the clock may jump, because the number of the update decides what is newest.
func TestClockJumpsBack(t *testing.T) {
	work := threeSaves(t)
	t.Chdir(work)
	if err := os.CopyFS("jumped", os.DirFS("whole")); err != nil {
		t.Fatal(err)
	}
	// The later a checkpoint was saved, the earlier its clock time.
	for i, name := range []string{"step-00000004", "step-00000008", "step-00000012"} {
		at := time.Date(2040-10*i, 1, 1, 0, 0, 0, 0, time.UTC)
		redate(t, filepath.Join("jumped", checkpoint.Folder, name), at)
	}
	out, code := tool("ckpt", "verify", "jumped")
	if code != exitDone {
		t.Fatalf("the redated checkpoints are not whole:\n%s", out)
	}
	out, code = tool("train", "--config", "tiny.yaml", "--resume", "--out", "jumped", "--training.max_steps", "16", "--training.save_steps", "0", "--checkpoint.keep_best", "false")
	if code != exitDone || !strings.Contains(out, "resuming from step-00000012") {
		t.Fatalf("resume ends with code %d:\n%s", code, out)
	}
	out, _ = tool("ckpt", "list", "jumped")
	if !strings.Contains(out, "step-00000016") || !strings.Contains(out, "step-00000012") || strings.Contains(out, "step-00000004") {
		t.Errorf("kept, of three:\n%s", out)
	}
}

// redate changes the time of a checkpoint, in its files and in the file system.
func redate(t *testing.T, dir string, at time.Time) {
	t.Helper()
	m, err := checkpoint.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, checkpoint.MetadataFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var meta checkpoint.Metadata
	if err := json.Unmarshal(raw, &meta); err != nil {
		t.Fatal(err)
	}
	meta.Created, m.Created = at.Format(time.RFC3339), at.Format(time.RFC3339)
	if raw, err = json.Marshal(meta); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	f := m.File(checkpoint.MetadataFile)
	f.Size, f.SHA256 = int64(len(raw)), hex.EncodeToString(sum[:])
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{checkpoint.MetadataFile: raw, checkpoint.ManifestFile: text} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(list, dir) {
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}
