//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snug-ml/snug/dist"
)

// standIn is the source of an MPI library of one process. It takes the handler of SIGSEGV when it is loaded
// and when it is begun, and stops at a handle that is not of the interface it is built for.
const standIn = `
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static void handler(int s) { (void)s; abort(); }
static void take(void) { signal(SIGSEGV, handler); signal(SIGUSR1, handler); }
__attribute__((constructor)) static void loaded(void) { take(); }
#ifdef MAJOR
int MPI_Abi_get_version(int *major, int *minor) { *major = MAJOR; *minor = MINOR; return 0; }
#endif
static int check(HANDLE have, HANDLE want) { if (have != want) abort(); return 0; }
int MPI_Init_thread(int *argc, char ***argv, int want, int *have) {
	if (argc || argv || want != FUNNELED) abort();
	take();
	*have = want;
	return 0;
}
int MPI_Finalize(void) { return 0; }
int MPI_Comm_size(HANDLE c, int *n) { check(c, WORLD); *n = 1; return 0; }
int MPI_Comm_rank(HANDLE c, int *r) { check(c, WORLD); *r = 0; return 0; }
int MPI_Comm_set_errhandler(HANDLE c, HANDLE h) { check(c, WORLD); check(h, RETURN); return 0; }
int MPI_Isend(const void *b, int n, HANDLE t, int to, int tag, HANDLE c, HANDLE *r) {
	check(t, BYTES); check(c, WORLD);
	if (to != 0 || tag != 0 || n != 5 || memcmp(b, "hello", 5)) abort();
	*r = (HANDLE)7;
	return 0;
}
int MPI_Irecv(void *b, int n, HANDLE t, int from, int tag, HANDLE c, HANDLE *r) { return 42; }
int MPI_Test(HANDLE *r, int *flag, void *status) {
	check(*r, (HANDLE)7);
	if (status != (void *)IGNORE) abort();
	*flag = 1;
	return 0;
}
int MPI_Error_string(int code, char *text, int *n) { strcpy(text, "the answer"); *n = code == 42 ? 10 : 0; return 0; }
int MPI_Get_library_version(char *text, int *n) { strcpy(text, "Stand-in Version:   1.0, for tests\nand more"); *n = strlen(text); return 0; }
`

// build compiles the stand-in with definitions.
func build(t *testing.T, definitions ...string) string {
	t.Helper()
	var compiler string
	for _, name := range []string{"cc", "gcc", "clang", "clang-19"} {
		if path, err := exec.LookPath(name); err == nil {
			compiler = path
			break
		}
	}
	if compiler == "" {
		t.Skip("no C compiler is installed")
	}
	dir := t.TempDir()
	source, lib := filepath.Join(dir, "mpi.c"), filepath.Join(dir, "libmpi.so")
	if err := os.WriteFile(source, []byte(standIn), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-shared", "-fPIC", "-o", lib, source}
	for _, d := range definitions {
		args = append(args, "-D"+d)
	}
	if b, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return lib
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

// All that is exchanged by any number of ranks has room in the memory that is planned for it.
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
