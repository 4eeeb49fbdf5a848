package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/train/checkpoint"
)

// family is a run of several processes on this machine, represented by the process that starts them.
type family struct {
	*testing.T
	*exec.Cmd
	says *bytes.Buffer
}

// trainTogether starts a run in the folder work that saves often.
func trainTogether(t *testing.T, work, out string, updates int, settings ...string) *family {
	t.Helper()
	args := append([]string{"train", "--config", "tiny.yaml", "--out", out, "--resume", "--nproc", "2", "--training.max_steps", strconv.Itoa(updates), "--training.save_steps", "25",
		"--training.eval_steps", "0", "--training.sample.tokens", "0", "--hardware.threads", "1"}, settings...)
	f := &family{t, exec.Command("snug", args...), &bytes.Buffer{}}
	f.Dir, f.Stdout, f.Stderr = work, f.says, f.says
	f.Env = append(os.Environ(), "TERM=dumb", "SNUG_TEST_SILENCE=2s")
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.Process.Kill() // it has ended, if all went well
	})
	return f
}

// saved waits for a checkpoint.
func (f *family) saved(out string) {
	f.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(f.Dir, out, "checkpoints", "step-00000025")); err == nil {
			return
		}
		if time.Now().After(end) || gone(f.Process.Pid) {
			f.Fatalf("the first checkpoint is still awaited:\n%s", f.says)
		}
	}
}

// ranks returns the processes of the run by rank.
func (f *family) ranks() map[int]int {
	f.Helper()
	found := map[int]int{}
	for _, id := range childrenOf(f.Process.Pid) {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id)) // it may have ended
		for v := range strings.SplitSeq(string(environ), "\x00") {
			if text, ok := strings.CutPrefix(v, "SNUG_RANK="); ok {
				rank, err := strconv.Atoi(text)
				if err != nil {
					f.Fatal(err)
				}
				found[rank] = id
			}
		}
	}
	return found
}

// TestLostRankEndsTheRun: if any rank is killed or hangs, all end in time. The rank that knows the cause
// reports it, with what to do next, and the resumed run has the bits of an undisturbed one. This also holds for
// processes that train on their own for 25 updates at a time.
func TestLostRankEndsTheRun(t *testing.T) {
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	if err := trainTogether(t, work, "whole", 400).Wait(); err != nil {
		t.Fatal(err)
	}
	own := []string{"--training.diloco.inner_steps", "25"}
	if err := trainTogether(t, work, "own", 400, own...).Wait(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, whole string
		settings    []string
	}{{"zero-0", "whole", nil}, {"zero-1", "whole", []string{"--training.zero", "1"}}, {"diloco", "own", own}} {
		for rank := range 2 {
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				if testing.Short() && (s == syscall.SIGSTOP || c.settings != nil) {
					continue
				}
				name := fmt.Sprintf("%s-rank-%d-%v", c.name, rank, s)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					out := strings.ReplaceAll(name, " ", "-")
					f := trainTogether(t, work, out, 400, c.settings...)
					f.saved(out)
					if err := syscall.Kill(f.ranks()[rank], s); err != nil {
						t.Fatal(err)
					}
					_ = f.Wait() // ProcessState says how it ended
					said := f.says.String()
					if code := f.ProcessState.ExitCode(); code != exitLostRank {
						t.Errorf("exit code %d, want %d", code, exitLostRank)
					}
					for _, want := range []string{
						fmt.Sprintf("rank %d was lost: ", rank), "start the run again with --resume", fmt.Sprintf("snug: rank %d ended by a signal (signal: killed)", rank),
					} {
						if strings.Count(said, want) != 1 {
							t.Errorf("it does not say %q once:\n%s", want, said)
						}
					}
					if strings.Contains(said, "did not end within") {
						t.Errorf("the others waited for one that hangs:\n%s", said)
					}
					again := c.settings
					if c.whole == "whole" { // sharing the optimizer changes nothing
						again = nil
					}
					if f := trainTogether(t, work, out, 400, again...); f.Wait() != nil {
						t.Fatalf("resumed: %v\n%s", f.ProcessState, f.says)
					}
					sameBits(t, filepath.Join(work, c.whole), filepath.Join(work, out))
				})
			}
		}
	}
}

// TestRanksEndWithTheirParent: ranks end with the process that started them, however it ends, even if they
// are stopped.
func TestRanksEndWithTheirParent(t *testing.T) {
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	f := trainTogether(t, work, "run", 1_000_000)
	f.saved("run")
	ranks := f.ranks()
	if len(ranks) != 2 {
		t.Fatalf("the ranks are %v", ranks)
	}
	if err := errors.Join(syscall.Kill(ranks[1], syscall.SIGSTOP), f.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = f.Wait()
	for rank, id := range ranks {
		for end := time.Now().Add(time.Minute); !gone(id); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("rank %d is still there", rank)
			}
		}
	}
	// Nobody holds the lock of the run folder.
	last, err := checkpoint.Choose(filepath.Join(work, "run"), checkpoint.Last)
	if err != nil {
		t.Fatal(err)
	}
	if f := trainTogether(t, work, "run", 1_000_000, "--until", fmt.Sprint(1+last.Update)); f.Wait() == nil || f.ProcessState.ExitCode() != exitStopped {
		t.Errorf("resumed: %v\n%s", f.ProcessState, f.says)
	}
}

// TestLifeline: a process ends when its lifeline closes, but not if it has none.
func TestLifeline(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool, 2)
	go func() { orphaned(r); ended <- true }()
	go func() { orphaned(os.NewFile(1<<20, "none")); ended <- false }()
	_ = w.Close()
	if !<-ended {
		t.Error("what is no pipe has ended")
	}
	select {
	case <-ended:
		t.Error("what is no pipe has ended")
	case <-time.After(50 * time.Millisecond):
	}
}

// TestStartOn: a process that is started on some processors may use only these, and later ones may use all.
func TestStartOn(t *testing.T) {
	allowed := func(c *exec.Cmd) string {
		c.Args = []string{"sh", "-c", "grep Cpus_allowed_list /proc/self/status"}
		out, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	before := allowed(&exec.Cmd{Path: sh})
	c := &exec.Cmd{Path: sh, Args: []string{"sh", "-c", "grep Cpus_allowed_list /proc/self/status"}}
	var out bytes.Buffer
	c.Stdout = &out
	done := make(chan error)
	go func() { // on its own thread
		runtime.LockOSThread()
		first := processorsOf(t)[0]
		err := startOn([]int{first}, c.Start)
		if got := processorsOf(t); len(got) == 1 && strings.Contains(before, "-") {
			err = errors.Join(err, fmt.Errorf("the thread is left with processors %v", got))
		}
		done <- errors.Join(err, c.Wait())
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("Cpus_allowed_list:\t%d\n", processorsOf(t)[0]); out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	if after := allowed(&exec.Cmd{Path: sh}); after != before {
		t.Errorf("the next has %q, those before %q", after, before)
	}
}

// processorsOf returns the processors that this thread may use.
func processorsOf(t *testing.T) []int {
	t.Helper()
	list := device.DetectHost().CPU.Processors
	if len(list) == 0 {
		t.Fatal("no processors")
	}
	return list
}

// TestPeakOverMPIWithinPlan: processes that exchange over MPI use no more memory than their plan, which has
// an allowance for the library.
func TestPeakOverMPIWithinPlan(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	work := t.TempDir()
	if err := tiny(work); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, launcher := range [][]string{{"mpiexec.mpich"}, {"mpirun.openmpi", "--oversubscribe", "--bind-to", "none"}} {
		if _, err := exec.LookPath(launcher[0]); err != nil {
			t.Logf("%s is not installed", launcher[0])
			continue
		}
		ran++
		c := exec.Command(launcher[0], append(launcher[1:], "-n", "2", "snug", "train", "--config", "tiny.yaml", "--out", launcher[0], "--training.max_steps", "40",
			"--hardware.exchange", "mpi", "--hardware.threads", "1", "--json")...)
		var said bytes.Buffer
		c.Dir, c.Stderr = work, &said
		c.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		out, err := c.Output()
		var summary struct {
			Peak    int64 `json:"peak_rss_bytes"`
			Planned int64 `json:"planned_total_bytes"`
		}
		if err == nil {
			err = json.Unmarshal(out, &summary)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", launcher[0], err, out, &said)
		}
		if summary.Peak == 0 || summary.Peak > summary.Planned {
			t.Errorf("%s: the peak is %d bytes of %d planned", launcher[0], summary.Peak, summary.Planned)
		}
		t.Logf("%s: the peak is %d bytes of %d planned", launcher[0], summary.Peak, summary.Planned)
	}
	if ran == 0 {
		t.Skip("no launcher of MPI is installed")
	}
}
