//go:build unix

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// tanhs is a program of one kernel, which has so many steps.
func tanhs(t testing.TB, n int) *engine.Program {
	t.Helper()
	b := graph.NewBuilder("f")
	x := b.Input("x", graph.T(graph.F32, 64))
	y := x
	for range n {
		y = b.Tanh(b.Add(x, y))
	}
	b.Output("y", y)
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// process is one that loads programs on a card of its own.
type process struct {
	*fakegpu.Driver
	*Backend
	notes []string
}

func newProcess(t testing.TB, card driver.Card, keep Assembled) *process {
	t.Helper()
	p := &process{Driver: &fakegpu.Driver{Installed: []driver.Card{card}}}
	ctx, err := p.Driver.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	if p.Backend, err = New(ctx); err != nil {
		t.Fatal(err)
	}
	keep.Note = func(text string) { p.notes = append(p.notes, text) }
	p.KeepAssembled(keep)
	t.Cleanup(func() {
		if err := errors.Join(ctx.Close(), p.Left()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// run runs a program once, and returns its output and how often it was assembled.
func (p *process) run(t testing.TB, program *engine.Program) (out []byte, assembled int) {
	t.Helper()
	before := p.Driver.Assembled
	x, err := p.Load(program)
	if err != nil {
		t.Fatal(err)
	}
	in := x.Input(0)
	for i := range in {
		in[i] = byte(i%7) * 9
	}
	if err := errors.Join(x.Run("f", 0), x.Sync()); err != nil {
		t.Fatal(err)
	}
	out = bytes.Clone(x.Outputs())
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	return out, p.Driver.Assembled - before
}

// only is the one cubin in a folder.
func only(t testing.TB, folder string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(list) != 1 || !strings.HasPrefix(filepath.Base(list[0]), cubinPrefix) {
		t.Fatalf("%v, %v: want one cubin", list, err)
	}
	return list[0]
}

// What was assembled once is loaded from then on, by any process, and computes the same.
// Another program, driver or kind of card has a cubin of its own.
func TestAssembledOnce(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "not", "there")
	first, second := tanhs(t, 1), tanhs(t, 2)
	keep := Assembled{Folder: folder, Driver: "12040 550.54"}
	want, n := newProcess(t, fakegpu.T4, Assembled{}).run(t, first)
	if n != 1 {
		t.Fatalf("without a folder it is assembled %d times", n)
	}
	newer := keep
	newer.Driver = "12040 550.90"
	for i, c := range []struct {
		card    driver.Card
		keep    Assembled
		program *engine.Program
		n       int
	}{
		{fakegpu.T4, keep, first, 1},
		{fakegpu.T4, keep, first, 0},
		{fakegpu.T4, keep, second, 1},
		{fakegpu.T4, newer, first, 1},
		{fakegpu.A10, keep, first, 1},
		{fakegpu.T4, keep, first, 0},
		{fakegpu.T4, newer, first, 0},
	} {
		p := newProcess(t, c.card, c.keep)
		out, n := p.run(t, c.program)
		if n != c.n || len(p.notes) > 0 || c.program == first && c.card == fakegpu.T4 && !bytes.Equal(out, want) {
			t.Errorf("%d: assembled %d times, want %d; same bits: %v; %q", i, n, c.n, bytes.Equal(out, want), p.notes)
		}
	}
	if n, size, err := CountAssembled(folder); n != 4 || size == 0 || err != nil {
		t.Errorf("%d cubins of %d bytes are kept, %v; want 4", n, size, err)
	}
}

// A file that is not what was kept never reaches the driver: it is named in one line, and
// another takes its place.
func TestCubinsThatAreNotUsed(t *testing.T) {
	program := tanhs(t, 1)
	folder := t.TempDir()
	keep := Assembled{Folder: folder, Driver: "1"}
	want, _ := newProcess(t, fakegpu.T4, keep).run(t, program)
	path := only(t, folder)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	otherFolder := t.TempDir()
	newProcess(t, fakegpu.T4, Assembled{Folder: otherFolder, Driver: "1"}).run(t, tanhs(t, 2))
	other, err := os.ReadFile(only(t, otherFolder))
	if err != nil {
		t.Fatal(err)
	}
	type bad struct {
		put  func() error
		want string
	}
	content := func(b []byte) func() error {
		return func() error { return os.WriteFile(path, b, 0o600) }
	}
	flipped := func(at int) func() error {
		b := bytes.Clone(good)
		b[at] ^= 4
		return content(b)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	cases := map[string]bad{
		"empty":                 {content(nil), "does not begin as such a file does"},
		"header cut":            {content(good[:cubinHeader-1]), "does not begin as such a file does"},
		"cubin gone":            {content(good[:cubinHeader]), "damaged"},
		"end cut":               {content(good[:len(good)-1]), "damaged"},
		"longer":                {content(append(bytes.Clone(good), 0)), "damaged"},
		"bit of the mark":       {flipped(3), "does not begin as such a file does"},
		"bit of the key":        {flipped(len(cubinMark)), "other kernels"},
		"bit of the hash":       {flipped(len(cubinMark) + 80), "damaged"},
		"first bit":             {flipped(cubinHeader), "damaged"},
		"last bit":              {flipped(len(good) - 1), "damaged"},
		"another program's":     {content(other), "other kernels"},
		"nothing of snug's":     {content(bytes.Repeat([]byte("x"), 1000)), "does not begin as such a file does"},
		"link to a good one":    {func() error { return errors.Join(os.WriteFile(outside, good, 0o600), os.Symlink(outside, path)) }, "a symbolic link"},
		"link to nothing":       {func() error { return os.Symlink(outside+"2", path) }, "a symbolic link"},
		"pipe nobody writes to": {func() error { return syscall.Mkfifo(path, 0o600) }, "a pipe"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.RemoveAll(path), c.put()); err != nil {
				t.Fatal(err)
			}
			p := newProcess(t, fakegpu.T4, keep)
			out, n := p.run(t, program)
			if n != 1 || !bytes.Equal(out, want) {
				t.Errorf("assembled %d times; same bits: %v", n, bytes.Equal(out, want))
			}
			if len(p.notes) != 1 || !strings.Contains(p.notes[0], c.want) || !strings.Contains(p.notes[0], path) || strings.Contains(p.notes[0], "\n") {
				t.Errorf("said %q, want one line with %q", p.notes, c.want)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
				t.Errorf("a good cubin did not take its place: %v", err)
			}
			if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
	if b, err := os.ReadFile(outside); err != nil || !bytes.Equal(b, good) {
		t.Errorf("what the link led to was changed: %v", err)
	}
}

// A cubin that the driver refuses is assembled anew; any other failure is one.
func TestCubinsThatTheDriverRefuses(t *testing.T) {
	program := tanhs(t, 1)
	keep := Assembled{Folder: t.TempDir()}
	newProcess(t, fakegpu.T4, keep).run(t, program)
	for _, code := range []driver.Code{driver.InvalidImage, driver.NoBinaryForGPU, driver.InvalidPTX} {
		p := newProcess(t, fakegpu.T4, keep)
		calls := 0
		p.Fail = func(call string) driver.Code {
			if call == "cuModuleLoadDataEx" {
				if calls++; calls == 1 {
					return code
				}
			}
			return 0
		}
		if _, n := p.run(t, program); n != 1 || len(p.notes) != 1 || !strings.Contains(p.notes[0], code.Meaning()) {
			t.Errorf("%d: assembled %d times, said %q", code, n, p.notes)
		}
	}
	p := newProcess(t, fakegpu.T4, keep)
	p.Fail = func(call string) driver.Code {
		if call == "cuModuleLoadDataEx" {
			return driver.OutOfMemory
		}
		return 0
	}
	var e *driver.Error
	if _, err := p.Load(program); !errors.As(err, &e) || e.Code != driver.OutOfMemory || p.Driver.Assembled != 0 {
		t.Error(err)
	}
}

// A folder that cannot be written costs a line.
func TestCubinsThatCannotBeKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	locked := filepath.Join(t.TempDir(), "locked")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Mkdir(locked, 0o555)); err != nil {
		t.Fatal(err)
	}
	full := func(_ *os.Root, name string, _ []byte) error {
		return &fs.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	}
	for name, c := range map[string]struct {
		keep Assembled
		want string
	}{
		"full disk":        {Assembled{Folder: t.TempDir(), write: full}, "no space left on device"},
		"file for folder":  {Assembled{Folder: file}, "not a directory"},
		"below a file":     {Assembled{Folder: filepath.Join(file, "snug")}, "not a directory"},
		"read only":        {Assembled{Folder: locked}, "permission denied"},
		"larger than all":  {Assembled{Folder: t.TempDir(), Bound: 100}, "larger than the 100 B that all may take"},
		"folder in place":  {},
		"no folder at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "read only":
				if os.Geteuid() == 0 {
					t.Skip("root writes anywhere")
				}
			case "folder in place":
				c.keep.Folder = t.TempDir()
				newProcess(t, fakegpu.T4, c.keep).run(t, tanhs(t, 1))
				path := only(t, c.keep.Folder)
				if err := errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "full"), 0o700)); err != nil {
					t.Fatal(err)
				}
			}
			p := newProcess(t, fakegpu.T4, c.keep)
			for _, steps := range []int{1, 2, 1} {
				if _, n := p.run(t, tanhs(t, steps)); n != 1 && name != "folder in place" {
					t.Errorf("assembled %d times", n)
				}
			}
			switch {
			case name == "no folder at all":
				if len(p.notes) > 0 {
					t.Errorf("%q", p.notes)
				}
			case name == "folder in place":
				if len(p.notes) != 2 || !strings.Contains(p.notes[0], "a folder") || !strings.Contains(p.notes[1], "are not kept there") {
					t.Errorf("%q", p.notes)
				}
			case len(p.notes) != 1 || !strings.Contains(p.notes[0], c.want) || !strings.Contains(p.notes[0], c.keep.Folder):
				t.Errorf("%q, want one line with %q", p.notes, c.want)
			}
			if c.keep.write != nil || c.keep.Bound != 0 {
				if list, err := os.ReadDir(c.keep.Folder); err != nil || len(list) > 0 {
					t.Errorf("left %v, %v", list, err)
				}
			}
		})
	}
}

// Where all cubins would take more than they may, those go that were not used for longest,
// and nothing else in the folder.
func TestOldestCubinsGo(t *testing.T) {
	folder := t.TempDir()
	keep := Assembled{Folder: folder}
	path := map[int]string{}
	ago := func(steps int, hours int) {
		t.Helper()
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		if err := os.Chtimes(path[steps], at, at); err != nil {
			t.Fatal(err)
		}
	}
	sizes := map[int]int64{}
	elsewhere := t.TempDir()
	newProcess(t, fakegpu.T4, Assembled{Folder: elsewhere}).run(t, tanhs(t, 5))
	st, err := os.Stat(only(t, elsewhere))
	if err != nil {
		t.Fatal(err)
	}
	sizes[5] = st.Size()
	for i, steps := range []int{1, 2, 3, 4} {
		newProcess(t, fakegpu.T4, keep).run(t, tanhs(t, steps))
		list, err := filepath.Glob(filepath.Join(folder, "kernels-*"))
		if err != nil || len(list) != i+1 {
			t.Fatal(list, err)
		}
		for _, f := range list {
			known := false
			for _, p := range path {
				known = known || p == f
			}
			if !known {
				path[steps] = f
			}
		}
		st, err := os.Stat(path[steps])
		if err != nil {
			t.Fatal(err)
		}
		sizes[steps] = st.Size()
		ago(steps, 10-i)
	}
	others := []string{"matmuls-1.json", "kernels-x.txt", "x.cubin"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(folder, name), make([]byte, 2*sizes[5]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The oldest is used, which makes it the newest.
	if _, n := newProcess(t, fakegpu.T4, keep).run(t, tanhs(t, 1)); n != 0 {
		t.Fatal("it was assembled")
	}
	ago(2, 24)
	keep.Bound = sizes[1] + sizes[4] + sizes[5]
	p := newProcess(t, fakegpu.T4, keep)
	p.run(t, tanhs(t, 5))
	for steps, want := range map[int]bool{1: true, 2: false, 3: false, 4: true} {
		if _, err := os.Stat(path[steps]); (err == nil) != want {
			t.Errorf("steps %d is kept: %v, want %v", steps, err == nil, want)
		}
	}
	for _, name := range others {
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Error(err)
		}
	}
	if _, n := newProcess(t, fakegpu.T4, keep).run(t, tanhs(t, 5)); n != 0 || len(p.notes) > 0 {
		t.Errorf("the newest was assembled %d times again; %q", n, p.notes)
	}
}

// Processes that share a folder with room for hardly any cubin remove each other's, and none
// notices.
func TestProcessesShareCubins(t *testing.T) {
	folder := t.TempDir()
	var programs []*engine.Program
	for i := range 4 {
		programs = append(programs, tanhs(t, 1+i))
	}
	newProcess(t, fakegpu.T4, Assembled{Folder: folder}).run(t, programs[3])
	st, err := os.Stat(only(t, folder))
	if err != nil {
		t.Fatal(err)
	}
	keep := Assembled{Folder: folder, Bound: 2 * st.Size()} // the largest's
	var all sync.WaitGroup
	for i := range 4 {
		p := newProcess(t, fakegpu.T4, keep)
		all.Go(func() {
			for j := range 12 {
				x, err := p.Load(programs[(i+j)%len(programs)])
				if err != nil {
					t.Error(err)
					return
				}
				if err := x.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(p.notes) > 0 {
				t.Errorf("%q", p.notes)
			}
		})
	}
	all.Wait()
	// The last to write saw what the others had written by then.
	if n, size, err := CountAssembled(folder); n == 0 || size > keep.Bound || err != nil {
		t.Errorf("%d cubins of %d bytes, %v; at most %d", n, size, err, keep.Bound)
	}
}

// What the assembler refuses comes with what it says, and is not kept.
func TestRefusedKernels(t *testing.T) {
	folder := t.TempDir()
	p := newProcess(t, fakegpu.T4, Assembled{Folder: folder})
	_, err := p.kernels(".version 7.0\n.target sm_75\n.address_size 64\n\n.visible .entry k()\n{\n\tbad.f32 %f1;\n\tret;\n}\n")
	var e *driver.Error
	if !errors.As(err, &e) || e.Call != "cuLinkAddData" || e.Log == "" || !strings.Contains(fmt.Sprint(err), e.Log) || !strings.Contains(e.Log, "bad") {
		t.Errorf("%v", err)
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
		t.Errorf("kept %v, %v", list, err)
	}
}
