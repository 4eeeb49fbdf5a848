package device

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestSampleFromFiles(t *testing.T) {
	write := func(root, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := fakeRoot(t, map[string]string{
		"proc/self/stat":           "17 (a) name) S 1 2 3 4 5 6 7 8 9 10 100 50 0 0 20 0 1 0 0\n",
		"proc/self/status":         "Name:\tx\nVmHWM:\t  2000 kB\nVmRSS:\t  1000 kB\n",
		"proc/stat":                "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n",
		"proc/meminfo":             meminfo,
		"proc/loadavg":             "0.53 0.40 0.30 1/200 4242\n",
		"proc/self/cgroup":         "0::/\n",
		"sys/fs/cgroup/memory.max": "1000000\n", "sys/fs/cgroup/memory.current": "250000\n",
	})
	s := newSampler(root)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	write(root, "proc/self/stat", "17 (a) name) S 1 2 3 4 5 6 7 8 9 10 130 70 0 0 20 0 1 0 0\n")
	write(root, "proc/stat", "cpu  150 0 125 725 100 0 0 0 0 0\n")
	before := time.Now().Add(-time.Second)
	s.last.at = before
	x := s.Sample()
	if x.RSS != 1000<<10 || x.PeakRSS != 2000<<10 || x.MemoryTotal != 16000000<<10 || x.MemoryAvailable != 12000000<<10 {
		t.Errorf("memory: %+v", x)
	}
	if x.CgroupLimit != 1000000 || x.CgroupUsed != 250000 || math.Abs(x.Load-0.53) > 1e-12 {
		t.Errorf("cgroup or load: %+v", x)
	}
	if want := 50 / x.At.Sub(before).Seconds(); math.Abs(x.ProcessCPU-want) > 1e-9 { // 50 ticks in a little more than a second
		t.Errorf("process %g %%, want %g", x.ProcessCPU, want)
	}
	if x.MachineCPU != 75 { // 75 of 100 ticks
		t.Errorf("machine %g %%, want 75", x.MachineCPU)
	}
}

// A sample soon after another, as at the end of a run, reports CPU use over a long enough
// interval: within less than a tick of the clock it would always be zero.
func TestSampleSoonAfterAnother(t *testing.T) {
	stat := func(ticks int) string {
		return fmt.Sprintf("17 (a) S 1 2 3 4 5 6 7 8 9 10 %d 0 0 0 20 0 1 0 0\n", ticks)
	}
	machine := func(busy, idle int) string { return fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 0 0 0\n", busy, idle) }
	root := fakeRoot(t, map[string]string{"proc/self/stat": stat(0), "proc/stat": machine(0, 0)})
	s := newSampler(root)
	used := func(ago time.Duration, ticks, busy, idle int) Sample {
		t.Helper()
		for name, text := range map[string]string{"proc/self/stat": stat(ticks), "proc/stat": machine(busy, idle)} {
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s.last.at = time.Now().Add(-ago)
		if s.before != (cpuTime{}) {
			s.before.at = s.last.at.Add(-time.Second)
		}
		return s.Sample()
	}
	near := func(x Sample, process, machine float64) {
		t.Helper()
		if math.Abs(x.ProcessCPU-process) > 0.1*process || x.MachineCPU != machine {
			t.Errorf("process %.1f %%, machine %.1f %%; want about %g and %g", x.ProcessCPU, x.MachineCPU, process, machine)
		}
	}
	near(used(time.Second, 90, 100, 100), 90, 50)
	near(used(2*time.Millisecond, 90, 100, 100), 90, 50) // no tick since: the previous second counts
	near(used(5*time.Millisecond, 90, 101, 100), 90, 100*101.0/201)
	near(used(time.Second, 150, 250, 150), 60, 75) // from the end of that second on
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSampleOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("this system is not asked")
	}
	began := time.Now()
	s := NewSampler()
	const ticks = 10
	for x := 1.0; s.processTicks() < s.last.process+ticks; x = math.Sqrt(x + 1) {
		if time.Since(began) > time.Minute {
			t.Fatalf("a minute of work is %d ticks of CPU time", s.processTicks()-s.last.process)
		}
	}
	a := s.Sample()
	// On a busy machine the work takes longer, so the clock is read last.
	least := 100 * ticks / float64(ticksPerSecond) / time.Since(began).Seconds()
	if a.ProcessCPU < least || a.RSS < 1<<20 || a.PeakRSS < a.RSS/2 || a.MemoryAvailable <= 0 {
		t.Errorf("after work of %d ticks, %.1f %% of a processor: %+v", ticks, least, a)
	}
	if n := testing.AllocsPerRun(20, func() { s.Sample() }); n != 0 && s.ask == nil {
		t.Errorf("a sample makes %g allocations", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestSampleOfCalls takes samples of a system that answers calls.
func TestSampleOfCalls(t *testing.T) {
	s := newSampler(t.TempDir())
	u := usage{rss: 3, peak: 4, total: 8, available: 5, load: 0.5}
	s.ask = func() usage { return u }
	s.last = s.cpuTime()
	s.last.at = s.last.at.Add(-2 * time.Second)
	u.cpu = time.Second
	x := s.Sample()
	if math.Abs(x.ProcessCPU-50) > 1 || x.MachineCPU != 0 {
		t.Errorf("a second of work in two: process %.1f %%, machine %.1f %%", x.ProcessCPU, x.MachineCPU)
	}
	x.At, x.ProcessCPU = time.Time{}, 0
	if want := (Sample{RSS: 3, PeakRSS: 4, MemoryTotal: 8, MemoryAvailable: 5, Load: 0.5}); x != want {
		t.Errorf("%+v, want %+v", x, want)
	}
}

func TestSampleOfNothing(t *testing.T) {
	s := newSampler(t.TempDir())
	x := s.Sample()
	x.At = time.Time{}
	if x != (Sample{}) {
		t.Errorf("from an empty folder: %+v", x)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkSample(b *testing.B) {
	s := NewSampler()
	for b.Loop() {
		s.Sample()
	}
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}
