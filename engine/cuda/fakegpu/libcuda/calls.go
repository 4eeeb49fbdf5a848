//go:build linux

package libcuda

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// calls answers each function of the library, by its name without the version suffix.
var calls = map[string]func(*program, *question) (reply, error){
	"wrong": func(p *program, q *question) (reply, error) {
		p.machine.problem(errors.New(string(q.text)))
		return reply{}, nil
	},

	"cuDriverGetVersion": func(p *program, _ *question) (reply, error) { return number(p.driver.Version(), nil) },
	"cuInit":             (*program).init,
	"cuDeviceGetCount": func(p *program, _ *question) (reply, error) {
		cards, err := p.driver.Cards()
		return number(len(cards), err)
	},
	"cuDeviceGet": func(p *program, q *question) (reply, error) {
		if q.Arg[0] >= uint64(len(p.driver.Installed)) {
			return reply{}, &driver.Error{Call: q.call, Code: driver.InvalidDevice}
		}
		return number(p.add(device(q.Arg[0])), p.fails(q))
	},
	"cuDeviceGetName":      ofCard(func(c driver.Card, _ *question) (reply, error) { return reply{text: []byte(c.Name)}, nil }),
	"cuDeviceTotalMem":     ofCard(func(c driver.Card, _ *question) (reply, error) { return number(c.Memory, nil) }),
	"cuDeviceGetUuid":      ofCard(func(c driver.Card, _ *question) (reply, error) { return identity(c.UUID, true) }),
	"cuDeviceGetUuid_v2":   ofCard(func(c driver.Card, _ *question) (reply, error) { return identity(c.UUID, false) }),
	"cuDeviceGetAttribute": ofCard(func(c driver.Card, q *question) (reply, error) { return attributeOfCard(c, q.Arg[1]) }),

	"cuDevicePrimaryCtxSetFlags": alone[device],
	"cuDevicePrimaryCtxRetain":   (*program).retain,
	"cuDevicePrimaryCtxRelease":  (*program).release,
	"cuCtxSetCurrent":            alone[*primary],

	"cuMemGetInfo": inContext(func(_ *program, c *primary, _ *question) (reply, error) {
		available, total, err := c.Memory()
		return reply{value: [2]uint64{uint64(available), uint64(total)}}, err
	}),
	"cuMemAlloc":     inContext(func(_ *program, c *primary, q *question) (reply, error) { return number(c.Alloc(int64(q.Arg[0]))) }),
	"cuMemFree":      inContext(func(_ *program, c *primary, q *question) (reply, error) { return reply{}, c.Free(driver.Ptr(q.Arg[0])) }),
	"cuMemHostAlloc": (*program).lockHost,
	"cuMemFreeHost":  inContext((*program).unlockHost),
	"cuMemcpyHtoDAsync": inStream(4, func(p *program, s driver.Stream, q *question) error {
		b, err := p.host(q)
		if err != nil {
			return err
		}
		return s.CopyIn(driver.Ptr(q.Arg[0]), b)
	}),
	"cuMemcpyDtoHAsync": inStream(4, func(p *program, s driver.Stream, q *question) error {
		b, err := p.host(q)
		if err != nil {
			return err
		}
		return s.CopyOut(b, driver.Ptr(q.Arg[0]))
	}),
	"cuMemsetD8Async": inStream(2, func(_ *program, s driver.Stream, q *question) error {
		return s.Clear(driver.Ptr(q.Arg[0]), int64(q.Arg[1]))
	}),

	"cuModuleLoadDataEx": making(func(c *primary, q *question) (driver.Module, error) { return c.Load(string(q.text)) }),
	"cuModuleUnload":     freeing(driver.Module.Unload),
	"cuModuleGetFunction": func(p *program, q *question) (reply, error) {
		m, err := find[driver.Module](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		f, err := m.Function(string(q.text))
		if err != nil {
			return reply{}, err
		}
		return number(p.add(f), nil)
	},
	"cuFuncGetAttribute": (*program).attributeOfFunction,
	"cuFuncSetAttribute": alone[driver.Function],
	"cuFuncLoad":         alone[driver.Function],
	"cuLaunchKernel": inStream(7, func(p *program, s driver.Stream, q *question) error {
		f, err := find[driver.Function](p, q.Arg[0])
		if err != nil {
			return err
		}
		l := driver.Launch{Params: q.text}
		for i := range 3 {
			l.Grid[i], l.Block[i] = uint32(q.Arg[1+i]), uint32(q.Arg[4+i])
		}
		return s.Launch(f, l)
	}),

	"cuStreamCreate":      making(func(c *primary, _ *question) (driver.Stream, error) { return c.NewStream() }),
	"cuStreamDestroy":     freeing(driver.Stream.Close),
	"cuStreamSynchronize": on(driver.Stream.Sync),
	"cuStreamQuery": on(func(s driver.Stream) error {
		done, err := s.Done()
		if err == nil && !done {
			err = &driver.Error{Call: "cuStreamQuery", Code: driver.NotReady}
		}
		return err
	}),
	"cuStreamWaitEvent":  inStreamWith(0, 1, driver.Stream.Wait),
	"cuEventCreate":      making(func(c *primary, q *question) (driver.Event, error) { return c.NewEvent(q.Arg[0] != 0) }),
	"cuEventDestroy":     freeing(driver.Event.Close),
	"cuEventSynchronize": on(driver.Event.Sync),
	"cuEventRecord":      inStreamWith(1, 0, driver.Stream.Record),
	"cuEventElapsedTime": func(p *program, q *question) (reply, error) {
		from, err := find[driver.Event](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		to, err := find[driver.Event](p, q.Arg[1])
		if err != nil {
			return reply{}, err
		}
		return number(to.Since(from))
	},

	"cuStreamBeginCapture": on(driver.Stream.BeginCapture),
	"cuStreamEndCapture": func(p *program, q *question) (reply, error) {
		s, err := find[interface {
			Captured() (*fakegpu.Graph, error)
		}](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		g, err := s.Captured()
		if err != nil {
			return reply{}, err
		}
		return number(p.add(template{g}), nil)
	},
	"cuGraphInstantiate": func(p *program, q *question) (reply, error) {
		g, err := find[template](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		if err := g.Instantiate(); err != nil {
			return reply{}, err
		}
		return number(p.add(g.Graph), nil)
	},
	"cuGraphDestroy":     freeing(func(g template) error { return g.Destroy() }),
	"cuGraphUpload":      inStreamWith(1, 0, func(s driver.Stream, g *fakegpu.Graph) error { return s.Upload(g) }),
	"cuGraphLaunch":      inStreamWith(1, 0, func(s driver.Stream, g *fakegpu.Graph) error { return s.Replay(g) }),
	"cuGraphExecDestroy": freeing((*fakegpu.Graph).Close),
}

// These are the objects that have no type elsewhere.
type (
	// device is the number of a card. Its handle differs: nothing promises that they are equal.
	device int
	// primary is the primary context of a card, shared by the whole program.
	primary struct {
		*fakegpu.Context
		handle   uint64
		retained int
	}
	// host is page-locked memory.
	host []byte
	// template is a captured graph, not its instance.
	template struct{ *fakegpu.Graph }
)

// number is a reply of one number.
func number[N ~int | ~int64 | ~uint64](n N, err error) (reply, error) {
	return reply{value: [2]uint64{uint64(n)}}, err
}

// on calls a method of the object passed as the first argument.
func on[T any](f func(T) error) func(*program, *question) (reply, error) {
	return func(p *program, q *question) (reply, error) {
		o, err := find[T](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		return reply{}, f(o)
	}
}

// freeing is on for a method that frees the object.
func freeing[T any](f func(T) error) func(*program, *question) (reply, error) {
	return func(p *program, q *question) (reply, error) {
		o, err := find[T](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		delete(p.objects, q.Arg[0])
		return reply{}, f(o)
	}
}

// alone handles a call that has no counterpart in the simulation: it only checks the handle.
func alone[T any](p *program, q *question) (reply, error) {
	if _, err := find[T](p, q.Arg[0]); err != nil {
		return reply{}, err
	}
	return reply{}, p.fails(q)
}

// inContext calls f with the current context.
func inContext(f func(*program, *primary, *question) (reply, error)) func(*program, *question) (reply, error) {
	return func(p *program, q *question) (reply, error) {
		c, err := find[*primary](p, q.Context)
		if err != nil {
			return reply{}, err
		}
		return f(p, c, q)
	}
}

// making makes an object in the current context.
func making[T any](f func(*primary, *question) (T, error)) func(*program, *question) (reply, error) {
	return inContext(func(p *program, c *primary, q *question) (reply, error) {
		o, err := f(c, q)
		if err != nil {
			return reply{}, err
		}
		return number(p.add(o), nil)
	})
}

// inStream calls f with the stream passed as argument n.
func inStream(n int, f func(*program, driver.Stream, *question) error) func(*program, *question) (reply, error) {
	return func(p *program, q *question) (reply, error) {
		s, err := find[driver.Stream](p, q.Arg[n])
		if err != nil {
			return reply{}, err
		}
		return reply{}, f(p, s, q)
	}
}

// inStreamWith calls f with the stream passed as argument n and the object passed as argument m.
func inStreamWith[T any](n, m int, f func(driver.Stream, T) error) func(*program, *question) (reply, error) {
	return inStream(n, func(p *program, s driver.Stream, q *question) error {
		o, err := find[T](p, q.Arg[m])
		if err != nil {
			return err
		}
		return f(s, o)
	})
}

// ofCard calls f with the card passed as the first argument.
func ofCard(f func(driver.Card, *question) (reply, error)) func(*program, *question) (reply, error) {
	return func(p *program, q *question) (reply, error) {
		n, err := find[device](p, q.Arg[0])
		if err != nil {
			return reply{}, err
		}
		if err := p.fails(q); err != nil {
			return reply{}, err
		}
		return f(p.driver.Installed[n], q)
	}
}

// init records the library's environment.
func (p *program) init(q *question) (reply, error) {
	variables := map[string]string{}
	for line := range strings.Lines(string(q.text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		variables[name] = value
	}
	p.driver.Setenv(variables)
	if len(p.driver.Installed) == 0 {
		return reply{}, &driver.Error{Call: q.call, Code: driver.NoDevice}
	}
	return reply{}, p.fails(q)
}

// identity is a UUID as bytes. For a slice, the first version of the function returns that of the whole card.
func identity(uuid string, whole bool) (reply, error) {
	kind, digits, _ := strings.Cut(uuid, "-")
	b, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if err == nil && whole && kind == "MIG" {
		b[0] ^= 0xff
	}
	return reply{text: b}, err
}

// attributeOfCard is an attribute by its number in cuda.h.
func attributeOfCard(c driver.Card, what uint64) (reply, error) {
	of := map[uint64]int{13: c.ClockKHz, 16: c.SMs, 36: c.MemoryClockKHz, 37: c.BusBits, 75: c.Major, 76: c.Minor}
	v, ok := of[what]
	if !ok {
		return reply{}, fmt.Errorf("attribute %d of a card is not simulated", what)
	}
	return number(v, nil)
}

// retain opens a card unless it is open.
func (p *program) retain(q *question) (reply, error) {
	n, err := find[device](p, q.Arg[0])
	if err != nil {
		return reply{}, err
	}
	c := p.primary[n]
	if c == nil {
		opened, err := p.driver.Open(int(n))
		if err != nil {
			return reply{}, err
		}
		c = &primary{Context: opened.(*fakegpu.Context)}
		c.handle = p.add(c)
		p.primary[n] = c
	}
	c.retained++
	return number(c.handle, nil)
}

// release closes a card that is no longer retained.
func (p *program) release(q *question) (reply, error) {
	n, err := find[device](p, q.Arg[0])
	if err != nil {
		return reply{}, err
	}
	c := p.primary[n]
	if c == nil {
		return reply{}, &driver.Error{Call: q.call, Code: driver.InvalidContext}
	}
	if c.retained--; c.retained > 0 {
		return reply{}, nil
	}
	delete(p.primary, n)
	delete(p.objects, c.handle)
	return reply{}, c.Close()
}

// lockHost maps the file that came with the question, which backs the program's memory.
func (p *program) lockHost(q *question) (reply, error) {
	b, err := syscall.Mmap(q.file, 0, int(q.Arg[0]), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err := errors.Join(err, syscall.Close(q.file)); err != nil {
		return reply{}, err
	}
	c, err := find[*primary](p, q.Context)
	if err == nil {
		err = c.LockHost(b)
	}
	if err != nil {
		return reply{}, errors.Join(err, syscall.Munmap(b))
	}
	return number(p.add(host(b)), nil)
}

func (p *program) unlockHost(c *primary, q *question) (reply, error) {
	b, err := find[host](p, q.Arg[0])
	if err != nil {
		return reply{}, err
	}
	delete(p.objects, q.Arg[0])
	_, err = c.UnlockHost(b)
	return reply{}, errors.Join(err, syscall.Munmap(b))
}

// host is the host memory of a copy, given by handle, offset and size, which the library has checked.
func (p *program) host(q *question) ([]byte, error) {
	b, err := find[host](p, q.Arg[1])
	if err != nil {
		return nil, err
	}
	return b[q.Arg[2]:][:q.Arg[3]], nil
}

// attributeOfFunction is an attribute by its number in cuda.h.
func (p *program) attributeOfFunction(q *question) (reply, error) {
	f, err := find[driver.Function](p, q.Arg[1])
	if err != nil {
		return reply{}, err
	}
	u, err := f.Use()
	switch q.Arg[0] {
	case 1:
		return number(f.(interface{ Shared() int }).Shared(), err)
	case 3:
		return number(u.Local, err)
	case 4:
		return number(u.Registers, err)
	}
	return reply{}, fmt.Errorf("attribute %d of a kernel is not simulated", q.Arg[0])
}
