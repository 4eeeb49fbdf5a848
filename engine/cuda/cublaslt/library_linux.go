//go:build (amd64 || arm64) && !nocuda

package cublaslt

import (
	"fmt"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

const (
	name = "libcublasLt.so"
	// oldest is the first major version whose functions take the arguments used here.
	oldest = 11
)

// Open loads the library with the newest major version that a driver of a CUDA version (1000*major +
// 10*minor) can use, from the loader's path or from the paths in seen. If there is none the error is an
// [*Absent].
func Open(cuda int, seen []string) (Library, error) {
	var refused []string
	for major := cuda / 1000; major >= oldest; major-- {
		file := fmt.Sprintf("%s.%d", name, major)
		paths := []string{file}
		for _, path := range seen {
			if base := filepath.Base(path); base == file || strings.HasPrefix(base, file+".") {
				paths = append(paths, path)
			}
		}
		l, ok, why := dynlib.First(paths, load)
		if ok {
			return l, nil
		}
		refused = append(refused, why...)
	}
	for _, path := range seen {
		if v := majorOf(path); v != 0 && (v < oldest || v > cuda/1000) {
			refused = append(refused, fmt.Sprintf("%s: the driver supports CUDA %d.%d, and libraries from CUDA %d on are used", path, cuda/1000, cuda%1000/10, oldest))
		}
	}
	if len(refused) > 0 {
		return nil, &Absent{"cuBLASLt cannot be loaded: " + strings.Join(refused, "; ")}
	}
	return nil, &Absent{"cuBLASLt is not installed (" + name + " was not found)"}
}

// majorOf is the N of libcublasLt.so.N; 0 for other names.
func majorOf(path string) (major int) {
	_, _ = fmt.Sscanf(filepath.Base(path), name+".%d", &major)
	return major
}

// load loads a library and finds every function that is called.
func load(path string) (*library, error) {
	handle, err := dynlib.Load(path)
	if err != nil {
		return nil, err
	}
	l := &library{path: path}
	if missing := dynlib.Find(handle, l.symbols()); len(missing) > 0 {
		return nil, fmt.Errorf("%s is too old: it has no %s", path, missing[0])
	}
	return l, nil
}

// library holds the addresses of the functions.
type library struct {
	path                                                 string
	getVersion, create, destroy                          uintptr
	descCreate, descSet, descDestroy                     uintptr
	layoutCreate, layoutSet, layoutDestroy               uintptr
	preferenceCreate, preferenceSet, preferenceDestroy   uintptr
	heuristic, algoCheck, algoConfigGetAttribute, matmul uintptr
}

func (l *library) symbols() map[string]*uintptr {
	return map[string]*uintptr{
		"cublasLtGetVersion": &l.getVersion, "cublasLtCreate": &l.create, "cublasLtDestroy": &l.destroy,
		"cublasLtMatmulDescCreate": &l.descCreate, "cublasLtMatmulDescSetAttribute": &l.descSet, "cublasLtMatmulDescDestroy": &l.descDestroy,
		"cublasLtMatrixLayoutCreate": &l.layoutCreate, "cublasLtMatrixLayoutSetAttribute": &l.layoutSet, "cublasLtMatrixLayoutDestroy": &l.layoutDestroy,
		"cublasLtMatmulPreferenceCreate": &l.preferenceCreate, "cublasLtMatmulPreferenceSetAttribute": &l.preferenceSet,
		"cublasLtMatmulPreferenceDestroy": &l.preferenceDestroy, "cublasLtMatmulAlgoGetHeuristic": &l.heuristic,
		"cublasLtMatmulAlgoCheck": &l.algoCheck, "cublasLtMatmulAlgoConfigGetAttribute": &l.algoConfigGetAttribute,
		"cublasLtMatmul": &l.matmul,
	}
}

// call calls a function; memory that its arguments point to stays where it is
// meanwhile.
//
//go:uintptrescapes
func call(f uintptr, args ...uintptr) Status {
	r, _, _ := purego.SyscallN(f, args...)
	return Status(int32(r))
}

// first is the address of the first byte.
func first(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (l *library) Version() int {
	v, _, _ := purego.SyscallN(l.getVersion)
	if v > 1<<30 {
		return 0
	}
	// 11.x is 11xxxx, as in all major versions from 11 on.
	return int(v)
}

func (l *library) Path() string { return l.path }

func (l *library) Create() (handle uintptr, s Status) {
	s = call(l.create, uintptr(unsafe.Pointer(&handle)))
	return handle, s
}

func (l *library) Destroy(handle uintptr) Status { return call(l.destroy, handle) }

func (l *library) DescCreate(compute ComputeType, scale DataType) (desc uintptr, s Status) {
	s = call(l.descCreate, uintptr(unsafe.Pointer(&desc)), uintptr(compute), uintptr(scale))
	return desc, s
}

func (l *library) DescSet(desc uintptr, a DescAttribute, value []byte) Status {
	return call(l.descSet, desc, uintptr(a), first(value), uintptr(len(value)))
}

func (l *library) DescDestroy(desc uintptr) Status { return call(l.descDestroy, desc) }

func (l *library) LayoutCreate(d DataType, rows, cols uint64, ld int64) (layout uintptr, s Status) {
	s = call(l.layoutCreate, uintptr(unsafe.Pointer(&layout)), uintptr(d), uintptr(rows), uintptr(cols), uintptr(ld))
	return layout, s
}

func (l *library) LayoutSet(layout uintptr, a LayoutAttribute, value []byte) Status {
	return call(l.layoutSet, layout, uintptr(a), first(value), uintptr(len(value)))
}

func (l *library) LayoutDestroy(layout uintptr) Status { return call(l.layoutDestroy, layout) }

func (l *library) PreferenceCreate() (preference uintptr, s Status) {
	s = call(l.preferenceCreate, uintptr(unsafe.Pointer(&preference)))
	return preference, s
}

func (l *library) PreferenceSet(preference uintptr, a PreferenceAttribute, value []byte) Status {
	return call(l.preferenceSet, preference, uintptr(a), first(value), uintptr(len(value)))
}

func (l *library) PreferenceDestroy(preference uintptr) Status {
	return call(l.preferenceDestroy, preference)
}

func (l *library) Heuristic(handle, desc uintptr, m Layouts, preference uintptr, results []Result) (n int, s Status) {
	var found int32
	s = call(l.heuristic, handle, desc, m.A, m.B, m.C, m.D, preference,
		uintptr(len(results)), uintptr(unsafe.Pointer(unsafe.SliceData(results))), uintptr(unsafe.Pointer(&found)))
	return int(found), s
}

func (l *library) Check(handle, desc uintptr, m Layouts, algo *Algorithm) (r Result, s Status) {
	s = call(l.algoCheck, handle, desc, m.A, m.B, m.C, m.D, uintptr(unsafe.Pointer(algo)), uintptr(unsafe.Pointer(&r)))
	return r, s
}

func (l *library) AlgoGet(algo *Algorithm, a AlgoAttribute, value []byte) Status {
	var written uintptr
	return call(l.algoConfigGetAttribute, uintptr(unsafe.Pointer(algo)), uintptr(a), first(value), uintptr(len(value)), uintptr(unsafe.Pointer(&written)))
}

func (l *library) Matmul(handle, desc uintptr, y Layouts, m *Matmul) Status {
	alpha, beta := m.Alpha, m.Beta
	return call(l.matmul, handle, desc, uintptr(unsafe.Pointer(&alpha)), uintptr(m.A), y.A, uintptr(m.B), y.B,
		uintptr(unsafe.Pointer(&beta)), uintptr(m.C), y.C, uintptr(m.D), y.D, uintptr(unsafe.Pointer(m.Algorithm)),
		uintptr(m.Workspace), uintptr(m.WorkspaceBytes), m.Stream)
}
