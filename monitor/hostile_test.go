package monitor

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/train"
)

// document is the snapshot as JSON, which every snapshot has.
func document(t *testing.T, s *Snapshot) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A file of 2 GB of garbage instead of samples costs as much as a file of the normal
// maximum size, and the monitor says which file it is and where.
func TestGarbageInPlaceOfSamples(t *testing.T) {
	f := newFolder(t)
	f.about("")
	f.updates(1, 3)
	f.sample(time.Second, 1, "")
	f.write(SamplesFile, strings.Repeat("{\"time\":\x00garbage\n[[[[\n", 100_000))
	if err := os.Truncate(filepath.Join(f.dir, SamplesFile), 2<<30); err != nil { // a sparse file: zeros
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := f.open()
	runtime.ReadMemStats(&after)
	if r.samples.offset > maxSamplesFile || after.TotalAlloc-before.TotalAlloc > 512<<20 {
		t.Errorf("%d bytes were read, %d allocated", r.samples.offset, after.TotalAlloc-before.TotalAlloc)
	}
	s := r.Snapshot(start.Add(3*time.Second), View{Width: 100})
	want := "samples.jsonl: 200000 lines are damaged, and left out; the first is line 2; it has 2147483648 bytes, of which the first 16777216 are read"
	if len(s.Problems) != 1 || s.Problems[0] != want {
		t.Errorf("%q\nwant %q", s.Problems, want)
	}
	if s.Update != 3 || s.Sample == nil {
		t.Errorf("update %d, sample %v", s.Update, s.Sample)
	}
	document(t, s)
	if poll(t, r) {
		t.Error("news where nothing was written")
	}
}

// What a run says about itself may have the wrong type: that is reported as long as it is
// the case, and the rest is shown.
func TestInfoOfWrongTypes(t *testing.T) {
	f := newFolder(t)
	f.updates(1, 3)
	f.replace(InfoFile, `{"system":"refocused","updates":"many","plan":[]}`)
	r := f.open()
	for range 2 {
		poll(t, r)
		s := r.Snapshot(start.Add(3*time.Second), View{})
		if s.Update != 3 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "run.json: updates is of the wrong type (string, want int64; byte ") {
			t.Errorf("update %d, %q", s.Update, s.Problems)
		}
	}
	f.replace(InfoFile, `{"system":`)
	poll(t, r)
	if s := r.Snapshot(start, View{}); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "run.json: it is no JSON document (byte 10") {
		t.Errorf("%q", s.Problems)
	}
	f.about("")
	poll(t, r)
	if s := r.Snapshot(start, View{}); s.Problems != nil || s.Updates != 1000 {
		t.Errorf("%d updates, %q", s.Updates, s.Problems)
	}
}

// Extreme numbers, and numbers that no run writes: losses may be anything, counts and
// times may not.
func TestNumbersOfNoRun(t *testing.T) {
	f := newFolder(t)
	f.about("")
	var bad int
	for i, text := range []string{
		`"update":1,"loss":1e308,"time":1795000001`,
		`"update":2,"loss":-1e308,"grad_norm":1e308,"learning_rate":-1e308,"time":1795000002`,
		`"update":-3,"loss":1`,
		`"update":3,"loss":1,"time":1e308`,
		`"update":3,"loss":1,"time":-1`,
		`"update":9000000000000000000,"loss":1`,
		`"update":3`,
		`"update":3,"loss":1,"seconds":-1e300`,
		`"update":3,"loss":1,"since":{"updates":1,"seconds":1e300,"wait_seconds":0,"tokens":1}`,
		`"update":3,"loss":1,"since":{"updates":-1,"seconds":1,"wait_seconds":0,"tokens":1}`,
		`"update":3,"loss":"NaN","loss_z":"+Inf","grad_norm":"-Inf","time":1795000003`,
	} {
		f.write(train.MetricsFile, `{"event":"update",`+text+"}\n")
		if i > 1 && i < 10 {
			bad++
		}
	}
	f.write(SamplesFile, `{"time":1e300,"update":1}`+"\n"+`{"time":1795000001,"update":1,"rss_bytes":-5}`+"\n"+`{"time":1795000002,"update":3,"machine_cpu_percent":1e308}`+"\n")
	f.write(LogFile, `{"time":1e300,"level":"info","text":"x"}`+"\n")
	r := f.open()
	s := r.Snapshot(at(1795000004), View{Width: 10})
	document(t, s)
	if x := series(s, "loss"); len(x.X) != 3 || x.Y[0] != 1e308 || x.Y[1] != -1e308 || !math.IsNaN(float64(x.Y[2])) {
		t.Errorf("%+v", x)
	}
	for _, want := range []string{fmt.Sprintf("metrics.jsonl: %d lines are damaged, and left out; the first is line 3", bad), "samples.jsonl: 2 lines are damaged", "log.jsonl: line 1 is damaged"} {
		if !strings.Contains(strings.Join(s.Problems, "\n"), want) {
			t.Errorf("%q\nwant %q", s.Problems, want)
		}
	}
	if s.Latest.Skipped != 0 || len(r.machine) != 1 {
		t.Errorf("%d skipped, %d samples", s.Latest.Skipped, len(r.machine))
	}
}

// Overlong lines that are not lines of a run.
func TestLongLine(t *testing.T) {
	f := newFolder(t)
	f.updates(1, 2)
	f.write(train.MetricsFile, strings.Repeat("x", 3*tailChunk)+"\n")
	f.updates(3, 4)
	r := f.open()
	s := r.Snapshot(start, View{})
	if s.Update != 4 || len(s.Problems) != 1 || s.Problems[0] != "metrics.jsonl: line 3 is damaged, and left out" {
		t.Errorf("update %d, %q", s.Update, s.Problems)
	}
}

// A run that names a process that does not exist on this machine counts as dead once it
// is silent; if it goes on writing, its process is elsewhere, as in a container.
func TestProcessIsGone(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	const pid = 1<<22 + 1 // higher than Linux assigns
	now := time.Now()
	about := func(pid int) string {
		return fmt.Sprintf(`{"host":%q,"pid":%d,"updates":9,"started":%q}`, host, pid, now.Add(-time.Minute).UTC().Format(time.RFC3339))
	}
	f := newFolder(t)
	f.replace(InfoFile, about(pid))
	f.write(train.MetricsFile, fmt.Sprintf(`{"event":"update","update":1,"loss":1,"time":%d}`+"\n", now.Unix()-20))
	state := func(r *Run, want State, why string) {
		t.Helper()
		if s := r.Snapshot(now, View{}); s.State != want || s.Why != why {
			t.Errorf("%s: %q, want %s: %q", s.State, s.Why, want, why)
		}
	}
	r := f.open()
	state(r, Died, fmt.Sprintf("process %d is gone, and did not say why", pid))
	f.write(SamplesFile, fmt.Sprintf(`{"time":%d,"update":1}`+"\n", now.Unix()))
	poll(t, r)
	state(r, Running, "")
	f.replace(InfoFile, about(os.Getpid()))
	if err := os.Remove(filepath.Join(f.dir, SamplesFile)); err != nil {
		t.Fatal(err)
	}
	state(f.open(), Running, "")
}
