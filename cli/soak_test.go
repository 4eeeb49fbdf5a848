package cli

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/checkpoint"
)

// soakSettings make runs of about a second that save all the time.
var soakSettings = []string{
	"--training.batch_size", "4", "--training.max_steps", "60", "--training.save_steps", "1", "--training.eval_steps", "7",
	"--training.sample.tokens", "1", "--checkpoint.keep_last", "2", "--hardware.threads", "1",
}

const (
	soakPatience = 10 * time.Minute // longest time for a process, however busy the machine
	soakRSS      = 512 << 10        // most memory for a process, in KiB
)

// TestSoak disturbs runs at random for as long as SNUG_SOAK says (10m): kills, stops, damage, moved and
// replaced folders, a full disk, rejected resumes, hostile numbers and files, copies to a remote folder.
// Whatever happens, a run that is resumed to its end equals the undisturbed one bit for bit, no reported
// checkpoint is lost, exit codes are those of the table, there are errors but no panics, no process is left
// over and none takes much memory.
//
// The seed is logged. SNUG_SOAK_SEED repeats the same actions, though not at the same instants.
func TestSoak(t *testing.T) {
	text := os.Getenv("SNUG_SOAK")
	if text == "" {
		t.Skip("SNUG_SOAK is not set, such as to 10m")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SNUG_SOAK: %v", err)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("SNUG_SOAK_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SNUG_SOAK_SEED: %v", err)
		}
	}
	t.Logf("SNUG_SOAK_SEED=%d", seed)
	s := &soak{t: t, rng: rand.New(rand.NewPCG(seed, 0)), work: t.TempDir(), done: map[string]int{}}
	if err := tiny(s.work); err != nil {
		t.Fatal(err)
	}
	kinds := soakKinds(t)
	for _, s.kind = range kinds {
		s.run([]int{exitDone}, append([]string{"train", "--out", s.kind.whole}, s.settings()...)...)
	}
	s.mounts = exec.Command("unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs "+t.TempDir()).Run() == nil
	if !s.mounts {
		t.Log("file systems cannot be mounted here: no disk is filled")
	}
	until := time.Now().Add(length)
	for life := 0; time.Now().Before(until) && !t.Failed(); life++ {
		s.kind = kinds[s.rng.IntN(len(kinds))]
		s.done["life of "+s.kind.whole]++
		s.life(fmt.Sprintf("run-%d", life), until)
	}
	for _, what := range slices.Sorted(maps.Keys(s.done)) {
		t.Logf("%5d %s", s.done[what], what)
	}
}

// soak is a soak test in progress.
type soak struct {
	t      *testing.T
	rng    *rand.Rand
	work   string
	kind   *soakKind // of the run that is disturbed
	mounts bool
	done   map[string]int // number of actions by name
}

// soakKind is a kind of run.
type soakKind struct {
	whole    string   // folder of the undisturbed run
	settings []string // flags of train besides --out, --resume and --nproc
	shared   bool     // one or two processes train it, another number each time, which changes no bit
	runs     []string // folders of its runs below its own: those of its phases, or itself
}

func soakKinds(t *testing.T) []*soakKind {
	single := append([]string{"--config", "tiny.yaml"}, soakSettings...)
	dynamo := everySystem(t)["dynamo"]
	phased := append([]string{"--config", dynamo.config}, strings.Fields(`--training.save_steps 1 --training.eval_steps 7 --training.log_steps 1 --checkpoint.keep_last 2
		--phases.encoder_steps 20 --phases.router_steps 20 --phases.joint_steps 10 --tasks.sentiment.steps 15 --tasks.translation.steps 15`)...)
	return []*soakKind{
		{"whole", single, false, []string{"."}},
		{"whole-shared", single, true, []string{"."}},
		{"whole-phased", phased, false, dynamo.phases},
	}
}

// phased reports whether the run is in phases, each in a folder of its own.
func (k *soakKind) phased() bool { return len(k.runs) > 1 }

// action disturbs the run in dir. over means that the run has ended or is gone.
type action struct {
	name   string
	weight int
	do     func(s *soak, dir string) (over bool)
}

var soakActions = []action{
	{"kill -9", 6, (*soak).kill},
	{"SIGTERM", 4, (*soak).terminate},
	{"SIGSTOP, a second process, SIGCONT", 2, (*soak).freeze},
	{"folder removed", 1, (*soak).remove},
	{"hostile numbers", 3, (*soak).hostileNumbers},
	{"hostile files", 3, (*soak).hostileFiles},
	{"to the end", 2, (*soak).finish},
}

// unphasedActions are further actions, for runs that are not in phases.
var unphasedActions = []action{
	{"refused resume", 3, (*soak).refusedResume},
	{"damage to the newest checkpoint", 2, (*soak).damage},
	{"folder moved away and another put in its place", 2, (*soak).replace},
	{"full disk", 1, (*soak).fillDisk},
	{"push and pull", 2, (*soak).far},
}

// life disturbs one run until it has ended.
func (s *soak) life(dir string, until time.Time) {
	defer func() { _ = os.RemoveAll(filepath.Join(s.work, dir)) }() // the test's folder is removed in any case
	actions := soakActions
	if !s.kind.phased() {
		actions = slices.Concat(actions, unphasedActions)
	}
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	for !s.t.Failed() {
		if time.Now().After(until) {
			s.finish(dir)
			return
		}
		n := s.rng.IntN(total)
		a := actions[slices.IndexFunc(actions, func(a action) bool { n -= a.weight; return n < 0 })]
		s.done[a.name]++
		over := a.do(s, dir)
		s.nobodyLeft(a.name)
		if s.t.Failed() {
			s.t.Logf("while: %s, %s", a.name, dir)
		}
		if over {
			return
		}
	}
}

func (s *soak) path(parts ...string) string {
	return filepath.Join(append([]string{s.work}, parts...)...)
}

// settings returns the flags of train for the kind of run.
func (s *soak) settings() []string {
	if !s.kind.shared {
		return s.kind.settings
	}
	return slices.Concat(s.kind.settings, []string{"--nproc", strconv.Itoa(1 + s.rng.IntN(2))})
}

// start resumes the run in dir, with extra flags.
func (s *soak) start(dir string, flags ...string) *victim {
	v := launch(s.t, s.work, "snug", slices.Concat([]string{"train", "--resume", "--out", dir}, s.settings(), flags)...)
	s.watch(v)
	return v
}

// watch ends a process that hangs, and makes it print its stacks.
func (s *soak) watch(v *victim) {
	v.late = time.AfterFunc(soakPatience, func() { _ = v.cmd.Process.Signal(syscall.SIGQUIT) }) // it may have ended
}

// end waits for a process and checks how it ended.
func (s *soak) end(v *victim, codes ...int) int {
	s.t.Helper()
	code, out := v.wait(), v.output()
	if !v.late.Stop() {
		s.t.Errorf("%v hangs:\n%s", v.cmd.Args, out)
		return code
	}
	use, ok := v.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	switch {
	case strings.Contains(out, "panic:") || strings.Contains(out, "goroutine "):
		s.t.Errorf("%v panics:\n%s", v.cmd.Args, out)
	case !slices.Contains(codes, code):
		s.t.Errorf("%v ends with code %d, want one of %v:\n%s", v.cmd.Args, code, codes, out)
	case (code == exitFailed || code == exitUsage || code == exitNoFit) && !strings.Contains(out, "snug: "):
		s.t.Errorf("%v ends with code %d and does not say why:\n%s", v.cmd.Args, code, out)
	case ok && use.Maxrss > soakRSS:
		s.t.Errorf("%v took %d KiB:\n%s", v.cmd.Args, use.Maxrss, out)
	}
	return code
}

// run runs a command to its end.
func (s *soak) run(codes []int, args ...string) (out string) {
	s.t.Helper()
	v := launch(s.t, s.work, "snug", args...)
	s.watch(v)
	s.end(v, codes...)
	return v.output()
}

// somewhere waits for a random point in a process, and returns false if it ended before.
func (s *soak) somewhere(v *victim) bool {
	if s.rng.IntN(5) > 0 {
		for n := range 1 + s.rng.IntN(3) {
			if !v.until([]string{"  loss ", "checkpoint step-", "checkpoint step-"}[n]) {
				return false
			}
		}
	}
	time.Sleep(time.Duration(s.rng.IntN(100_000)) * time.Microsecond)
	return true
}

// nobodyLeft checks that no process is left in the folder of the test. The children of a killed process have
// a moment to notice.
func (s *soak) nobodyLeft(after string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := filepath.Glob("/proc/[0-9]*/cwd")
		if err != nil {
			s.t.Fatal(err)
		}
		left := slices.DeleteFunc(list, func(link string) bool {
			at, err := os.Readlink(link)
			return err != nil || at != s.work
		})
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			s.t.Errorf("after %q %v still run", after, left)
			return
		}
	}
}

// finish resumes the run to its end, which must equal that of the undisturbed one.
func (s *soak) finish(dir string) bool {
	if s.end(s.start(dir), exitDone) == exitDone {
		s.same(dir)
	}
	return true
}

// nothingLost checks that what a process reported as saved is there. The checkpoints of phases that are done are not
// kept; the end of such a run shows the same.
func (s *soak) nothingLost(dir string, v *victim) {
	s.t.Helper()
	if !s.kind.phased() {
		nothingLost(s.t, s.path(dir), v.saved())
	}
}

func (s *soak) same(dir string) {
	s.t.Helper()
	for _, run := range s.kind.runs {
		whole, got := s.path(s.kind.whole, run), s.path(dir, run)
		sameLines(s.t, got, metricLines(s.t, got), metricLines(s.t, whole))
		sameBits(s.t, whole, got)
	}
}

// kill kills the process, or one of those that it has started.
func (s *soak) kill(dir string) bool {
	v := s.start(dir)
	if s.somewhere(v) {
		all := append(childrenOf(v.cmd.Process.Pid), v.cmd.Process.Pid)
		_ = syscall.Kill(all[s.rng.IntN(len(all))], syscall.SIGKILL) // it may have ended
	}
	if s.end(v, -1, exitDone, exitLostRank) == exitDone {
		s.same(dir)
		return true
	}
	s.nothingLost(dir, v)
	return false
}

func (s *soak) terminate(dir string) bool {
	v := s.start(dir)
	began := s.somewhere(v)
	_ = v.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	codes := []int{exitDone, exitStopped}
	if began && !strings.Contains(v.output(), "  loss ") {
		codes = append(codes, -1, exitFailed) // it may not have been ready to save
	}
	if s.end(v, codes...) == exitDone {
		s.same(dir)
		return true
	}
	s.nothingLost(dir, v)
	return false
}

// freeze stops a process for a while, during which another must not get its run.
func (s *soak) freeze(dir string) bool {
	v := s.start(dir)
	if v.until("  loss ") {
		_ = v.cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
		second := s.start(dir)
		code := s.end(second, exitFailed, exitDone)
		if told := strings.Contains(second.output(), "in use by process"); code == exitFailed && !told {
			s.t.Errorf("the second process does not say who is in the way:\n%s", second.output())
		}
		_ = v.cmd.Process.Signal(syscall.SIGCONT)
	}
	if s.end(v, exitDone) == exitDone {
		s.same(dir)
	}
	return true
}

// refusedResume requests the impossible, which must not change anything on disk.
func (s *soak) refusedResume(dir string) bool {
	if _, err := os.Stat(s.path(dir, checkpoint.ConfigFile)); err != nil || len(s.checkpoints(dir)) == 0 {
		return false // nothing exists yet that could be resumed
	}
	before := s.content(dir)
	flags := [][]string{{"--model.d_ff", "32"}, {"--model.n_layers", "1"}, {"--training.seed", "9"}, {"--model.d_ff", "32", "--data.tokenizer.vocab_size", "290"}}
	s.end(s.start(dir, flags[s.rng.IntN(len(flags))]...), exitUsage)
	s.unchanged(dir, before)
	return false
}

// content returns a hash of every file below dir, without the lock.
func (s *soak) content(dir string) map[string][sha256.Size]byte {
	files := map[string][sha256.Size]byte{}
	err := filepath.WalkDir(s.path(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		raw, err := os.ReadFile(path)
		files[path] = sha256.Sum256(raw)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

func (s *soak) unchanged(dir string, before map[string][sha256.Size]byte) {
	s.t.Helper()
	after := s.content(dir)
	for path, sum := range before {
		if now, there := after[path]; !there || now != sum {
			s.t.Errorf("%s was changed (there: %v)", path, there)
		}
	}
	for path := range after {
		if _, was := before[path]; !was {
			s.t.Errorf("%s was made", path)
		}
	}
}

// checkpoints returns the intact ones of a run, newest first.
func (s *soak) checkpoints(dir string) (paths []string) {
	list, err := checkpoint.List(s.path(dir))
	if err != nil {
		return nil
	}
	for _, e := range list {
		if r, err := checkpoint.Verify(e.Path); err == nil && len(r.Faults) == 0 {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// damage flips a bit of the newest checkpoint. The run must continue from the previous one.
func (s *soak) damage(dir string) bool {
	whole := s.checkpoints(dir)
	if len(whole) < 2 {
		return false
	}
	files, err := os.ReadDir(whole[0])
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(whole[0], files[s.rng.IntN(len(files))].Name())
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) == 0 {
		return false
	}
	raw[s.rng.IntN(len(raw))] ^= 1 << s.rng.IntN(8)
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		s.t.Fatal(err)
	}
	if out := s.run([]int{exitFailed}, "ckpt", "verify", dir); !strings.Contains(out, filepath.Base(path)) {
		s.t.Errorf("verify does not name %s:\n%s", path, out)
	}
	v := s.start(dir)
	if code := s.end(v, exitDone); code == exitDone {
		if !strings.Contains(v.output(), filepath.Base(whole[0])+" is not used") {
			s.t.Errorf("the damaged checkpoint is passed over in silence:\n%s", v.output())
		}
		s.same(dir)
	}
	return true
}

// replace moves the folder of a running process away and puts a finished run in its place, which must not
// change.
func (s *soak) replace(dir string) bool {
	v := s.start(dir)
	if !v.until("checkpoint step-") {
		if s.end(v, exitDone) == exitDone {
			s.same(dir)
		}
		return true
	}
	stranger := s.content("whole")
	if err := os.Rename(s.path(dir), s.path("moved")); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path("whole"), s.path(dir)); err != nil {
		s.t.Fatal(err)
	}
	s.end(v, exitDone, exitFailed)
	if err := os.Rename(s.path(dir), s.path("whole")); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path("moved"), s.path(dir)); err != nil {
		s.t.Fatal(err)
	}
	s.unchanged("whole", stranger)
	return s.finish(dir)
}

// remove deletes the folder of a running process, which must not create it again as if nothing had happened.
func (s *soak) remove(dir string) bool {
	v := s.start(dir)
	if v.until("checkpoint step-") {
		for os.RemoveAll(s.path(dir)) != nil { // a file may have appeared in the meantime
		}
	}
	if code := s.end(v, exitDone, exitFailed); code == exitDone {
		return true // it was done before
	}
	return true
}

// fillDisk lets the run continue first with next to no room, then with enough.
func (s *soak) fillDisk(dir string) bool {
	if !s.mounts || len(s.checkpoints(dir)) == 0 {
		return false
	}
	args := strings.Join(s.settings(), " ")
	script := fmt.Sprintf(`mkdir -p disk && mount -t tmpfs -o size=64m tmpfs disk && cp -r %[1]s disk/run || exit 90
		mount -o remount,size=$(($(du -sk disk | cut -f1) + %[2]d))k disk || exit 91
		snug train --resume --out disk/run %[3]s; first=$?
		[ $first = 0 ] || [ $first = 1 ] || exit 92
		mount -o remount,size=64m disk || exit 93
		snug train --resume --out disk/run %[3]s || exit 94
		rm -rf %[1]s && cp -r disk/run %[1]s`, dir, s.rng.IntN(1500), args)
	v := launch(s.t, s.work, "unshare", "-rm", "sh", "-c", script)
	s.watch(v)
	if s.end(v, 0) == 0 {
		s.same(dir)
	}
	return true
}

// far copies the newest checkpoint to a remote folder and back.
func (s *soak) far(dir string) bool {
	if len(s.checkpoints(dir)) == 0 {
		return false
	}
	url := "file://" + s.path("far-"+dir)
	ok := []int{exitDone}
	s.run(ok, "ckpt", "push", dir, url)
	s.run(ok, "ckpt", "pull", url, "near-"+dir)
	s.run(ok, "ckpt", "compare", dir, "near-"+dir)
	for _, d := range []string{"far-", "near-"} {
		if err := os.RemoveAll(s.path(d + dir)); err != nil {
			s.t.Fatal(err)
		}
	}
	return false
}

// hostileNumbers gives keys values that no run can have.
func (s *soak) hostileNumbers(string) bool {
	keys := []string{
		"model.d_model", "model.n_layers", "model.n_heads", "model.d_ff", "model.max_seq_len", "model.dropout", "training.batch_size",
		"training.gradient_accumulation_steps", "training.max_steps", "training.learning_rate", "training.warmup_steps", "training.eps",
		"training.beta2", "training.max_grad_norm", "training.ce_chunk", "training.seed", "data.workers", "data.seq_len", "data.held_out_fraction",
		"data.tokenizer.vocab_size", "data.max_record", "hardware.threads", "hardware.memory_budget", "checkpoint.keep_last", "checkpoint.grace",
	}
	values := []string{"-1", "0", "1", "1e30", "1e-46", "9223372036854775807", "4611686018427387904", "1e400", "nan", "inf", "-0", "0x10", "1_0", "3.5", "", "999999", "16777216"}
	verb := []string{"plan", "config", "train"}[s.rng.IntN(3)]
	args := []string{verb, "--config", "tiny.yaml", "--training.max_steps=2", "--hardware.threads=1", "--" + keys[s.rng.IntN(len(keys))] + "=" + values[s.rng.IntN(len(values))]}
	if key, _, _ := strings.Cut(args[5], "="); key == "--training.max_steps" || key == "--hardware.threads" {
		args = slices.DeleteFunc(args, func(a string) bool { return a != args[5] && strings.HasPrefix(a, key+"=") })
	}
	if verb == "train" {
		args = append(args, "--out", "hostile", "--until", "2")
		defer func() { _ = os.RemoveAll(s.path("hostile")) }() // created again each time
	}
	s.run([]int{exitDone, exitFailed, exitUsage, exitNoFit, exitStopped}, args...)
	return false
}

// hostileFiles flips, cuts and repeats bytes in the files that a run reads.
func (s *soak) hostileFiles(string) bool {
	name := []string{"tiny.yaml", "corpus/00.txt"}[s.rng.IntN(2)]
	raw, err := os.ReadFile(s.path(name))
	if err != nil {
		s.t.Fatal(err)
	}
	for range 1 + s.rng.IntN(4) {
		at := s.rng.IntN(len(raw))
		switch s.rng.IntN(4) {
		case 0:
			raw[at] ^= byte(1 + s.rng.IntN(255))
		case 1:
			raw = raw[:max(1, at)]
		case 2:
			raw = slices.Insert(raw, at, raw[at/2:at]...)
		default:
			raw = slices.Insert(raw, at, "\x00\xff\r\n\t: [{&*"[s.rng.IntN(10)])
		}
	}
	if err := os.WriteFile(s.path("hostile.bin"), raw, 0o666); err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(s.path("hostile")) }() // created again each time
	args := []string{"train", "--config", "hostile.bin"}
	if name != "tiny.yaml" {
		args = []string{"train", "--config", "tiny.yaml", "--data.source", "hostile.bin,corpus", "--data.documents", []string{"file", "line", "chunk"}[s.rng.IntN(3)]}
	}
	s.run([]int{exitDone, exitFailed, exitUsage, exitNoFit, exitStopped}, append(args, "--out", "hostile", "--until", "2")...)
	return false
}
