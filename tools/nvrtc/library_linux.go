//go:build (amd64 || arm64) && !nocuda

package main

import (
	"bytes"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

// nvrtc is a loaded libnvrtc.
type nvrtc struct {
	version                                              string
	create, compile, destroy, logSize, log, size, ptx, v uintptr
}

// open loads the library at path.
func open(path string) (compiler, error) {
	handle, err := dynlib.Load(path)
	if err != nil {
		return nil, err
	}
	n := &nvrtc{}
	if missing := dynlib.Find(handle, map[string]*uintptr{
		"nvrtcCreateProgram": &n.create, "nvrtcCompileProgram": &n.compile, "nvrtcDestroyProgram": &n.destroy,
		"nvrtcGetProgramLogSize": &n.logSize, "nvrtcGetProgramLog": &n.log, "nvrtcGetPTXSize": &n.size, "nvrtcGetPTX": &n.ptx, "nvrtcVersion": &n.v,
	}); missing != nil {
		return nil, fmt.Errorf("%s is not NVRTC: it lacks %s", path, strings.Join(missing, ", "))
	}
	var major, minor int32
	var pin runtime.Pinner
	pin.Pin(&major)
	pin.Pin(&minor)
	defer pin.Unpin()
	if err := call("nvrtcVersion", n.v, pointer(&major), pointer(&minor)); err != nil {
		return nil, err
	}
	n.version = fmt.Sprintf("%d.%d", major, minor)
	return n, nil
}

func (n *nvrtc) Version() string { return n.version }

// Compile implements [compiler].
func (n *nvrtc) Compile(name, source string, headers map[string]string, options []string) (text string, err error) {
	program, pin := uintptr(0), runtime.Pinner{}
	pin.Pin(&program) // a stack would move
	defer pin.Unpin()
	names := slices.Sorted(maps.Keys(headers))
	var texts []string
	for _, name := range names {
		texts = append(texts, headers[name])
	}
	var keep []any
	c := func(list ...string) *uintptr { return cStrings(&keep, list) }
	if err := call("nvrtcCreateProgram", n.create, pointer(&program), *c(source), *c(name), uintptr(len(names)), pointer(c(texts...)), pointer(c(names...))); err != nil {
		return "", err
	}
	compileErr := call("nvrtcCompileProgram", n.compile, program, uintptr(len(options)), pointer(c(options...)))
	runtime.KeepAlive(keep)
	defer func() {
		if destroyErr := call("nvrtcDestroyProgram", n.destroy, pointer(&program)); err == nil {
			err = destroyErr
		}
	}()
	if compileErr != nil {
		log, err := n.text("nvrtcGetProgramLog", program, n.logSize, n.log)
		if err != nil {
			return "", err
		}
		return "", fmt.Errorf("%s: %w\n%s", name, compileErr, log)
	}
	return n.text("nvrtcGetPTX", program, n.size, n.ptx)
}

// text is what a pair of functions returns about a program.
func (n *nvrtc) text(name string, program, size, get uintptr) (string, error) {
	length, pin := uintptr(0), runtime.Pinner{}
	pin.Pin(&length)
	defer pin.Unpin()
	if err := call(name+"Size", size, program, pointer(&length)); err != nil {
		return "", err
	}
	b := make([]byte, length+1)
	if err := call(name, get, program, pointer(&b[0])); err != nil {
		return "", err
	}
	before, _, _ := bytes.Cut(b, []byte{0})
	return string(before), nil
}

// cStrings are strings of C, as an array of pointers; keep holds what they need.
func cStrings(keep *[]any, list []string) *uintptr {
	array := make([]uintptr, len(list)+1)
	for i, s := range list {
		b := append([]byte(s), 0)
		*keep = append(*keep, b)
		array[i] = pointer(&b[0])
	}
	*keep = append(*keep, array)
	return &array[0]
}

func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func call(name string, fn uintptr, args ...uintptr) error {
	if r, _, _ := purego.SyscallN(fn, args...); int32(r) != 0 {
		return fmt.Errorf("%s: NVRTC error %d", name, int32(r))
	}
	return nil
}
