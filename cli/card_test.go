package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/session"
)

// use replaces the installed driver, and checks at the end that everything was released.
func use(t *testing.T, d *fakegpu.Driver) {
	t.Helper()
	restore := backend.UseDriver(d)
	t.Cleanup(func() {
		restore()
		if err := d.Left(); err != nil {
			t.Error(err)
		}
	})
}

// once makes the n-th call of a name fail, counting from 1.
func once(name string, n int, code driver.Code) func(string) driver.Code {
	return func(call string) driver.Code {
		if call == name {
			if n--; n == 0 {
				return code
			}
		}
		return 0
	}
}

// TestCardsThatCannotBeUsed: if a run cannot use a card, that is reported before anything is prepared, with
// what to do about it.
func TestCardsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	if err := tiny(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.UseMonitor(hot{}))
	t4 := []driver.Card{fakegpu.T4}
	old := fakegpu.T4
	old.Name, old.Major, old.Minor = "Tesla P100-PCIE-16GB", 6, 0
	for name, c := range map[string]struct {
		driver *fakegpu.Driver
		device string
		code   int
		want   []string
	}{
		"no card":        {&fakegpu.Driver{}, "cuda", 1, []string{"there is no NVIDIA card", "--gpus all", "snug doctor"}},
		"old driver":     {&fakegpu.Driver{Installed: t4, CUDA: 11020}, "cuda", 1, []string{"supports CUDA 11.2", "CUDA 11.4 is needed", "driver 470"}},
		"old card":       {&fakegpu.Driver{Installed: []driver.Card{old}}, "cuda", 1, []string{"cuda:0", "P100", "compute capability 6.0", "7.5 up"}},
		"no such number": {&fakegpu.Driver{Installed: t4}, "cuda:3", 2, []string{"no card cuda:3", "cuda:0 (Tesla T4)"}},
		"no number":      {&fakegpu.Driver{Installed: t4}, "cuda:x", 2, []string{"want auto, cpu, cuda, cuda:N"}},
		"unknown device": {&fakegpu.Driver{Installed: t4}, "gpu", 2, []string{"hardware.device", "cuda"}},
		"full":           {&fakegpu.Driver{Installed: t4, Taken: 14_700 << 20}, "cuda", 3, []string{"does not fit: needs", "left for this process, others use", "of its 14.", "(process 1: 14 GiB, process 2)"}},
		"no room":        {&fakegpu.Driver{Installed: t4, Taken: 14_920 << 20}, "cuda", 3, []string{"cuda:0: cuDevicePrimaryCtxRetain: the card has too little free memory (CUDA error 2)", "nvidia-smi", "(process 1: 14 GiB, process 2)"}},
		"exclusive":      {&fakegpu.Driver{Installed: t4, Fail: once("cuDevicePrimaryCtxRetain", 1, driver.DeviceUnavailable)}, "cuda", 1, []string{"another process has exclusive use of the card", "nvidia-smi", "(process 1: 14 GiB, process 2)"}},
		"no slice":       {&fakegpu.Driver{Fail: once("cuDeviceGetCount", 1, driver.NoDevice)}, "cuda", 1, []string{"CUDA error 100", "MIG mode", "nvidia-smi mig -cgi"}},
		"not permitted":  {&fakegpu.Driver{Installed: t4, Fail: once("cuDevicePrimaryCtxRetain", 1, driver.NotPermitted)}, "cuda", 1, []string{"does not permit it", "/dev/nvidia*", "--gpus all"}},
		"fell off":       {&fakegpu.Driver{Installed: t4, Fail: once("cuDevicePrimaryCtxRetain", 1, driver.Unknown)}, "cuda", 6, []string{"CUDA error 999", "Xid 79"}},
		"services":       {&fakegpu.Driver{Installed: t4, Fail: once("cuDeviceGetCount", 1, driver.SystemNotReady)}, "cuda", 1, []string{"CUDA error 802", "nvidia-fabricmanager"}},
		"broken driver":  {&fakegpu.Driver{Installed: t4, Fail: once("cuDeviceGetCount", 1, driver.SystemMismatch)}, "cuda", 1, []string{"different versions", "restart the machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			use(t, c.driver)
			out := filepath.Join(t.TempDir(), "run")
			t.Chdir(dir)
			x := snug(t, "", "train", "--config", "tiny.yaml", "--out", out, "--hardware.device", c.device)
			if x.code != c.code {
				t.Errorf("exit code %d, want %d", x.code, c.code)
			}
			for _, w := range c.want {
				if !strings.Contains(x.err, w) {
					t.Errorf("%q is not in:\n%s", w, x.err)
				}
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s was made", out)
			}
		})
	}
}

// TestAutoSaysWhyACardIsNotUsed: a card that exists but cannot be used is reported in one line with the
// reason, and the CPU trains.
func TestAutoSaysWhyACardIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	if err := tiny(dir); err != nil {
		t.Fatal(err)
	}
	old := fakegpu.T4
	old.Name, old.Major, old.Minor = "Tesla P100-PCIE-16GB", 6, 0
	for name, c := range map[string]struct {
		driver *fakegpu.Driver
		want   string
	}{
		"old driver": {&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CUDA: 11020}, "CUDA 11.4 is needed"},
		"old card":   {&fakegpu.Driver{Installed: []driver.Card{old}}, "compute capability 6.0"},
	} {
		t.Run(name, func(t *testing.T) {
			use(t, c.driver)
			out := filepath.Join(t.TempDir(), "run")
			t.Chdir(dir)
			x := snug(t, "", "train", "--config", "tiny.yaml", "--out", out, "--hardware.device", "auto", "--training.max_steps", "2")
			var told []string
			for line := range strings.Lines(x.err) {
				if strings.Contains(line, "the NVIDIA card cannot be used") {
					told = append(told, line)
				}
			}
			if x.code != 0 || len(told) != 1 || !strings.Contains(told[0], c.want) {
				t.Errorf("exit code %d, told %q, want one line with %q:\n%s", x.code, told, c.want, x.err)
			}
			raw, err := os.ReadFile(filepath.Join(out, monitor.InfoFile))
			var i monitor.Info
			if err == nil {
				err = json.Unmarshal(raw, &i)
			}
			if err != nil || len(i.Notes) != 1 || !strings.Contains(i.Notes[0], c.want) || i.Card {
				t.Errorf("%v\n%s", err, raw)
			}
		})
	}
}

// TestCardsThatFailAtTheStart: if a card fails while a program is loaded, nothing hangs, and the error says
// what failed and what to do.
func TestCardsThatFailAtTheStart(t *testing.T) {
	r := everySystem(t)["refocused"]
	for name, c := range map[string]struct {
		fail func(string) driver.Code
		code int
		want []string
	}{
		"assembler is absent": {once("cuModuleLoadDataEx", 1, driver.JITNotFound), 1, []string{"kernels: ", "libnvidia-ptxjitcompiler", "cuModuleLoadDataEx"}},
		"code is too new":     {once("cuModuleLoadDataEx", 1, driver.UnsupportedPTX), 1, []string{"CUDA 11.4 or later"}},
		"code is refused":     {once("cuModuleLoadDataEx", 1, driver.InvalidPTX), 1, []string{"assembler refused", "report this text"}},
		"taken meanwhile":     {once("cuMemAlloc", 1, driver.OutOfMemory), 3, []string{"are needed", "are free", "nvidia-smi"}},
		"memory of the host":  {once("cuMemHostAlloc", 3, driver.OutOfMemory), 3, []string{"cuMemHostAlloc: the host has too little memory that may be page-locked", "ulimit -l"}},
		"capture is lost":     {once("cuStreamEndCapture", 2, driver.CaptureInvalidated), 1, []string{"cuStreamEndCapture: the graph that was being captured is lost by an earlier error (CUDA error 901)", "please report this text"}},
		"graph has no room":   {once("cuGraphInstantiate", 2, driver.OutOfMemory), 3, []string{"cuGraphInstantiate: the card has too little free memory", "nvidia-smi"}},
		"kernel fails":        {once("cuStreamSynchronize", 2, driver.LaunchFailed), 6, []string{"a kernel failed (CUDA error 719)", "no checkpoint was saved"}},
		"lost":                {once("cuGraphInstantiate", 2, driver.ECCUncorrectable), 6, []string{"uncorrectable error", "no checkpoint was saved", "nvidia-smi -r"}},
	} {
		t.Run(name, func(t *testing.T) {
			use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: c.fail})
			x := snug(t, "", "train", "--config", r.config, "--out", filepath.Join(t.TempDir(), "run"), "--hardware.device", "cuda")
			if x.code != c.code {
				t.Errorf("exit code %d, want %d", x.code, c.code)
			}
			for _, w := range append(c.want, "Tesla T4") {
				if !strings.Contains(x.err, w) {
					t.Errorf("%q is not in:\n%s", w, x.err)
				}
			}
		})
	}
}

// TestRefusedKernels: an assembler that rejects code gives its reason, and so do a run and doctor.
func TestRefusedKernels(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const log = "ptxas application ptx input, line 27; error   : Unknown modifier '.foo'\nptxas fatal   : Ptx assembly aborted due to errors"
	r := everySystem(t)["refocused"]
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Refuse: log})
	x := snug(t, "", "train", "--config", r.config, "--out", filepath.Join(t.TempDir(), "run"), "--hardware.device", "cuda")
	wants(t, x, exitFailed, "Tesla T4: kernels: cuModuleLoadDataEx: the assembler refused the code (CUDA error 218): update the driver", "with the log\n"+log)
	x = snug(t, "", "doctor")
	wants(t, x, exitFailed, "assembler  FAILED: cuModuleLoadDataEx: the assembler refused the code")
	for line := range strings.Lines(log) {
		wants(t, x, exitFailed, strings.TrimSpace(line))
	}
}

// TestSliceOfACard: a slice of a card is a card with the slice's memory and multiprocessors, not those of the
// whole card.
func TestSliceOfACard(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.Slice}})
	wants(t, snug(t, "", "doctor"), 0, "cuda:0 NVIDIA A100-SXM4-40GB MIG 1g.5gb: compute capability 8.0, 14 multiprocessors, 4.75 GiB", "replayed twice")
	x := snug(t, "", "plan", "quickstart", "--hardware.device", "cuda")
	wants(t, x, 0, "MIG 1g.5gb", "4.75 GiB")
	if strings.Contains(x.out, "40 GiB") {
		t.Errorf("the memory of the whole card is planned with:\n%s", x.out)
	}
}

// TestKeptKernels: code that the driver assembled in one run is found by the next. doctor says what is
// stored, and a folder that cannot be used costs one line.
func TestKeptKernels(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	r := everySystem(t)["refocused"]
	card := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}
	use(t, card)
	dir := t.TempDir()
	short := []string{"--training.max_steps", "1", "--training.eval_steps", "0", "--training.sample.tokens", "0"}
	trainOn(t, r, filepath.Join(dir, "a"), "cuda", short...)
	made := card.Assembled
	trainOn(t, r, filepath.Join(dir, "b"), "cuda", short...)
	if made == 0 || card.Assembled != made {
		t.Errorf("the first run assembled %d times, the second %d", made, card.Assembled-made)
	}
	kernels := filepath.Join(cache, "snug", "kernels")
	const tried = 1 // by doctor
	wants(t, snug(t, "", "doctor"), 0, fmt.Sprintf("assembled kernels: kept by the driver in %s: %d files, ", kernels, made+tried), " of at most 1 GiB")
	var said struct{ Code backend.CodeCache }
	if err := json.Unmarshal([]byte(done(t, "doctor", "--json").out), &said); err != nil || said.Code.Files != made+tried || said.Code.Bytes == 0 {
		t.Errorf("%+v, %v", said, err)
	}
	if err := errors.Join(os.RemoveAll(kernels), os.WriteFile(kernels, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	x := snug(t, "", append([]string{"train", "--config", r.config, "--out", filepath.Join(dir, "c"), "--hardware.device", "cuda"}, short...)...)
	wants(t, x, 0, "warning: "+kernels+" cannot be written: not a directory")
	if n := strings.Count(x.out+x.err, "cannot be written"); n != 1 || card.Assembled != 2*made+tried {
		t.Errorf("said %d times; assembled %d times", n, card.Assembled-made)
	}
	wants(t, snug(t, "", "doctor"), 0, "assembled kernels: "+kernels+" cannot be written: not a directory")
}

// TestCardLostInARun: a card lost during a run ends it with the functions that ran, the last checkpoint and
// how to continue. The resumed run equals an uninterrupted one, bit for bit.
func TestCardLostInARun(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	calls := map[string]int{}
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code { calls[call]++; return 0 }})
	trainOn(t, r, whole, "cuda")
	counted := maps.Clone(calls)
	for _, c := range []struct {
		call string
		code driver.Code
		want string
		at   int // in percent of the run's calls: after the save of update 2 of 4, and before the last update's
	}{
		{"cuStreamSynchronize", driver.IllegalAddress, "read or wrote outside its memory", 54},
		{"cuGraphLaunch", driver.ECCUncorrectable, "uncorrectable error", 70},
		{"cuEventSynchronize", driver.Unknown, "Xid 79", 70},
	} {
		t.Run(c.call, func(t *testing.T) {
			out := filepath.Join(dir, c.call)
			restore := backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: once(c.call, counted[c.call]*c.at/100, c.code)})
			x := snug(t, "", "train", "--config", r.config, "--out", out, "--hardware.device", "cuda")
			restore()
			if x.code != exitLost {
				t.Errorf("exit code %d, want %d", x.code, exitLost)
			}
			for _, w := range []string{c.want, c.call, "the newest checkpoint is step-00000002, of update 2", "snug train --resume --out " + out} {
				if !strings.Contains(x.err, w) {
					t.Errorf("%q is not in:\n%s", w, x.err)
				}
			}
			if c.code == driver.IllegalAddress {
				trainOn(t, r, out, "cuda", "--resume")
				sameWeights(t, whole, out)
			}
		})
	}
}

// TestEveryCallFailsInARun: each driver call after the start fails once, in a way that the card survives. The
// run ends with an error that names the call. (engine/cuda's TestEveryCallMayFail covers the calls of the
// start.)
func TestEveryCallFailsInARun(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	dir := t.TempDir()
	var calls map[string]int
	short := []string{"--training.max_steps", "2", "--training.eval_steps", "0", "--training.save_steps", "1", "--training.sample.tokens", "0"}
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code {
		if call == "cuGraphLaunch" && calls == nil {
			calls = map[string]int{}
		}
		if calls != nil {
			calls[call]++
		}
		return 0
	}})
	trainOn(t, r, filepath.Join(dir, "whole"), "cuda", short...)
	for name, times := range calls {
		t.Run(name, func(t *testing.T) {
			left, began := (times+1)/2, false
			use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code {
				began = began || call == "cuGraphLaunch"
				if began && call == name {
					if left--; left == 0 {
						return driver.NotPermitted
					}
				}
				return 0
			}})
			x := snug(t, "", append([]string{"train", "--config", r.config, "--out", filepath.Join(dir, name), "--hardware.device", "cuda"}, short...)...)
			if x.code != exitFailed || !strings.Contains(x.err, name+": the system does not permit it") {
				t.Errorf("exit code %d\n%s", x.code, x.err)
			}
		})
	}
}

// hot is a card slowed down by its power cap.
type hot struct{}

func (hot) Sample(uuid string) (nvml.Sample, bool) {
	s := nvml.Unknown
	s.Busy, s.Used, s.Total, s.Celsius, s.Watts, s.Cap, s.SM, s.Throttle = 97, 3<<30, 15<<30, 81, 69.6, 70, 1005, nvml.PowerCap|nvml.Heat
	return s, uuid == fakegpu.T4.UUID
}

func (hot) Processes(string) []nvml.Process {
	return []nvml.Process{{PID: os.Getpid(), Used: 1}, {PID: 1, Used: 14 << 30}, {PID: 2, Used: -1}}
}

// charging is a card that uses ten joules between two samples.
type charging struct {
	hot
	looks *int
}

func (c charging) Sample(uuid string) (nvml.Sample, bool) {
	*c.looks++
	s, ok := c.hot.Sample(uuid)
	s.Joules = float64(10 * *c.looks)
	return s, ok
}

// TestBenchOfACard: a measurement on a card reports the energy of an update and, with --ops, how its time was
// spent.
func TestBenchOfACard(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}})
	t.Cleanup(backend.UseMonitor(charging{looks: new(int)}))
	x := done(t, "bench", "--config", everySystem(t)["refocused"].config, "--hardware.device", "cuda", "--updates", "5", "--ops", "--json")
	var d struct {
		Sweeps []struct {
			Rows []struct {
				Joules     float64           `json:"joules_per_update"`
				CardUsed   int64             `json:"card_used_bytes"`
				Operations []plan.ProfileRow `json:"operations"`
			}
		}
	}
	if err := json.Unmarshal([]byte(x.out), &d); err != nil {
		t.Fatalf("%v\n%s", err, x.out)
	}
	row := d.Sweeps[0].Rows[0]
	if row.Joules != 10./5 {
		t.Errorf("%v joules an update, want 2", row.Joules)
	}
	if row.CardUsed <= 0 || len(row.Operations) == 0 {
		t.Fatalf("%d bytes of the card, %d operations", row.CardUsed, len(row.Operations))
	}
	for i, o := range row.Operations {
		if o.Op == "" || o.Runs <= 0 || o.Predicted <= 0 || i > 0 && o.Measured > row.Operations[i-1].Measured {
			t.Errorf("operation %d: %+v", i, o)
		}
	}
}

// TestFiguresOfACard: what the card reports about itself is in the progress line and in the summary.
func TestFiguresOfACard(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}})
	t.Cleanup(backend.UseMonitor(hot{}))
	out := filepath.Join(t.TempDir(), "run")
	x := done(t, "train", "--config", everySystem(t)["refocused"].config, "--out", out, "--hardware.device", "cuda", "--training.max_steps", "2", "--training.log_steps", "1")
	for _, w := range []string{
		" fp32 on Tesla T4 (driver ", "CUDA 12.4, no cuBLASLt), 1 thread",
		"mem 3 GiB/", "process peak ", " planned on the card", "busy 97% 70/70 W 81 °C 1005 MHz slowed by power cap, heat",
		"busy 97 %, 3 GiB of its memory at most, 70 of 70 W, up to 81 °C, 1005 MHz; slowed 100 % of the time by power cap, heat",
	} {
		if !strings.Contains(x.out, w) {
			t.Errorf("%q is not in:\n%s", w, x.out)
		}
	}
	raw, err := os.ReadFile(filepath.Join(out, session.SummaryFile))
	var s session.Summary
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if m, err := monitor.Open(out); err != nil {
		t.Error(err)
	} else if s := m.Snapshot(time.Now(), monitor.View{}); s.State != monitor.Done || s.Update != 2 || !s.Memory.Card || s.Memory.Used != 3<<30 || s.Sample.GPU == nil || *s.Sample.GPU.Watts != 69.6 ||
		!slices.ContainsFunc(s.Alerts, func(a monitor.Alert) bool { return a.Kind == monitor.AlertHeat && strings.Contains(a.Text, "81 °C") }) {
		t.Errorf("%s, update %d, %+v, %+v, %+v", s.State, s.Update, s.Memory, s.Sample.GPU, s.Alerts)
	}
	if err != nil || s.Card == nil || s.Card.Watts != 69.6 || s.Card.Joules <= 0 {
		t.Errorf("%v\n%s", err, raw)
	}
}

// shared simulates cards whose memory others use: what is left, by identity.
type shared map[string]int64

func (s shared) Sample(uuid string) (nvml.Sample, bool) {
	x := nvml.Unknown
	left, ok := s[uuid]
	x.Total, x.Used = 64<<30, 64<<30-left
	return x, ok
}

func (shared) Processes(string) []nvml.Process { return nil }

// TestCardIsChosenByThePlan: of several cards, a command uses the fastest on which the training fits, and
// says why.
func TestCardIsChosenByThePlan(t *testing.T) {
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4, fakegpu.A10}})
	r := everySystem(t)["refocused"]
	for left, want := range map[int64]string{
		100 << 20: "cuda:0 (T4, 14 GiB free) computes: the fastest card that the plan fits on, which it does not on cuda:1 (A10, 100 MiB free)",
		10 << 30:  "cuda:1 (A10, 10 GiB free) computes: the fastest of 2 cards",
	} {
		t.Cleanup(backend.UseMonitor(shared{fakegpu.T4.UUID: 14 << 30, fakegpu.A10.UUID: left}))
		x := snug(t, "", "plan", "--config", r.config, "--hardware.device", "auto")
		wants(t, x, 0, want)
		if n := strings.Count(x.err+x.out, " computes: "); n != 1 {
			t.Errorf("said %d times:\n%s", n, x.err)
		}
	}
}
