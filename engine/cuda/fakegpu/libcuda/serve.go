//go:build linux

package libcuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// question is a call from a library: card.h's struct question, and the bytes and the file that came with it.
type question struct {
	asked
	call string
	text []byte
	file int // -1: none
}

type asked struct {
	Call    [48]byte
	Context uint64
	Arg     [8]uint64
	Bytes   uint64
}

// reply is what a function returns in addition to its error code.
type reply struct {
	value [2]uint64
	text  []byte
}

// answered is card.h's struct answer. The reply's text follows it.
type answered struct {
	Code  uint64
	Value [2]uint64
	Bytes uint64
}

// program is a process that has loaded the library.
type program struct {
	machine *Machine
	conn    *net.UnixConn
	driver  *fakegpu.Driver
	// objects are everything that the program holds a handle to.
	objects map[uint64]any
	last    uint64
	primary map[device]*primary
}

func newProgram(m *Machine, c *net.UnixConn) *program {
	return &program{machine: m, conn: c, driver: m.driver(), objects: map[uint64]any{}, primary: map[device]*primary{}}
}

// serve answers until the program ends or is killed.
func (p *program) serve() {
	defer func() { _ = p.conn.Close() }() // the program is gone
	defer p.forget()
	for {
		q, err := p.read()
		if err != nil {
			return
		}
		var r reply
		if f := calls[q.call]; f != nil {
			r, err = f(p, q)
		} else {
			err = errors.New("this call is not simulated")
		}
		code := p.code(q.call, err)
		var e *driver.Error
		if errors.As(err, &e) {
			r.text = []byte(e.Log)
		}
		b, err := binary.Append(nil, binary.NativeEndian, answered{uint64(code), r.value, uint64(len(r.text))})
		if err != nil {
			p.machine.problem(err)
			return
		}
		if _, err := p.conn.Write(append(b, r.text...)); err != nil {
			return
		}
	}
}

// read returns the next question.
func (p *program) read() (*question, error) {
	q := &question{file: -1}
	head, control := make([]byte, binary.Size(q.asked)), make([]byte, syscall.CmsgSpace(4))
	n, of, _, _, err := p.conn.ReadMsgUnix(head, control)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	if _, err := io.ReadFull(p.conn, head[n:]); err != nil {
		return nil, err
	}
	if _, err := binary.Decode(head, binary.NativeEndian, &q.asked); err != nil {
		return nil, err
	}
	q.call, _, _ = strings.Cut(string(q.Call[:]), "\x00")
	if of > 0 {
		if q.file, err = received(control[:of]); err != nil {
			return nil, err
		}
	}
	q.text = make([]byte, q.Bytes)
	_, err = io.ReadFull(p.conn, q.text)
	return q, err
}

// received is the file in a control message.
func received(control []byte) (int, error) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		return -1, err
	}
	files, err := syscall.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, err
	}
	return files[0], nil
}

// code returns the driver's code for an error. Two kinds are also recorded as problems, because NVIDIA's driver would say
// little or nothing about them: errors without a code, such as a copy to freed memory, and faults that the interpreter
// finds in kernels.
func (p *program) code(call string, err error) driver.Code {
	var e *driver.Error
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &e):
		p.machine.problem(fmt.Errorf("%s: %w", call, err))
		return driver.Unknown
	case e.Log != "" && e.Code != driver.InvalidPTX:
		p.machine.problem(fmt.Errorf("%w: %s", err, e.Log))
	}
	return e.Code
}

// forget unmaps the host memory of a program that has ended.
func (p *program) forget() {
	for _, o := range p.objects {
		if b, ok := o.(host); ok {
			if err := syscall.Munmap(b); err != nil {
				p.machine.problem(err)
			}
		}
	}
}

// add gives an object a handle.
func (p *program) add(o any) uint64 {
	p.last += 16
	p.objects[p.last] = o
	return p.last
}

// find returns the object with a handle; one of another type is an error.
func find[T any](p *program, handle uint64) (o T, err error) {
	o, ok := p.objects[handle].(T)
	if !ok {
		err = &driver.Error{Code: driver.InvalidHandle}
	}
	return o, err
}

// fails applies [fakegpu.Driver.Fail] to a call that has no counterpart in the simulation.
func (p *program) fails(q *question) error {
	if p.driver.Fail != nil {
		if code := p.driver.Fail(q.call); code != 0 {
			return &driver.Error{Call: q.call, Code: code}
		}
	}
	return nil
}
