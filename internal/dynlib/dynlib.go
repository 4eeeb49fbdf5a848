//go:build (linux || darwin) && (amd64 || arm64) && !nocuda

package dynlib

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/regular"
)

// Load loads the library at path, or the one of that name that the loader finds. Its
// symbols are not visible to other libraries.
func Load(path string) (handle uintptr, err error) { return open(path, purego.RTLD_LOCAL) }

// LoadGlobal is Load with symbols that libraries loaded later can use, such as a library's
// own plug-ins.
func LoadGlobal(path string) (handle uintptr, err error) { return open(path, purego.RTLD_GLOBAL) }

// open is dlopen, which would wait for a writer at a FIFO. Its error text belongs to the thread.
func open(path string, mode int) (uintptr, error) {
	if strings.Contains(path, "/") {
		f, err := regular.Open(path)
		switch {
		case err == nil:
			_ = f.Close() // it was only looked at
		case errors.Is(err, regular.ErrKind):
			return 0, err
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(path, purego.RTLD_NOW|mode)
}

// NotFound reports whether an error of [Load] says that there is no such file.
func NotFound(err error) bool { return strings.Contains(err.Error(), "cannot open shared object file") }

// First returns the first library that load can make from the files at paths. refused says
// why it could not make one of the earlier ones, except for names that the loader did not
// find.
func First[L any](paths []string, load func(path string) (L, error)) (found L, ok bool, refused []string) {
	for _, path := range paths {
		l, err := load(path)
		if err == nil {
			return l, true, refused
		}
		if strings.Contains(path, "/") || !NotFound(err) {
			refused = append(refused, err.Error())
		}
	}
	return found, false, refused
}

// Find looks up symbols by their names, and stores their addresses where the map says.
// Missing ones are set to 0; their names are returned in order.
func Find(handle uintptr, symbols map[string]*uintptr) (missing []string) {
	for name, to := range symbols {
		var err error
		if *to, err = purego.Dlsym(handle, name); err != nil {
			*to = 0
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// Setenv sets a variable in the environment that libraries see. Go's environment, which
// child processes inherit, does not change.
func Setenv(name, value string) error {
	var setenv uintptr
	if missing := Find(purego.RTLD_DEFAULT, map[string]*uintptr{"setenv": &setenv}); missing != nil {
		return errors.New("the C library has no setenv")
	}
	n, v := append([]byte(name), 0), append([]byte(value), 0)
	r, _, _ := purego.SyscallN(setenv, uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&v[0])), 1)
	if int32(r) != 0 {
		return fmt.Errorf("the C library cannot set %s=%s", name, value)
	}
	return nil
}

// String copies a string of C; nil is empty.
func String(p uintptr) string {
	if p == 0 {
		return ""
	}
	var b []byte
	for at := *(*unsafe.Pointer)(unsafe.Pointer(&p)); *(*byte)(at) != 0; at = unsafe.Add(at, 1) {
		b = append(b, *(*byte)(at))
	}
	return string(b)
}
