package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
	"pgregory.net/rapid"
)

// memory is a Live: a program that trains. An update changes tensor after tensor, each
// once the guard has let it.
type memory struct {
	tensors []Tensor
	data    map[string][]byte
	guard   func([]string) error
	updates uint64
}

// newMemory makes tensors of the given types that hold update n.
func newMemory(n uint64, tensors ...Tensor) *memory {
	m := &memory{tensors: tensors, data: map[string][]byte{}, updates: n}
	for _, t := range tensors {
		m.data[t.Name] = m.content(t, n)
	}
	return m
}

// content is what a tensor holds after an update, finite as float32.
func (m *memory) content(t Tensor, update uint64) []byte {
	data := make([]byte, t.bytes())
	if t.Name == "gradient" {
		return data
	}
	block := make([]byte, 4096)
	r := rand.New(rand.NewPCG(update, uint64(len(t.Name))))
	for i := range block {
		block[i] = byte(r.Uint32())
		if i%4 == 3 {
			block[i] = 0x3f
		}
	}
	for at := 0; at < len(data); at += len(block) {
		copy(data[at:], block)
		data[at] = byte(at >> 12)
	}
	return data
}

func (m *memory) Guard(before func([]string) error) { m.guard = before }

func (m *memory) Peek(name string, from int64, dst []byte) error {
	copy(dst, m.data[name][from:])
	return nil
}

// update changes every tensor.
func (m *memory) update() error {
	m.updates++
	for _, t := range m.tensors {
		if m.guard != nil {
			if err := m.guard([]string{t.Name}); err != nil {
				return err
			}
		}
		copy(m.data[t.Name], m.content(t, m.updates))
	}
	return nil
}

// snapshot is what a save after the update takes.
func (m *memory) snapshot() *Snapshot {
	return &Snapshot{Live: m, Weights: m.tensors[:1], Optimizer: m.tensors[1:], State: State{Update: int64(m.updates)}}
}

// mustHold fails unless each checkpoint has its update's tensors.
func (m *memory) mustHold(t *testing.T, dir string, want ...int64) {
	t.Helper()
	got := updates(t, dir)
	if !slices.Equal(got, want) {
		t.Errorf("saved are %v, want %v", got, want)
	}
	for _, u := range got {
		path := filepath.Join(dir, "checkpoints", stepName(u))
		if report, err := Verify(path); err != nil || report.Err() != nil {
			t.Errorf("%v %v", err, report.Err())
		}
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range m.tensors {
			file := c.Optimizer
			if x.Name == m.tensors[0].Name {
				file = c.Weights
			}
			got, err := file.Tensor(x.Name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Data, m.content(x, uint64(u))) {
				t.Errorf("update %d: tensor %s is not that of the update", u, x.Name)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func f32(name string, n int) Tensor {
	return Tensor{Name: name, DType: safetensors.F32, Shape: []int{n}}
}

// What fits into the staging buffer holds no update up, however slow the disk is.
func TestLiveTensorsAreStaged(t *testing.T) {
	gate := make(chan struct{})
	dir := t.TempDir()
	s := open(t, dir, Options{fsys: &gatedFS{fsys: osFS{}, gate: gate}})
	m := newMemory(3, f32("w", pieceBytes/2+5), f32("m", 7), f32("gradient", pieceBytes))
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // while nothing was written
		if err := m.update(); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.mustHold(t, dir, 3)
	if s.Held() <= 0 {
		t.Error("staging took no time")
	}
	if err := s.Save(context.Background(), m.snapshot()); err != nil {
		t.Fatal(err)
	}
	m.mustHold(t, dir, 3, 6)
}

// A larger model holds the update up until the writer has read what does not fit, and the
// buffer stays within its bound. Gradients between two updates take no room.
func TestUpdateWaitsForTheWriter(t *testing.T) {
	gate := make(chan struct{})
	dir := t.TempDir()
	s := open(t, dir, Options{fsys: &gatedFS{fsys: osFS{}, gate: gate}})
	m := newMemory(1, f32("gradient", maxStaging/4), f32("w", maxStaging/4), f32("m", maxStaging/8), f32("v", 3))
	m.tensors[0], m.tensors[1] = m.tensors[1], m.tensors[0]
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	updated := make(chan error, 1)
	go func() { updated <- m.update() }()
	c := s.job.capture // SaveAsync has set it; the gate keeps it there
	waits := func() {
		select {
		case err := <-updated: // also once the save has failed
			t.Fatalf("the update did not wait (%v); the save: %+v", err, s.Status())
		default:
		}
	}
	for full := false; !full; waits() {
		c.mu.Lock()
		full = len(s.staging.free) == 0
		c.mu.Unlock()
	}
	close(gate)
	if err := <-updated; err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.mustHold(t, dir, 1)
	if got, most := len(s.staging.memory), maxStaging+pieceBytes; got > most {
		t.Errorf("%d bytes are staged, at most %d may be", got, most)
	}
}

// tornFS fails in the middle of the file of weights, as a disk that becomes full does.
type tornFS struct {
	fsys
	mu   sync.Mutex
	left int // bytes that can be written; negative: no limit
}

func (f *tornFS) Create(path string) (syncWriter, error) {
	w, err := f.fsys.Create(path)
	return &tornFile{w, f}, err
}

type tornFile struct {
	syncWriter
	fs *tornFS
}

func (f *tornFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.left < 0 {
		return f.syncWriter.Write(p)
	}
	n, err := f.syncWriter.Write(p[:min(len(p), f.fs.left)])
	if f.fs.left -= n; err == nil && n < len(p) {
		err = &os.PathError{Op: "write", Path: "disk", Err: syscall.ENOSPC}
	}
	return n, err
}

// A save that fails in its middle leaves nothing behind and holds nobody up. Its state is
// gone with the next update, and the next attempt is a later state, which is asked for.
func TestFailedSaveIsFollowedByALaterState(t *testing.T) {
	disk := &tornFS{fsys: osFS{}, left: 3 * pieceBytes / 2}
	retry := make(chan struct{}, 9)
	dir := t.TempDir()
	s := open(t, dir, Options{fsys: disk, OnEvent: func(e Event) {
		if e.Kind == Retry {
			retry <- struct{}{}
		}
	}})
	m := newMemory(1, f32("w", pieceBytes), f32("m", pieceBytes))
	if err := m.update(); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := m.update(); err != nil { // before the attempt, during it or after: it does not matter
		t.Fatal(err)
	}
	<-retry
	if err := m.update(); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(s.Dir()); err != nil || len(list) != 0 {
		t.Errorf("left behind: %v %v", list, err)
	}
	for !s.Wants() {
		if err := m.update(); err != nil {
			t.Fatal(err)
		}
	}
	disk.mu.Lock()
	disk.left = -1
	disk.mu.Unlock()
	at := int64(m.updates)
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	if s.Wants() {
		t.Error("it is asked for again")
	}
	if err := m.update(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.mustHold(t, dir, at)
	if st := s.Status(); st.Attempt != 2 || st.Retries != 1 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
}

// Attempted returns when an attempt is over, whether it has succeeded or failed; of a save that
// follows a failed one it waits for the attempt, not for the pause before.
func TestAttempted(t *testing.T) {
	disk := &tornFS{fsys: osFS{}, left: 3 * pieceBytes / 2}
	over := make(chan time.Time) // the pause between two attempts
	s := open(t, t.TempDir(), Options{fsys: disk, sleep: func(time.Duration) <-chan time.Time { return over }})
	m := newMemory(1, f32("w", pieceBytes), f32("m", pieceBytes))
	s.Attempted() // there is none
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	s.Attempted()
	if st := s.Status(); !st.Waiting || st.Retries != 1 {
		t.Fatalf("after a failed attempt: %+v", st)
	}
	if err := m.update(); err != nil { // its state is gone
		t.Fatal(err)
	}
	over <- time.Time{}
	for !s.Wants() {
		time.Sleep(time.Millisecond)
	}
	disk.mu.Lock()
	disk.left = -1
	disk.mu.Unlock()
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	s.Attempted()
	if st := s.Status(); st.Writing || st.Saves != 1 || st.Last == "" {
		t.Errorf("after the attempt of a later state: %+v", st)
	}
}

// Whoever waits for a save whose state is gone learns that it failed, and is not kept
// waiting; a state that has not changed is tried again.
func TestFlushOfAStateThatIsGone(t *testing.T) {
	disk := &tornFS{fsys: osFS{}, left: 0}
	dir := t.TempDir()
	s := open(t, dir, Options{fsys: disk})
	m := newMemory(1, f32("w", 9))
	if err := s.SaveAsync(m.snapshot()); err != nil {
		t.Fatal(err)
	}
	if err := m.update(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(context.Background()); err == nil {
		t.Error("nothing was reported")
	}
	disk.mu.Lock()
	disk.left = 1 // the next attempt fails as well, those after do not
	disk.mu.Unlock()
	s.opts.OnEvent = func(e Event) {
		if e.Kind == Retry {
			disk.mu.Lock()
			defer disk.mu.Unlock()
			disk.left = -1
		}
	}
	if err := s.Save(context.Background(), m.snapshot()); err != nil {
		t.Fatal(err)
	}
	m.mustHold(t, dir, 2)
}

// Saves at any moment hold their update, while updates go on without a pause.
func TestSavesAmongUpdates(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{KeepLast: 99})
	m := newMemory(0, f32("w", pieceBytes/4+33), f32("m", 3*pieceBytes/4), f32("v", 3*pieceBytes/4), f32("gradient", 5000), f32("b", 1))
	var want []int64
	for u := range int64(12) {
		if u%3 != 1 {
			if err := s.SaveAsync(m.snapshot()); err != nil {
				t.Fatal(err)
			}
			want = append(want, u)
		}
		if err := m.update(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.mustHold(t, dir, want...)
}

// Room that is taken never overlaps, and all of it is there again once it was given back.
func TestStagingHasRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type taken struct {
			at int64
			n  int
		}
		var s staging
		if err := s.resize(4096 + 64); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.release() }()
		s.reset(64)
		var all []taken
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "take") {
				n := rapid.IntRange(1, 1500).Draw(t, "bytes")
				at, ok := s.take(n)
				if !ok {
					continue
				}
				for _, x := range all {
					if at < x.at+int64(x.n) && x.at < at+int64(n) {
						t.Fatalf("%d bytes at %d overlap %d at %d", n, at, x.n, x.at)
					}
				}
				if at+int64(n) > 4096 {
					t.Fatalf("%d bytes at %d", n, at)
				}
				all = append(all, taken{at, n})
			} else if len(all) > 0 {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				s.give(all[i].at, all[i].n)
				all = slices.Delete(all, i, i+1)
			}
		}
		for _, x := range all {
			s.give(x.at, x.n)
		}
		if want := []span{{0, 4096}}; !slices.Equal(s.free, want) {
			t.Fatal(fmt.Sprint(s.free))
		}
	})
}
