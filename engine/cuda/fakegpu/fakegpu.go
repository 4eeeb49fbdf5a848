// Package fakegpu is a CUDA driver without a card, for tests: kernels run in the
// interpreter of PTX, everything queued in a stream happens as late as the driver's
// contract allows, and any call can be made to fail.
package fakegpu

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// T4 is the card that snug is made for.
var T4 = driver.Card{
	Name: "Tesla T4", UUID: "GPU-00000000-0000-0000-0000-000000000075", Major: 7, Minor: 5, SMs: 40,
	Memory: 14_930 << 20, ClockKHz: 1_590_000, MemoryClockKHz: 5_001_000, BusBits: 256,
}

// A10 is a card that has what the T4 lacks: bf16 and copies that bypass registers.
var A10 = driver.Card{
	Name: "NVIDIA A10", UUID: "GPU-00000000-0000-0000-0000-000000000086", Major: 8, Minor: 6, SMs: 72,
	Memory: 22_515 << 20, ClockKHz: 1_695_000, MemoryClockKHz: 6_251_000, BusBits: 384,
}

// Slice is a part of an A100, as MIG shows it.
var Slice = driver.Card{
	Name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", UUID: "MIG-00000000-0000-0000-0000-000000000080", Major: 8, SMs: 14,
	Memory: 4_864 << 20, ClockKHz: 1_410_000, MemoryClockKHz: 1_215_000, BusBits: 640,
}

// Driver is a driver with the cards that it is given. The zero value has none.
type Driver struct {
	Installed []driver.Card
	// CUDA is the version it supports, as [driver.Driver.Version]; 0: 12.4.
	CUDA int
	// Options are those of every launch.
	Options ptxsim.Options
	// Fail, when set, may make any call fail: it gets the call and returns the
	// error's code, 0 for none.
	Fail func(call string) driver.Code
	// Break, when set, may make a kernel fail when the card comes to it, which the call that waits
	// for it then says: it gets the kernel's name and returns the error's code, 0 for none.
	Break func(kernel string) driver.Code
	// Hold, when set, may keep a call that copies to the host waiting, as a slow bus does.
	Hold func()
	// Early has what other streams do in a graph happen as soon as it may, not as late as it may.
	Early bool
	// Mapped has memory and streams of the cards where a library in C finds them: memory at its own
	// address in main memory, and a stream's handle is the address of its [Shared].
	Mapped bool
	// Corrupt changes a bit of what every copy to the host brings.
	Corrupt bool
	// Taken is memory that others use, in bytes. What is left may be too little for a context.
	Taken int64
	// Refuse is what the assembler writes of the code that it refuses; empty: it takes all.
	Refuse string
	// CublasLt is cuBLASLt on this machine; nil: there is none.
	CublasLt *CublasLt

	// Assembled counts how often PTX was assembled, and not found in the folder of CUDA_CACHE_PATH.
	Assembled int

	mu        sync.Mutex // of contexts
	contexts  []*Context // that were opened
	variables map[string]string
}

// Setenv puts variables into the environment that this driver sees.
func (d *Driver) Setenv(variables map[string]string) { d.variables = variables }

// Left says what was not given back of all that was made on the cards, whether
// they were closed or not. A card that was lost takes everything with it.
func (d *Driver) Left() error {
	var errs []error
	for _, c := range d.contexts {
		if c.lost == nil {
			errs = append(errs, c.left())
		}
	}
	if d.CublasLt != nil {
		errs = append(errs, d.CublasLt.Left())
	}
	return errors.Join(errs...)
}

// Version implements [driver.Driver].
func (d *Driver) Version() int {
	if d.CUDA == 0 {
		return 12040
	}
	return d.CUDA
}

// Cards implements [driver.Driver].
func (d *Driver) Cards() ([]driver.Card, error) {
	if err := d.call("cuDeviceGetCount"); err != nil {
		return nil, err
	}
	if len(d.Installed) == 0 {
		return nil, &driver.Error{Call: "cuInit", Code: driver.NoDevice}
	}
	cards := make([]driver.Card, len(d.Installed))
	for i, c := range d.Installed {
		cards[i], cards[i].Index = c, i
	}
	return cards, nil
}

// Open implements [driver.Driver].
func (d *Driver) Open(card int) (driver.Context, error) {
	cards, err := d.Cards()
	if err == nil {
		err = d.call("cuDevicePrimaryCtxRetain")
	}
	if err != nil {
		return nil, err
	}
	if card < 0 || card >= len(cards) {
		return nil, &driver.Error{Call: "cuDeviceGet", Code: driver.InvalidDevice}
	}
	if cards[card].Memory-d.Taken < leastContext {
		return nil, &driver.Error{Call: "cuDevicePrimaryCtxRetain", Code: driver.OutOfMemory}
	}
	c := &Context{driver: d, card: cards[card], memory: ptxsim.NewMemory(cards[card].Memory - d.Taken), hosts: map[*byte]int{}, streams: map[uintptr]*stream{}}
	if d.Mapped {
		c.memory.Map()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.contexts = append(d.contexts, c)
	return c, nil
}

// leastContext is the memory without which a card cannot be opened. Once it is, the contexts of this
// driver take none.
const leastContext = 64 << 20

// Library is cuBLASLt for these cards.
func (d *Driver) Library() (cublaslt.Library, error) {
	if d.CublasLt == nil {
		return nil, &cublaslt.Absent{Why: "cuBLASLt is not installed (libcublasLt.so was not found)"}
	}
	return d.CublasLt, nil
}

func (d *Driver) call(name string) error {
	if d.Fail != nil {
		if code := d.Fail(name); code != 0 {
			return &driver.Error{Call: name, Code: code}
		}
	}
	return nil
}

// Context is an opened card. It, its streams and its events may be used by several
// goroutines, as those of the driver.
type Context struct {
	mu     sync.Mutex // of everything below but the driver and the card
	driver *Driver
	card   driver.Card
	memory *ptxsim.Memory
	hosts  map[*byte]int // page-locked memory
	// lost is the error after which nothing works any more.
	lost *driver.Error
	// clock is the time that the card took so far; see kernelTime.
	clock time.Duration
	// streams are those that are open, by their handles.
	streams map[uintptr]*stream
	open    int // streams, events, modules and graphs that are not closed
}

func (c *Context) call(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return &driver.Error{Call: name, Code: c.lost.Code, Log: c.lost.Log}
	}
	err := c.driver.call(name)
	var e *driver.Error
	if errors.As(err, &e) && e.Code.Sticky() {
		c.lost = e
	}
	return err
}

// closing counts an object that is given back, and calls.
func (c *Context) closing(name string) error {
	c.mu.Lock()
	c.open--
	c.mu.Unlock()
	return c.call(name)
}

// opening calls, and counts an object where nothing is wrong.
func (c *Context) opening(name string) error {
	err := c.call(name)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open++
	}
	return err
}

// Card implements [driver.Context].
func (c *Context) Card() driver.Card { return c.card }

// Driver implements [driver.Context].
func (c *Context) Driver() driver.Driver { return c.driver }

// Memory implements [driver.Context].
func (c *Context) Memory() (free, total int64, err error) {
	err = c.call("cuMemGetInfo")
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.card.Memory - c.driver.Taken - c.memory.Used(), c.card.Memory, err
}

// Alloc implements [driver.Context]. The memory is full of NaN.
func (c *Context) Alloc(bytes int64) (driver.Ptr, error) {
	if err := c.call("cuMemAlloc"); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.memory.Alloc(max(bytes, 1))
	if err != nil {
		return 0, &driver.Error{Call: "cuMemAlloc", Code: driver.OutOfMemory}
	}
	b, err := c.memory.Bytes(p, int(max(bytes, 1)))
	for i := range b {
		b[i] = 0xff
	}
	return driver.Ptr(p), err
}

// Do implements [driver.Context]. cuBLASLt asks for the context.
func (c *Context) Do(f func() error) error {
	if err := c.call("cuCtxSetCurrent"); err != nil {
		return err
	}
	if l := c.driver.CublasLt; l != nil {
		l.current = c
		defer func() { l.current = nil }()
	}
	return f()
}

// Bind implements [driver.Context].
func (c *Context) Bind() error { return c.call("cuCtxSetCurrent") }

// Free implements [driver.Context]. Like every call that releases something it does
// so even where it fails, with the error of an earlier call.
func (c *Context) Free(p driver.Ptr) error {
	c.mu.Lock()
	err := c.memory.Free(uint64(p))
	c.mu.Unlock()
	return errors.Join(err, c.call("cuMemFree"))
}

// AllocHost implements [driver.Context].
func (c *Context) AllocHost(bytes int64) ([]byte, error) {
	if err := c.call(driver.HostAlloc); err != nil {
		return nil, err
	}
	b := make([]byte, max(bytes, 1))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[&b[0]] = len(b)
	return b[:bytes], nil
}

// FreeHost implements [driver.Context].
func (c *Context) FreeHost(b []byte) error {
	first := &b[:1][0]
	c.mu.Lock()
	_, ok := c.hosts[first]
	delete(c.hosts, first)
	c.mu.Unlock()
	if !ok {
		return &driver.Error{Call: "cuMemFreeHost", Code: driver.InvalidValue}
	}
	return c.call("cuMemFreeHost")
}

// Close implements [driver.Context]. What is still open is an error, which the
// driver would not report.
func (c *Context) Close() error {
	if err := c.call("cuDevicePrimaryCtxRelease"); err != nil {
		return err
	}
	return c.left()
}

func (c *Context) left() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != 0 || c.memory.Used() != 0 || len(c.hosts) != 0 {
		return fmt.Errorf("the context is closed with %d objects, %d bytes of the card's memory and %d buffers of the host's left", c.open, c.memory.Used(), len(c.hosts))
	}
	return nil
}
