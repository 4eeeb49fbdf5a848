//go:build (amd64 || arm64) && !nocuda

package nccl

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

const name = "libnccl.so.2"

// Library is NCCL: the addresses of its functions.
type Library struct {
	path    string
	version Version

	getVersion, getUniqueID, initConfig, initScalable uintptr
	getAsyncError, finalize, destroy, abort           uintptr
	groupStart, groupEnd, send, recv, broadcast       uintptr
	errorString, lastError                            uintptr
}

// Open loads the library that the loader finds, or else one of those seen elsewhere.
func Open(seen []string) (*Library, error) {
	paths := []string{name}
	for _, p := range seen {
		if base := filepath.Base(p); base == name || strings.HasPrefix(base, name+".") {
			paths = append(paths, p)
		}
	}
	l, ok, refused := dynlib.First(paths, load)
	if ok {
		return l, nil
	}
	if len(refused) > 0 {
		return nil, errors.New("NCCL cannot be loaded: " + strings.Join(refused, "; "))
	}
	return nil, fmt.Errorf("NCCL is not installed (%s was not found)", name)
}

// OpenFile loads the library at a path.
func OpenFile(path string) (*Library, error) { return load(path) }

// load loads a library with all functions that are called.
func load(path string) (*Library, error) {
	handle, err := dynlib.Load(path)
	if err != nil {
		return nil, err
	}
	l := &Library{path: path}
	missing := dynlib.Find(handle, map[string]*uintptr{
		"ncclGetVersion": &l.getVersion, "ncclGetUniqueId": &l.getUniqueID, "ncclCommInitRankConfig": &l.initConfig,
		"ncclCommGetAsyncError": &l.getAsyncError, "ncclCommFinalize": &l.finalize, "ncclCommDestroy": &l.destroy, "ncclCommAbort": &l.abort,
		"ncclGroupStart": &l.groupStart, "ncclGroupEnd": &l.groupEnd, "ncclSend": &l.send, "ncclRecv": &l.recv,
		"ncclBroadcast": &l.broadcast, "ncclGetErrorString": &l.errorString, "ncclGetLastError": &l.lastError,
	})
	if l.getVersion == 0 {
		return nil, fmt.Errorf("%s is no NCCL: it has no ncclGetVersion", path)
	}
	var version int32
	if err := l.failed("ncclGetVersion", call(l.getVersion, uintptr(unsafe.Pointer(&version)))); err != nil {
		return nil, err
	}
	if l.version = Version(version); l.version < oldest || len(missing) > 0 {
		return nil, fmt.Errorf("%s is NCCL %v: want %v or later", path, l.version, oldest)
	}
	// Since 2.23 there is a variant that takes the id by its address.
	dynlib.Find(handle, map[string]*uintptr{"ncclCommInitRankScalable": &l.initScalable})
	return l, nil
}

// Version returns the library's version.
func (l *Library) Version() Version { return l.version }

func (l *Library) String() string { return fmt.Sprintf("NCCL %v (%s)", l.version, l.path) }

// result is ncclResult_t.
type result int32

const (
	success     result = 0
	systemError result = 2
	remoteError result = 6
	inProgress  result = 7
)

// call calls a function; memory that its arguments point to stays where it is meanwhile.
//
//go:uintptrescapes
func call(f uintptr, args ...uintptr) result {
	r, _, _ := purego.SyscallN(f, args...)
	return result(int32(r))
}

// failed turns a result into an error. Being in progress is not one.
func (l *Library) failed(function string, r result) error {
	if r == success || r == inProgress {
		return nil
	}
	text := ""
	if l.errorString != 0 && l.lastError != 0 {
		kind, _, _ := purego.SyscallN(l.errorString, uintptr(r))
		last, _, _ := purego.SyscallN(l.lastError, 0)
		text = strings.TrimSpace(dynlib.String(kind) + ": " + dynlib.String(last))
	}
	return &callError{r, fmt.Sprintf("%s of NCCL %v: error %d: %s", function, l.version, r, text)}
}

// callError is the error of an NCCL call.
type callError struct {
	result
	text string
}

func (e *callError) Error() string { return e.text }

// configuration is the start of ncclConfig_t, as it was in 2.14: later libraries use
// defaults for what a structure of its size and version lacks.
type configuration struct {
	size     uint64
	magic    uint32
	version  uint32
	blocking int32
	_        int32
}

const magic = 0xcafebeef

// newID makes the id of a communicator.
func (l *Library) newID() (id [idBytes]byte, err error) {
	err = l.failed("ncclGetUniqueId", call(l.getUniqueID, uintptr(unsafe.Pointer(&id))))
	return id, err
}

// connect begins to make this rank's end of a communicator, which the library may write until
// the communicator is ready.
func (l *Library) connect(comm *uintptr, world, rank int, id *[idBytes]byte) error {
	c := &configuration{size: uint64(unsafe.Sizeof(configuration{})), magic: magic, version: uint32(oldest)}
	if l.initScalable != 0 {
		return l.failed("ncclCommInitRankScalable", call(l.initScalable, uintptr(unsafe.Pointer(comm)), uintptr(world), uintptr(rank), 1, uintptr(unsafe.Pointer(id)), uintptr(unsafe.Pointer(c))))
	}
	if runtime.GOARCH == "arm64" { // a structure of this size is passed by its address
		return l.failed("ncclCommInitRankConfig", call(l.initConfig, uintptr(unsafe.Pointer(comm)), uintptr(world), uintptr(unsafe.Pointer(id)), uintptr(rank), uintptr(unsafe.Pointer(c))))
	}
	// On amd64 it goes on the stack, and the other arguments go into the first four of
	// the six registers.
	w := (*[idBytes / 8]uintptr)(unsafe.Pointer(id))
	return l.failed("ncclCommInitRankConfig", call(l.initConfig, uintptr(unsafe.Pointer(comm)), uintptr(world), uintptr(rank), uintptr(unsafe.Pointer(c)), 0, 0,
		w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]))
}

// state returns whether a communicator is ready; an error means that it has failed.
func (l *Library) state(comm uintptr) (ready bool, err error) {
	var r result
	if err := l.failed("ncclCommGetAsyncError", call(l.getAsyncError, comm, uintptr(unsafe.Pointer(&r)))); err != nil {
		return false, err
	}
	return r == success, l.failed("a call", r)
}
