package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

var errCrashed = errors.New("the machine has stopped")

// crashFS passes operations on to the real file system and keeps next to it a model
// of what a disk may hold after power loss: data that was not synced may be there,
// be missing or be torn; entries of a folder that was not synced may each be there
// or not, as POSIX allows. It can stop at a chosen operation and then lets nothing
// through, and it can fail single operations.
type crashFS struct {
	mu    sync.Mutex
	root  string
	node  *inode
	ops   int
	stop  int                             // operations let through; negative: all
	dead  bool                            // it has stopped
	fault func(op int, what string) error // error for this operation, done only in part; may be nil
}

// inode is a file or a folder of the model.
type inode struct {
	entries map[string]*inode // folder: as programs see it
	durable map[string]*inode // folder: as of the last sync
	pending []entryOp         // folder: since then
	data    []byte            // file: as programs see it
	synced  []byte            // file: as of the last sync
}

// entryOp is a change of a folder's entries: to is set to node unless empty,
// from is removed unless empty.
type entryOp struct {
	from, to string
	node     *inode
}

func (o entryOp) apply(m map[string]*inode) {
	delete(m, o.from)
	if o.to != "" {
		m[o.to] = o.node
	}
}

func newDir() *inode { return &inode{entries: map[string]*inode{}, durable: map[string]*inode{}} }

// newCrashFS models the folder root with all that it holds as durable.
func newCrashFS(t testing.TB, root string) *crashFS {
	t.Helper()
	var load func(path string) *inode
	load = func(path string) *inode {
		d := newDir()
		list, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			full := filepath.Join(path, e.Name())
			n := &inode{}
			if e.IsDir() {
				n = load(full)
			} else if n.data, err = os.ReadFile(full); err != nil {
				t.Fatal(err)
			}
			n.synced = n.data
			d.entries[e.Name()], d.durable[e.Name()] = n, n
		}
		return d
	}
	return &crashFS{root: root, node: load(root), stop: -1}
}

// step counts an operation and decides its fate.
func (c *crashFS) step(what string) error {
	if c.stop >= 0 && c.ops >= c.stop {
		c.dead = true
		return errCrashed
	}
	c.ops++
	if c.fault != nil {
		return c.fault(c.ops, what)
	}
	return nil
}

func (c *crashFS) find(path string) *inode {
	rel, err := filepath.Rel(c.root, path)
	if err != nil {
		panic(err)
	}
	n := c.node
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		if part != "." {
			if n = n.entries[part]; n == nil {
				panic("the model lacks " + path)
			}
		}
	}
	return n
}

func (c *crashFS) change(dir string, o entryOp) {
	d := c.find(dir)
	o.apply(d.entries)
	d.pending = append(d.pending, o)
}

func (c *crashFS) Mkdir(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("mkdir"); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		return err
	}
	c.change(filepath.Dir(path), entryOp{to: filepath.Base(path), node: newDir()})
	return nil
}

func (c *crashFS) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("rename"); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	c.change(filepath.Dir(from), entryOp{from: filepath.Base(from), to: filepath.Base(to), node: c.find(from)})
	return nil
}

func (c *crashFS) Remove(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("remove"); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	c.change(filepath.Dir(path), entryOp{from: filepath.Base(path)})
	return nil
}

func (c *crashFS) SyncDir(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("syncdir"); err != nil {
		return err
	}
	d := c.find(path)
	d.durable, d.pending = maps.Clone(d.entries), nil
	return nil
}

func (c *crashFS) Free(path string) (int64, error) { return freeBytes(path) }

func (c *crashFS) Create(path string) (syncWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step("create"); err != nil {
		return nil, err
	}
	f, err := osFS{}.Create(path)
	if err != nil {
		return nil, err
	}
	n := &inode{}
	c.change(filepath.Dir(path), entryOp{to: filepath.Base(path), node: n})
	return &crashFile{c, f, n}, nil
}

type crashFile struct {
	c *crashFS
	f syncWriter
	n *inode
}

func (f *crashFile) Write(p []byte) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	err := f.c.step("write")
	if err != nil {
		p = p[:len(p)/2] // a failing write may have written something
	}
	if errors.Is(err, errCrashed) {
		return 0, err
	}
	n, e := f.f.Write(p)
	f.n.data = append(slices.Clip(f.n.data), p[:n]...)
	if errors.Is(err, errShort) {
		err = nil
	}
	return n, errors.Join(err, e)
}

// errShort makes a write short without an error, against the rules of io.Writer.
var errShort = errors.New("short write")

func (f *crashFile) Sync() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step("fsync"); err != nil {
		return err
	}
	f.n.synced = f.n.data
	return nil
}

func (f *crashFile) Close() error { return f.f.Close() }

// A loss is which of the unsynced changes a crash takes away.
type loss struct {
	name  string
	entry func() bool                     // whether a pending change of a folder survives
	data  func(synced, now []byte) []byte // what a file holds
}

// losses are the extremes and, seeded, mixtures of everything.
func losses(mixtures int) []loss {
	yes, no := func() bool { return true }, func() bool { return false }
	list := []loss{
		{"nothing is lost", yes, func(_, now []byte) []byte { return now }},
		{"all that was not synced", no, func(synced, _ []byte) []byte { return synced }},
		{"only data", yes, func(synced, _ []byte) []byte { return synced }},
		{"only data, length stays", yes, func(synced, now []byte) []byte {
			return append(bytes.Clone(synced), make([]byte, len(now)-len(synced))...)
		}},
		{"only entries", no, func(_, now []byte) []byte { return now }},
	}
	for seed := range mixtures {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		list = append(list, loss{"mixture", func() bool { return r.IntN(2) == 0 }, func(synced, now []byte) []byte {
			tail := bytes.Clone(now[len(synced):])
			tail = tail[:r.IntN(len(tail)+1)]
			if len(tail) > 0 && r.IntN(2) == 0 {
				tail[r.IntN(len(tail))] ^= 0x55
			}
			return append(bytes.Clone(synced), tail...)
		}})
	}
	return list
}

// disk is what is left after a crash now: the content of files by path, and
// nil for folders.
func (c *crashFS) disk(l loss) map[string][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := map[string][]byte{}
	var put func(n *inode, path string)
	put = func(n *inode, path string) {
		if n.entries == nil {
			files[path] = append([]byte{}, l.data(n.synced, n.data)...)
			return
		}
		files[path] = nil
		left := maps.Clone(n.durable)
		for _, o := range n.pending {
			if l.entry() {
				o.apply(left)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(left)) {
			put(left[name], filepath.Join(path, name))
		}
	}
	put(c.node, "")
	return files
}

// digest identifies a disk; most losses at most moments leave the same one.
func digest(files map[string][]byte) string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%q %v %q\n", path, files[path] == nil, files[path])
	}
	return string(h.Sum(nil))
}

// scratch makes a folder, in memory where the system offers that: these tests
// make some hundred thousand small files, and their point is not the disk.
// remove deletes it before the end of the test does.
func scratch(t testing.TB) (dir string, remove func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "snug-checkpoint-")
	if err != nil {
		return t.TempDir(), func() {}
	}
	remove = sync.OnceFunc(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(remove)
	return dir, remove
}

// lay writes a disk into a new folder.
func lay(t testing.TB, files map[string][]byte) (dest string, remove func()) {
	t.Helper()
	dest, remove = scratch(t)
	for _, path := range slices.Sorted(maps.Keys(files)) { // a folder comes before what is in it
		full := filepath.Join(dest, path)
		var err error
		switch {
		case path == "":
		case files[path] == nil:
			err = os.Mkdir(full, 0o700)
		default:
			err = os.WriteFile(full, files[path], 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dest, remove
}

// TestCrashEverywhere stops the machine after each operation of a save in
// several situations, looks at every kind of disk that may be left, and demands the
// old or the new checkpoint, intact; the new one if it had been reported. Then the
// run continues from there.
func TestCrashEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute with the race detector")
	}
	for _, c := range []struct {
		name     string
		prepare  []int64
		from     int64 // ContinuedFrom, unless negative
		save     int64
		old, new int64
	}{
		{"first", nil, -1, 5, -1, 5},
		{"second", []int64{5}, -1, 6, 5, 6},
		{"with retention", []int64{5, 6}, -1, 7, 6, 7},
		{"over itself", []int64{5, 6}, -1, 6, 6, 6},
		{"after going back", []int64{5, 6, 9}, 6, 8, 9, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := map[string]bool{}
			for stop, over := 0, false; !over; stop++ {
				root, remove := scratch(t)
				sim := newCrashFS(t, root)
				reported := false
				s, err := Open(filepath.Join(root, "run"), Options{KeepLast: 2, KeepBest: -1, Attempts: 1, fsys: sim, OnEvent: func(e Event) {
					reported = reported || e.Kind == Saved && !sim.dead // the dead report nothing
				}})
				if err != nil {
					t.Fatal(err)
				}
				save(t, s, c.prepare...)
				if c.from >= 0 {
					s.retained = retained{written: map[string]bool{}, whole: map[string]bool{}}
					s.ContinuedFrom(c.from)
				}
				reported = false
				sim.stop = sim.ops + stop
				// Retention is not part of the result, so its error does not matter.
				_ = s.Save(t.Context(), testSnapshot(c.save))
				over = sim.ops < sim.stop
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				remove()
				for _, l := range losses(6) {
					files := sim.disk(l)
					key := fmt.Sprint(reported, digest(files))
					if seen[key] {
						continue
					}
					seen[key] = true
					dest, remove := lay(t, files)
					run := filepath.Join(dest, "run")
					got, rejected := latest(t, run)
					if got != c.new && (got != c.old || reported) || len(rejected) > 0 {
						t.Fatalf("after %d operations, lost: %s: latest is %d, reported %v, rejected %v", stop, l.name, got, reported, rejected)
					}
					crashInRecovery(t, files, got, seen)
					goOn(t, run, got)
					remove()
				}
				if over && !reported {
					t.Fatal("the save did not end")
				}
			}
		})
	}
}

// crashInRecovery stops Open, too, after each of its operations.
func crashInRecovery(t *testing.T, files map[string][]byte, want int64, seen map[string]bool) {
	t.Helper()
	for stop, over := 0, false; !over; stop++ {
		root, remove := lay(t, files)
		sim := newCrashFS(t, root)
		sim.stop = stop
		s, err := Open(filepath.Join(root, "run"), Options{fsys: sim})
		if over = err == nil; over {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		for _, l := range losses(2) {
			files := sim.disk(l)
			key := fmt.Sprint("recovery", want, digest(files))
			if seen[key] {
				continue
			}
			seen[key] = true
			dest, remove := lay(t, files)
			if got, rejected := latest(t, filepath.Join(dest, "run")); got != want || len(rejected) > 0 {
				t.Fatalf("recovery stopped after %d operations, lost: %s: latest is %d, want %d; rejected %v", stop, l.name, got, want, rejected)
			}
			remove()
		}
	}
}

// goOn opens the run as after a restart and saves once more.
func goOn(t *testing.T, run string, want int64) {
	t.Helper()
	s, err := Open(run, Options{fsys: newCrashFS(t, filepath.Dir(run))}) // for its speed: it does not really sync
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := latest(t, run); got != want {
		t.Fatalf("recovery changed the latest from %d to %d", want, got)
	}
	s.ContinuedFrom(want)
	save(t, s, want+1)
	if got, rejected := latest(t, run); got != want+1 || len(rejected) > 0 {
		t.Fatalf("after the restart: %d, %v", got, rejected)
	}
	list, err := os.ReadDir(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if _, suffix, ok := parseStep(e.Name()); !ok || suffix != "" {
			t.Errorf("recovery left %s behind", e.Name())
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestErrorEverywhere fails each operation of a save once, in each way: the retry
// must complete the save; and then permanently: the old checkpoint must stay and
// nothing half-done but what cannot be removed.
func TestErrorEverywhere(t *testing.T) {
	for _, kind := range []error{syscall.ENOSPC, syscall.EIO, errShort} {
		for op, over := 1, false; !over; op++ {
			for _, forever := range []bool{false, true} {
				root, remove := scratch(t)
				sim := newCrashFS(t, root)
				s := open(t, filepath.Join(root, "run"), Options{KeepLast: 1, KeepBest: -1, Attempts: 3, fsys: sim})
				save(t, s, 1)
				first := sim.ops + op
				hit := ""
				sim.fault = func(n int, what string) error {
					if kind == errShort && what != "write" || n < first || n > first && (!forever || what == "remove") {
						return nil
					}
					hit = what
					return kind
				}
				err := s.Save(t.Context(), testSnapshot(2))
				sim.fault = nil
				got, rejected := latest(t, root+"/run")
				switch {
				case len(rejected) > 0:
					t.Fatalf("%v in operation %d (%s): rejected %v", kind, op, hit, rejected)
				case err == nil && got != 2:
					t.Fatalf("%v in operation %d (%s): saved, but latest is %d", kind, op, hit, got)
				case !forever && err != nil:
					t.Fatalf("%v once in operation %d (%s): %v", kind, op, hit, err)
				case err != nil && got != 1 && got != 2:
					t.Fatalf("%v in operation %d (%s): latest is %d", kind, op, hit, got)
				case err != nil && kind != errShort && !errors.Is(err, kind):
					t.Fatalf("%v in operation %d (%s): told as %v", kind, op, hit, err)
				}
				save(t, s, 3)
				if got, _ := latest(t, root+"/run"); got != 3 {
					t.Fatalf("%v in operation %d (%s): the next save gives %d", kind, op, hit, got)
				}
				remove()
				over = hit == "" && sim.ops < first
			}
		}
	}
}
