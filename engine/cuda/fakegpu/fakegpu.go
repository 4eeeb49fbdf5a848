// Package fakegpu is a CUDA driver without a card, for tests: kernels run in a PTX interpreter, work queued
// in a stream happens as late as the driver's contract allows, and any call can be made to fail.
package fakegpu

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/internal/offheap"
)

// T4 is the card that snug is primarily made for.
var T4 = driver.Card{
	Name: "Tesla T4", UUID: "GPU-00000000-0000-0000-0000-000000000075", Major: 7, Minor: 5, SMs: 40,
	Memory: 14_930 << 20, ClockKHz: 1_590_000, MemoryClockKHz: 5_001_000, BusBits: 256,
}

// A10 is a card with features that the T4 lacks: bf16 and copies that bypass registers.
var A10 = driver.Card{
	Name: "NVIDIA A10", UUID: "GPU-00000000-0000-0000-0000-000000000086", Major: 8, Minor: 6, SMs: 72,
	Memory: 22_515 << 20, ClockKHz: 1_695_000, MemoryClockKHz: 6_251_000, BusBits: 384,
}

// H100 is a large card: work is divided in more parts for it.
var H100 = driver.Card{
	Name: "NVIDIA H100 80GB HBM3", UUID: "GPU-00000000-0000-0000-0000-000000000090", Major: 9, SMs: 132,
	Memory: 81_079 << 20, ClockKHz: 1_980_000, MemoryClockKHz: 2_619_000, BusBits: 5_120,
}

// Slice is a part of an A100, as MIG presents it.
var Slice = driver.Card{
	Name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", UUID: "MIG-00000000-0000-0000-0000-000000000080", Major: 8, SMs: 14,
	Memory: 4_864 << 20, ClockKHz: 1_410_000, MemoryClockKHz: 1_215_000, BusBits: 640,
}

// Driver is a driver with the given cards. The zero value has none.
type Driver struct {
	Installed []driver.Card
	// CUDA is the version that it supports, as in [driver.Driver.Version]; 0: 12.4.
	CUDA int
	// Options apply to every launch.
	Options ptxsim.Options
	// Fail, if set, may make any call fail: it is given the call's name and returns the error's code, 0 for
	// none.
	Fail func(call string) driver.Code
	// Break, if set, may make a kernel fail when the card runs it, which is reported by the call that waits
	// for it. It is given the kernel's name and returns the error's code, 0 for none.
	Break func(kernel string) driver.Code
	// Hold, if set, may delay a call that copies to the host, as a slow bus does.
	Hold func()
	// Early makes work of other streams in a graph happen as early as allowed, not as late as allowed.
	Early bool
	// Mapped puts the cards' memory and streams where a library in C finds them: memory is at its own address
	// in main memory, and a stream's handle is the address of its [Shared].
	Mapped bool
	// Slow multiplies the times between events, so that fewer repetitions are enough to measure a kernel; 0: 1.
	Slow int
	// Idle is the time on the card's clock for which kernels take three times as long, as those of a card whose
	// clocks are still low.
	Idle time.Duration
	// Corrupt flips a bit in every copy to the host.
	Corrupt bool
	// Taken is how many bytes of memory others use. What is left may be too little for a context.
	Taken int64
	// Use is what every kernel takes, as nothing is assembled.
	Use driver.Use
	// Refuse is the assembler's output for code that it rejects; empty: it accepts all.
	Refuse string
	// CublasLt is this machine's cuBLASLt; nil: there is none.
	CublasLt *CublasLt

	// Assembled counts how often PTX was assembled rather than found in the folder of CUDA_CACHE_PATH.
	Assembled int

	mu        sync.Mutex // guards contexts
	contexts  []*Context // all that were ever opened
	variables map[string]string
}

// Setenv sets the environment variables that this driver sees.
func (d *Driver) Setenv(variables map[string]string) { d.variables = variables }

// Left returns an error that lists what was made on the cards, closed or not, and not freed. A lost card
// frees everything.
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

// leastContext is the free memory that opening a card needs. Once open, this driver's contexts take none.
const leastContext = 64 << 20

// Library returns cuBLASLt for these cards.
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

// Context is an opened card. Several goroutines may use it, its streams and its events, as with the real
// driver.
type Context struct {
	mu     sync.Mutex // guards everything below but the driver and the card
	driver *Driver
	card   driver.Card
	memory *ptxsim.Memory
	hosts  map[*byte]int // page-locked memory
	// lost is the error after which every call fails.
	lost *driver.Error
	// clock is the card's time so far; see kernelTime.
	clock time.Duration
	// streams are the open streams, by handle.
	streams map[uintptr]*stream
	open    int // streams, events, modules and graphs not yet closed
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

// closing makes a call that frees an object, and counts it as freed even if the call fails.
func (c *Context) closing(name string) error {
	c.mu.Lock()
	c.open--
	c.mu.Unlock()
	return c.call(name)
}

// opening makes a call and, if it succeeds, counts an object.
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

// Alloc implements [driver.Context]. The memory is filled with NaN.
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
	spoil(b)
	return driver.Ptr(p), err
}

// spoil fills memory with NaN, and with indices that are out of bounds.
func spoil(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// Do implements [driver.Context]. cuBLASLt needs the context to be current.
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

// Free implements [driver.Context]. Like every call that frees something it does so even if it fails, with
// the error of an earlier call.
func (c *Context) Free(p driver.Ptr) error {
	c.mu.Lock()
	err := c.memory.Free(uint64(p))
	c.mu.Unlock()
	return errors.Join(err, c.call("cuMemFree"))
}

// AllocHost implements [driver.Context].
func (c *Context) AllocHost(bytes int64) ([]byte, error) {
	b, err := offheap.Allocate(max(bytes, 1)) // buffers are large, and tests use little of them
	if err != nil {
		return nil, &driver.Error{Call: driver.HostAlloc, Code: driver.OutOfMemory, Log: err.Error()}
	}
	if err := c.LockHost(b); err != nil {
		return nil, errors.Join(err, offheap.Release(b))
	}
	return b[:bytes], nil
}

// LockHost does what AllocHost does, with memory that the caller has made: at least a byte.
func (c *Context) LockHost(b []byte) error {
	if err := c.call(driver.HostAlloc); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hosts[&b[0]] = len(b)
	return nil
}

// FreeHost implements [driver.Context].
func (c *Context) FreeHost(b []byte) error {
	locked, err := c.UnlockHost(b)
	if locked == nil {
		return err
	}
	return errors.Join(err, offheap.Release(locked))
}

// UnlockHost is FreeHost of memory from [Context.LockHost], of which it returns all.
func (c *Context) UnlockHost(b []byte) ([]byte, error) {
	first := &b[:1][0]
	c.mu.Lock()
	n, ok := c.hosts[first]
	delete(c.hosts, first)
	c.mu.Unlock()
	if !ok {
		return nil, &driver.Error{Call: "cuMemFreeHost", Code: driver.InvalidValue}
	}
	return unsafe.Slice(first, n), c.call("cuMemFreeHost")
}

// Close implements [driver.Context]. Objects still open are an error here, which the real driver would not
// report.
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
