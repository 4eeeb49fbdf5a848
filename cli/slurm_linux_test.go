package cli

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cluster is a Slurm cluster of this machine alone.
type cluster struct {
	*testing.T
	env []string
}

// startSlurm starts the daemons with their own configuration.
func startSlurm(t *testing.T) *cluster {
	t.Helper()
	for _, name := range []string{"slurmctld", "slurmd", "srun", "sbatch", "scontrol", "scancel"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no Slurm is installed: %v", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	self, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "slurm.conf")
	config := fmt.Sprintf(`ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=%[2]s
SlurmdUser=%[2]s
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/spool
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd.pid
SlurmctldPort=%[4]d
SlurmdPort=%[5]d
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
`, host, self.Username, dir, freePort(t), freePort(t))
	for _, name := range []string{"state", "spool"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil { //nolint:gosec // Slurm's commands read it
		t.Fatal(err)
	}
	s := &cluster{T: t, env: append(os.Environ(), "SLURM_CONF="+file)}
	for _, daemon := range []string{"slurmctld", "slurmd"} {
		c := exec.Command(daemon, "-D", "-f", file)
		said := &bytes.Buffer{}
		c.Env, c.Stdout, c.Stderr = s.env, said, said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM) // an error here means that it has already ended
			_ = c.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", daemon, said)
			}
		})
	}
	s.await("the node", func() bool {
		out, err := s.command("scontrol", "show", "node").Output()
		return err == nil && strings.Contains(string(out), "State=IDLE")
	})
	return s
}

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *cluster) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = s.env
	return c
}

// run runs a command of Slurm, which must succeed, and returns its output.
func (s *cluster) run(name string, args ...string) string {
	s.Helper()
	out, err := s.command(name, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// await waits until a condition holds.
func (s *cluster) await(what string, so func() bool) {
	s.Helper()
	for end := time.Now().Add(5 * time.Minute); !so(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s is still awaited", what)
		}
	}
}

// job returns a field of Slurm's description of a job.
func (s *cluster) job(id, field string) string {
	s.Helper()
	for _, f := range strings.Fields(s.run("scontrol", "show", "job", id)) {
		if name, value, _ := strings.Cut(f, "="); name == field {
			return value
		}
	}
	s.Fatalf("job %s has no %s", id, field)
	return ""
}

// rank returns the process of a rank in a job's first step.
func (s *cluster) rank(id string, rank int) int {
	s.Helper()
	for line := range strings.Lines(s.run("scontrol", "listpids", id+".0")) {
		// PID JOBID STEPID LOCALID GLOBALID, with "-" for those without a rank.
		if f := strings.Fields(line); len(f) == 5 && f[4] == strconv.Itoa(rank) {
			pid, err := strconv.Atoi(f[0])
			if err != nil {
				s.Fatal(err)
			}
			return pid
		}
	}
	s.Fatalf("job %s has no rank %d", id, rank)
	return 0
}

// TestSlurm uses a real Slurm: two tasks of srun compute what one process does. A job with the shipped
// script, one of whose processes is killed, is requeued, resumes, and ends with the same bits as an
// undisturbed run.
func TestSlurm(t *testing.T) {
	s := startSlurm(t)
	script, err := filepath.Abs("../deploy/slurm/snug.sbatch")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tiny(dir); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	settings := strings.Fields(`--data.source corpus/*.txt --data.format text --data.split_by document --data.held_out_fraction 0.2 --data.tokenizer.vocab_size 300
		--model.vocab_size 300 --model.d_model 32 --model.n_heads 2 --model.n_layers 1 --model.d_ff 64 --model.max_seq_len 32 --data.seq_len 32
		--training.gradient_accumulation_steps 4 --training.max_steps 400 --training.warmup_steps 10 --training.eval_steps 0 --training.save_steps 25
		--training.log_steps 100 --training.sample.tokens 0 --checkpoint.keep_last 100 --hardware.threads 1`)
	train := append([]string{"train", "quickstart"}, settings...)
	done(t, append(train, "--out", "alone", "--nproc", "1")...)
	weights := func(run string) string {
		raw, err := os.ReadFile(filepath.Join(run, "checkpoints", "step-00000400", "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	want := weights("alone")

	s.run("srun", append([]string{"-n", "2", "--time=10", "snug"}, append(train, "--out", "two")...)...)
	if weights("two") != want {
		t.Error("two tasks of srun train other weights than one process")
	}

	s.env = append(s.env, "SNUG_OUT="+filepath.Join(dir, "job"))
	id := strings.TrimSpace(s.run("sbatch", append([]string{"--parsable", "--time=20", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1", "--gpus-per-node=0", "--output=job.out", script, "quickstart"}, settings...)...))
	t.Cleanup(func() {
		_ = s.command("scancel", id).Run() // it has ended, if all went well
		if out, err := os.ReadFile(filepath.Join(dir, "job.out")); err == nil && t.Failed() {
			t.Logf("job:\n%s", out)
		}
	})
	s.await("the first checkpoint", func() bool {
		_, err := os.Stat("job/checkpoints/step-00000025")
		return err == nil
	})
	if err := syscall.Kill(s.rank(id, 1), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.await("the job's requeuing", func() bool { return s.job(id, "Restarts") == "1" && s.job(id, "JobState") == "PENDING" })
	// Instead of after two minutes, but not within the second in which slurmd revoked the job's credential,
	// because it would mistake the new one for the old.
	s.run("scontrol", "update", "JobId="+id, "StartTime=now+5")
	s.await("the job's end", func() bool {
		state := s.job(id, "JobState")
		if state == "FAILED" {
			t.Fatal("the requeued job failed")
		}
		return state == "COMPLETED"
	})
	out, err := os.ReadFile("job.out")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"rank 1 was lost", "resuming from step-", "done: 400 of 400 updates"} {
		if !strings.Contains(string(out), part) {
			t.Errorf("the job does not say %q", part)
		}
	}
	if weights("job") != want {
		t.Error("the job that was killed and requeued has other weights")
	}
}
