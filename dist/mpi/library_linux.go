//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

// File names of libraries, by interface. Open MPI 4 and 5 have the same.
var (
	openMPINames  = []string{"libmpi.so.40"}
	standardNames = []string{"libmpi_abi.so.1", "libmpi_abi.so.0"}
	mpichNames    = []string{"libmpich.so.12", "libmpi.so.12"}
)

// usual returns the names to try, first those that probably belong to this process's launcher: a
// library finds no other process if a launcher of another kind started it.
func usual(getenv func(string) string) []string {
	if getenv("OMPI_COMM_WORLD_SIZE") != "" || getenv("PMIX_RANK") != "" {
		return append(append(append([]string{}, openMPINames...), standardNames...), mpichNames...)
	}
	return append(append(append([]string{}, mpichNames...), standardNames...), openMPINames...)
}

// loaded is the library of this process: it is never unloaded, and MPI cannot be initialized
// twice.
var loaded struct {
	sync.Mutex
	path string
	*library
}

// Find loads a library, the one at path or, if path is empty, the one that probably belongs to
// this process's launcher. It does nothing else with it.
func Find(path string) (*Library, error) {
	l, err := find(path)
	if err != nil {
		return nil, err
	}
	return &l.Library, nil
}

func find(path string) (*library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.library != nil && (path == "" || path == loaded.path) {
		return loaded.library, nil
	}
	if loaded.library != nil {
		return nil, fmt.Errorf("this process uses %v and cannot use %s too", &loaded.Library, path)
	}
	var refused []string
	for _, p := range candidates(path) {
		l, err := load(p)
		if err == nil {
			loaded.path, loaded.library = path, l
			return l, nil
		}
		if path != "" || !dynlib.NotFound(err) {
			refused = append(refused, err.Error())
		}
	}
	if len(refused) > 0 {
		return nil, errors.New("no MPI library can be loaded: " + strings.Join(refused, "; "))
	}
	return nil, fmt.Errorf("no MPI library is installed (none of %s was found): install Open MPI 4 or 5 or MPICH, or give the path of its library", strings.Join(usual(os.Getenv), ", "))
}

// candidates returns the files to try: what the loader finds, and what lies in the installation
// of a launcher that is found, which need not be on the loader's path.
func candidates(path string) []string {
	if path != "" {
		return []string{path}
	}
	names := usual(os.Getenv)
	paths := append([]string{}, names...)
	for _, launcher := range []string{"mpirun", "mpiexec"} {
		file, err := exec.LookPath(launcher)
		if err != nil {
			continue
		}
		for _, lib := range []string{"lib", "lib64"} {
			for _, name := range names {
				p := filepath.Join(filepath.Dir(filepath.Dir(file)), lib, name)
				if _, err := os.Stat(p); err == nil {
					paths = append(paths, p)
				}
			}
		}
	}
	return paths
}

// library is a loaded library: the addresses of its functions, and the values behind the
// names in its header.
type library struct {
	Library
	abi
	initThread, finalize, commSize, commRank, setErrhandler uintptr
	isend, irecv, test, errorString, libraryVersion         uintptr
}

// load loads a library with all functions that are called. Open MPI's plug-ins need its symbols
// to be global.
func load(path string) (l *library, err error) {
	var handle uintptr
	keepSignals(func() { handle, err = dynlib.LoadGlobal(path) })
	if err != nil {
		return nil, err
	}
	l = &library{Library: Library{Path: path}}
	missing := dynlib.Find(handle, map[string]*uintptr{
		"MPI_Init_thread": &l.initThread, "MPI_Finalize": &l.finalize, "MPI_Comm_size": &l.commSize, "MPI_Comm_rank": &l.commRank,
		"MPI_Comm_set_errhandler": &l.setErrhandler, "MPI_Isend": &l.isend, "MPI_Irecv": &l.irecv, "MPI_Test": &l.test,
		"MPI_Error_string": &l.errorString, "MPI_Get_library_version": &l.libraryVersion,
	})
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s is no MPI library of version 3 or later: it has no %s", path, missing[0])
	}
	l.Version = l.version()
	if l.abi, err = abiOf(handle, l.Version); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	l.ABI = l.abi.name
	return l, nil
}

// invoke calls a function; memory that its arguments point to stays where it is meanwhile.
//
//go:uintptrescapes
func invoke(f uintptr, args ...uintptr) (code int32) {
	r, _, _ := purego.SyscallN(f, args...)
	return int32(r)
}

// maxString is more than the longest string of any of the interfaces (8192 bytes).
const maxString = 16 << 10

// failed turns the code that a function returned into an error.
func (l *library) failed(call string, code int32) error {
	if code == 0 {
		return nil
	}
	text, n := make([]byte, maxString), int32(0)
	if invoke(l.errorString, uintptr(uint32(code)), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n))) != 0 {
		n = 0
	}
	return &callError{fmt.Sprintf("%s of %s: error %d: %s", call, l.Version, code, text[:n])}
}

// callError is the error of an MPI call.
type callError struct{ text string }

func (e *callError) Error() string { return e.text }

// version is the first line of the library's version string, up to a comma.
func (l *library) version() string {
	text, n := make([]byte, maxString), int32(0)
	if invoke(l.libraryVersion, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n))) != 0 {
		return "an MPI of unknown version"
	}
	line, _, _ := strings.Cut(strings.TrimRight(string(text[:n]), "\x00"), "\n")
	line, _, _ = strings.Cut(line, ",")
	return strings.Replace(strings.Join(strings.Fields(line), " "), " Version: ", " ", 1)
}

// begin calls MPI_Init_thread, for calls from one thread. From here on errors are
// returned.
func (l *library) begin() (err error) {
	keepSignals(func() {
		var level int32
		err = l.failed("MPI_Init_thread", invoke(l.initThread, 0, 0, l.funneled, uintptr(unsafe.Pointer(&level))))
		if err == nil && uintptr(level) < l.funneled {
			err = fmt.Errorf("%s can be used by programs of one thread alone", l.Version)
		}
	})
	if err != nil {
		return err
	}
	return l.failed("MPI_Comm_set_errhandler", invoke(l.setErrhandler, l.world, l.returnErrors))
}

func (l *library) end() error { return l.failed("MPI_Finalize", invoke(l.finalize)) }

// place returns this process's rank and the number of processes.
func (l *library) place() (rank, size int, err error) {
	var r, n int32
	err = errors.Join(l.failed("MPI_Comm_rank", invoke(l.commRank, l.world, uintptr(unsafe.Pointer(&r)))),
		l.failed("MPI_Comm_size", invoke(l.commSize, l.world, uintptr(unsafe.Pointer(&n)))))
	return int(r), int(n), err
}

// request is a message under way. In MPICH's interface it takes the first four bytes.
type request struct{ handle uintptr }

// send starts sending b, which must stay where it is, unchanged, until the request is
// done.
func (l *library) send(r *request, to int, b []byte) error {
	return l.failed("MPI_Isend", invoke(l.isend, address(b), uintptr(len(b)), l.bytes, uintptr(to), 0, l.world, uintptr(unsafe.Pointer(&r.handle))))
}

// receive starts receiving up to len(b) bytes.
func (l *library) receive(r *request, from int, b []byte) error {
	return l.failed("MPI_Irecv", invoke(l.irecv, address(b), uintptr(len(b)), l.bytes, uintptr(from), 0, l.world, uintptr(unsafe.Pointer(&r.handle))))
}

// done moves messages on and reports whether the request is complete.
func (l *library) done(r *request) (bool, error) {
	var flag int32
	code := invoke(l.test, uintptr(unsafe.Pointer(&r.handle)), uintptr(unsafe.Pointer(&flag)), l.ignoreStatus)
	return flag != 0, l.failed("MPI_Test", code)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// leave calls C's exit, which runs what libraries have registered for the end of the
// process.
func leave(code int) {
	if exit, err := purego.Dlsym(purego.RTLD_DEFAULT, "exit"); err == nil {
		purego.SyscallN(exit, uintptr(code))
	}
}
