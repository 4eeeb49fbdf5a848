//go:build (linux || darwin) && (amd64 || arm64) && !nocuda

package blas

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Open loads the library at path, or the system's ("") if that has one: see usual.
// Without one the error is an [*Absent].
func Open(path string) (*Library, error) {
	paths := usual
	if path != "" {
		paths = []string{path}
	}
	// What the loader says of an error belongs to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var reasons []string
	for _, p := range paths {
		handle, err := purego.Dlopen(p, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		return use(p, handle)
	}
	return nil, &Absent{"no BLAS library can be loaded: " + strings.Join(reasons, "; ")}
}

// use prepares a library that was loaded. It stays loaded, also if it is refused: some
// start threads that cannot be unloaded.
func use(path string, handle uintptr) (*Library, error) {
	l := &Library{path: path}
	var err error
	if l.sgemm, err = purego.Dlsym(handle, "sgemm_"); err != nil {
		return nil, &Absent{fmt.Sprintf("%s is no BLAS library: it has no sgemm_", path)}
	}
	if l.name, err = single(handle); err != nil {
		return nil, &Absent{fmt.Sprintf("%s: %v", path, err)}
	}
	return l, l.check()
}

// openBLAS makes an OpenBLAS compute on the calling thread alone, and names it.
func openBLAS(handle uintptr) (name string, err error) {
	var addresses [3]uintptr
	for i, s := range []string{"openblas_set_num_threads", "openblas_get_config", "openblas_get_corename"} {
		if addresses[i], err = purego.Dlsym(handle, s); err != nil {
			return "", fmt.Errorf("it has no %s: want an OpenBLAS, which can be told to start no threads", s)
		}
	}
	purego.SyscallN(addresses[0], 1)
	text := func(f uintptr) string {
		p, _, _ := purego.SyscallN(f)
		return cString(p)
	}
	// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": all but the version is how it was built.
	words := strings.Fields(text(addresses[1]))
	return fmt.Sprintf("%s (%s)", strings.Join(words[:min(2, len(words))], " "), text(addresses[2])), nil
}

// cString copies a string of C.
func cString(p uintptr) string {
	if p == 0 {
		return ""
	}
	var b []byte
	for at := *(*unsafe.Pointer)(unsafe.Pointer(&p)); *(*byte)(at) != 0; at = unsafe.Add(at, 1) {
		b = append(b, *(*byte)(at))
	}
	return string(b)
}

// invoke calls sgemm_(transA, transB, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc) of
// matrices by columns; two lengths of strings follow, as Fortran passes them.
func (l *Library) invoke(x *call, transA, transB *byte, a, b, c unsafe.Pointer) {
	x.arguments = [15]uintptr{address(transA), address(transB), address(&x.m), address(&x.n), address(&x.k), address(&x.alpha),
		uintptr(a), address(&x.lda), uintptr(b), address(&x.ldb), address(&x.beta), uintptr(c), address(&x.ldc), 1, 1}
	purego.SyscallN(l.sgemm, x.arguments[:]...) // a list of arguments would be allocated
	for _, p := range []unsafe.Pointer{a, b, c, unsafe.Pointer(x)} {
		runtime.KeepAlive(p)
	}
}

func address[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
