//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"strings"
	"syscall"
	"testing"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// build compiles the stand-in with definitions.
func build(t *testing.T, definitions ...string) string {
	t.Helper()
	return dynlibtest.Build(t, "libmpi.so", "testdata/mpi.c", definitions...)
}

func TestInterfaces(t *testing.T) {
	standardABI := []string{"HANDLE=void*", "FUNNELED=1024", "WORLD=(void*)0x101", "RETURN=(void*)0x143", "BYTES=(void*)0x247", "IGNORE=0"}
	mpichABI := []string{"HANDLE=int", "FUNNELED=1", "WORLD=0x44000000", "RETURN=0x54000001", "BYTES=0x4c00010d", "IGNORE=1"}
	for _, c := range []struct {
		name, abi   string
		definitions []string
	}{
		{"standard", "MPI 5", append(standardABI, "MAJOR=1", "MINOR=0")},
		{"MPICH 5", "MPICH", append(mpichABI, "MAJOR=-1", "MINOR=-1")},
		{"MPICH 4", "MPICH", mpichABI},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after action
			sigaction(int(syscall.SIGSEGV), nil, &before)
			l, err := load(build(t, c.definitions...))
			if err != nil {
				t.Fatal(err)
			}
			if l.ABI != c.abi || l.Version != "Stand-in 1.0" {
				t.Errorf("%q with the interface of %s, want %s", l.Version, l.ABI, c.abi)
			}
			if err := l.begin(); err != nil {
				t.Error(err)
			}
			if sigaction(int(syscall.SIGSEGV), nil, &after); before != after {
				t.Error("the handler of SIGSEGV has changed")
			}
			if rank, size, err := l.place(); rank != 0 || size != 1 || err != nil {
				t.Errorf("rank %d of %d, %v", rank, size, err)
			}
			var r request
			if err := l.send(&r, 0, []byte("hello")); err != nil {
				t.Error(err)
			}
			if done, err := l.done(&r); !done || err != nil {
				t.Errorf("done: %v, %v", done, err)
			}
			if err := l.receive(&r, 0, make([]byte, 5)); err == nil || !strings.Contains(err.Error(), "MPI_Irecv of Stand-in 1.0: error 42: the answer") {
				t.Errorf("receive: %v", err)
			}
		})
	}
	if _, err := load(build(t, append(standardABI, "MAJOR=2", "MINOR=1")...)); err == nil || !strings.Contains(err.Error(), "version 2.1 of the standard interface: 1 is known") {
		t.Errorf("a later standard: %v", err)
	}
}

func TestWhatIsNoLibraryIsRefused(t *testing.T) {
	if _, err := load("libc.so.6"); err == nil || !strings.Contains(err.Error(), "libc.so.6 is no MPI library") {
		t.Error(err)
	}
	if _, err := Find("/none/libmpi.so"); err == nil || !strings.Contains(err.Error(), "no MPI library can be loaded: /none/libmpi.so") {
		t.Error(err)
	}
}

// The launcher's own library comes first.
func TestUsualNames(t *testing.T) {
	for variable, want := range map[string]string{"OMPI_COMM_WORLD_SIZE": "libmpi.so.40", "PMIX_RANK": "libmpi.so.40", "PMI_SIZE": "libmpich.so.12"} {
		if got := usual(func(name string) string { return map[string]string{variable: "2"}[name] })[0]; got != want {
			t.Errorf("%s: %s, want %s", variable, got, want)
		}
	}
	if err := Launched(func(string) string { return "" }); err == nil {
		t.Error("a process that nothing launched is accepted")
	}
}

// Whatever any number of ranks exchange fits in the memory planned for it.
func TestStaging(t *testing.T) {
	for world := 1; world < 2000; world++ {
		size := slotBytes(world)
		if size < leastSlotBytes || size > mostSlotBytes || size <= dist.HeaderBytes || world > 1 && size > leastSlotBytes && StagingBytes(world) > mostStaged {
			t.Fatalf("%d ranks: slots of %d bytes, %d in all", world, size, StagingBytes(world))
		}
	}
	if StagingBytes(1) != 0 {
		t.Error("one rank stages")
	}
}
