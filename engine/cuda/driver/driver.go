// Package driver is the part of the CUDA driver API that snug needs, as Go
// interfaces. [Open] gives the real one, from libcuda.so.1; tests put one in its
// place that interprets kernels (engine/cuda/fakegpu).
//
// All methods report what the driver said as an [*Error]. None of them is safe
// for concurrent use on one object unless it says so.
package driver

import "time"

// Ptr is an address in a card's memory.
type Ptr uint64

// Driver is the installed driver.
type Driver interface {
	// Version is the CUDA version that the driver supports, 1000*major + 10*minor.
	Version() int
	// Cards are the cards of this machine, in the driver's order.
	Cards() ([]Card, error)
	// Open makes the primary context of a card ready for use.
	Open(card int) (Context, error)
}

// Card describes a card before it is opened.
type Card struct {
	Index int
	Name  string
	// UUID is the card's identity for NVML, "GPU-...", or "MIG-..." of a slice of one.
	UUID string
	// Major and Minor are the compute capability.
	Major, Minor int
	// SMs is the number of multiprocessors.
	SMs int
	// Memory is the total memory in bytes.
	Memory int64
	// ClockKHz and MemoryClockKHz are the peak rates, BusBits the memory's width.
	ClockKHz, MemoryClockKHz, BusBits int
}

// Capability is the compute capability as in sm_75.
func (c Card) Capability() int { return 10*c.Major + c.Minor }

// Context is an opened card. It is safe for concurrent use.
type Context interface {
	Card() Card
	// Driver is the one that opened it.
	Driver() Driver
	// Memory is the free and the total memory of the card in bytes.
	Memory() (free, total int64, err error)
	// Alloc reserves memory of the card; its contents are undefined.
	Alloc(bytes int64) (Ptr, error)
	Free(p Ptr) error
	// AllocHost reserves page-locked memory of the host, which copies may use while
	// the host continues.
	AllocHost(bytes int64) ([]byte, error)
	FreeHost(b []byte) error
	// Load makes kernels of PTX, which the driver assembles, or has kept assembled (see
	// [CachePath]).
	Load(ptx string) (Module, error)
	NewStream() (Stream, error)
	// NewEvent makes an event, which knows its time if it is to: others are cheaper.
	NewEvent(timed bool) (Event, error)
	// Do calls f on a thread that the context is current on, which NVIDIA's other
	// libraries ask for.
	Do(f func() error) error
	// Bind makes the context current on the calling thread from now on: for a goroutine
	// that is locked to it.
	Bind() error
	// Close releases the context. Everything made in it must be gone.
	Close() error
}

// The driver keeps the code that it assembles of PTX in a folder, for later processes. It
// finds these variables in the environment.
const (
	CachePath    = "CUDA_CACHE_PATH"    // the folder
	CacheSize    = "CUDA_CACHE_MAXSIZE" // how many bytes the folder may take
	CacheDisable = "CUDA_CACHE_DISABLE" // 1: nothing is kept
)

// Module is assembled code.
type Module interface {
	// Function finds a kernel by its name.
	Function(name string) (Function, error)
	Unload() error
}

// Function is a kernel.
type Function interface {
	Name() string
	// Use is what the assembler made a thread take.
	Use() (Use, error)
}

// Use is what a thread of a kernel takes.
type Use struct {
	Registers int `json:"registers"`
	// Local is memory in bytes: where it is not zero, registers were spilled.
	Local int `json:"local_bytes"`
}

// Launch is a grid of blocks of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	// Params are the kernel's parameters, packed with their natural alignment.
	Params []byte
}

// Stream is a queue of work on a card. Its calls return before the work is done,
// but for Sync and EndCapture. Host memory of copies must come from AllocHost.
type Stream interface {
	CopyIn(to Ptr, from []byte) error
	CopyOut(to []byte, from Ptr) error
	// Clear writes zeros.
	Clear(p Ptr, bytes int64) error
	Launch(f Function, l Launch) error
	// Record puts an event into the queue; Wait makes the queue wait for one
	// that was recorded.
	Record(e Event) error
	Wait(e Event) error
	// Sync waits for everything in the queue and reports what went wrong in it.
	Sync() error
	// Done reports whether everything in the queue is done, without waiting.
	Done() (bool, error)
	// BeginCapture makes the calls that follow part of a graph instead of running
	// them, until EndCapture.
	BeginCapture() error
	EndCapture() (Graph, error)
	// Upload puts what a captured graph needs on the card. Its first replay would do that else, and
	// take memory then.
	Upload(g Graph) error
	// Replay runs a captured graph.
	Replay(g Graph) error
	// Handle is the stream as NVIDIA's other libraries know it.
	Handle() uintptr
	Close() error
}

// Event marks a point in a stream.
type Event interface {
	// Sync waits until what was queued before the event is done.
	Sync() error
	// Since is the time that the card took from an earlier event to this one. Both
	// are done, and timed.
	Since(earlier Event) (time.Duration, error)
	Close() error
}

// Graph is captured work, ready to be replayed.
type Graph interface {
	Close() error
}
