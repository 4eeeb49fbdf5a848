//go:build (linux || darwin) && (amd64 || arm64) && !nocuda

package blas

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

// Open loads the library at path or, if path is empty, the system's, if it has one: see
// usual. Without one the error is an [*Absent].
func Open(path string) (*Library, error) {
	paths := usual
	if path != "" {
		paths = []string{path}
	}
	var reasons []string
	for _, p := range paths {
		handle, err := dynlib.Load(p)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		return use(p, handle)
	}
	return nil, &Absent{"no BLAS library can be loaded: " + strings.Join(reasons, "; ")}
}

// use prepares a library that was loaded. It stays loaded even if it is refused: some
// start threads that cannot be unloaded.
func use(path string, handle uintptr) (*Library, error) {
	l := &Library{path: path}
	if missing := dynlib.Find(handle, map[string]*uintptr{"sgemm_": &l.sgemm}); len(missing) > 0 {
		return nil, &Absent{fmt.Sprintf("%s is no BLAS library: it has no sgemm_", path)}
	}
	var err error
	if l.name, err = single(handle); err != nil {
		return nil, &Absent{fmt.Sprintf("%s: %v", path, err)}
	}
	return l, l.check()
}

// openBLAS makes an OpenBLAS compute only on the calling thread, and names it.
func openBLAS(handle uintptr) (name string, err error) {
	var setThreads, config, core uintptr
	missing := dynlib.Find(handle, map[string]*uintptr{
		"openblas_set_num_threads": &setThreads, "openblas_get_config": &config, "openblas_get_corename": &core,
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("it has no %s: want an OpenBLAS, which can be told to start no threads", missing[0])
	}
	purego.SyscallN(setThreads, 1)
	text := func(f uintptr) string {
		p, _, _ := purego.SyscallN(f)
		return dynlib.String(p)
	}
	// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...": everything except the version says how
	// it was built.
	words := strings.Fields(text(config))
	return fmt.Sprintf("%s (%s)", strings.Join(words[:min(2, len(words))], " "), text(core)), nil
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
