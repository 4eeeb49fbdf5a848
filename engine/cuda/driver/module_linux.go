//go:build (amd64 || arm64) && !nocuda

package driver

import (
	"bytes"
	"errors"
	"runtime"
	"unsafe"
)

// jitLog receives the assembler's error messages.
type jitLog struct {
	text    [16 << 10]byte
	options [2]int32
	values  [2]uintptr
	pin     runtime.Pinner
}

// newJITLog makes a log for one call: the driver writes to it, and replaces the size by how much it wrote.
func newJITLog() *jitLog {
	const errorLog, errorLogSize = 5, 6
	l := &jitLog{options: [2]int32{errorLog, errorLogSize}}
	l.pin.Pin(l)
	l.values = [2]uintptr{uintptr(unsafe.Pointer(&l.text)), uintptr(len(l.text))}
	return l
}

func (l *jitLog) release() { l.pin.Unpin() }

// add puts the log into a driver's error.
func (l *jitLog) add(err error) error {
	var e *Error
	if errors.As(err, &e) {
		text, _, _ := bytes.Cut(l.text[:], []byte{0})
		e.Log = string(bytes.TrimSpace(text))
	}
	return err
}

// Load implements [Context].
func (c *context) Load(ptx string) (Module, error) {
	log := newJITLog()
	defer log.release()
	text := append([]byte(ptx), 0)
	m := &module{c: c}
	if err := c.call("cuModuleLoadDataEx", c.d.moduleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(log.options)), uintptr(unsafe.Pointer(&log.options)), uintptr(unsafe.Pointer(&log.values))); err != nil {
		return nil, log.add(err)
	}
	return m, nil
}

type module struct {
	c      *context
	handle uintptr
}

func (m *module) Function(name string) (Function, error) {
	f := &function{c: m.c, name: name}
	text := append([]byte(name), 0)
	if err := m.c.call("cuModuleGetFunction "+name, m.c.d.moduleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(&text[0]))); err != nil {
		return nil, err
	}
	if m.c.d.funcLoad != 0 { // with lazy loading, the first launch would allocate memory otherwise
		if err := m.c.call("cuFuncLoad "+name, m.c.d.funcLoad, f.handle); err != nil {
			return nil, err
		}
	}
	// A multiprocessor divides one memory between shared memory and cache. Kernels with large tiles want as
	// much shared memory as possible, so that several blocks fit.
	const (
		sharedBytes, carveout = 1, 9
		large                 = 16 << 10
	)
	shared, err := f.attribute(sharedBytes)
	if err != nil || shared < large {
		return f, err
	}
	return f, m.c.call("cuFuncSetAttribute", m.c.d.funcSetAttribute, f.handle, carveout, 100)
}

func (m *module) Unload() error { return m.c.call("cuModuleUnload", m.c.d.moduleUnload, m.handle) }

type function struct {
	c      *context
	name   string
	handle uintptr
}

func (f *function) Name() string { return f.name }

func (f *function) Use() (u Use, err error) {
	const local, registers = 3, 4
	if u.Registers, err = f.attribute(registers); err == nil {
		u.Local, err = f.attribute(local)
	}
	return u, err
}

func (f *function) attribute(what uintptr) (int, error) {
	var v int32
	err := f.c.call("cuFuncGetAttribute", f.c.d.funcGetAttribute, uintptr(unsafe.Pointer(&v)), what, f.handle)
	return int(v), err
}
