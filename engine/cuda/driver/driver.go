// Package driver is the part of the CUDA driver API that snug needs, as Go interfaces. [Open] loads the real
// driver, from libcuda.so.1; tests use one that interprets kernels instead (engine/cuda/fakegpu).
//
// All methods return the driver's errors as an [*Error]. No method is safe for concurrent use on one object
// unless its documentation says so.
package driver

import "time"

// Ptr is an address in a card's memory.
type Ptr uint64

// Driver is the installed driver.
type Driver interface {
	// Version is the CUDA version that the driver supports, 1000*major + 10*minor.
	Version() int
	// Cards lists the cards of this machine, in the driver's order.
	Cards() ([]Card, error)
	// Open opens the primary context of a card.
	Open(card int) (Context, error)
}

// Card describes a card before it is opened.
type Card struct {
	Index int
	Name  string
	// UUID identifies the card to NVML: "GPU-...", or "MIG-..." for a slice of a card.
	UUID string
	// Major and Minor are the compute capability.
	Major, Minor int
	// SMs is the number of multiprocessors.
	SMs int
	// Memory is the total memory in bytes.
	Memory int64
	// ClockKHz and MemoryClockKHz are the peak clock rates, BusBits the width of the memory bus.
	ClockKHz, MemoryClockKHz, BusBits int
}

// Capability is the compute capability as in sm_75.
func (c Card) Capability() int { return 10*c.Major + c.Minor }

// Context is an opened card. It is safe for concurrent use.
type Context interface {
	Card() Card
	// Driver returns the driver that opened the context.
	Driver() Driver
	// Memory returns the card's free and total memory in bytes.
	Memory() (free, total int64, err error)
	// Alloc reserves memory on the card; its contents are undefined.
	Alloc(bytes int64) (Ptr, error)
	Free(p Ptr) error
	// AllocHost reserves page-locked memory on the host, which copies may use while the host continues.
	AllocHost(bytes int64) ([]byte, error)
	FreeHost(b []byte) error
	// Load loads kernels from PTX, which the driver assembles unless it finds them already assembled (see
	// [CachePath]).
	Load(ptx string) (Module, error)
	NewStream() (Stream, error)
	// NewEvent makes an event. Events that need not record their time are cheaper.
	NewEvent(timed bool) (Event, error)
	// Do calls f on a thread on which the context is current, as NVIDIA's other libraries require.
	Do(f func() error) error
	// Bind makes the context current on the calling thread from now on, for a goroutine that is locked to its
	// thread.
	Bind() error
	// Close releases the context. Everything made in it must be freed before.
	Close() error
}

// Describer is implemented by contexts that say in which line of the PTX an error of a kernel happened.
type Describer interface {
	// LoadDescribed is Load with what generated lines are for, counted from 1; empty: the line is not generated.
	LoadDescribed(ptx string, says func(line int) string) (Module, error)
}

// The driver keeps code assembled from PTX in a folder, for later processes. It reads these environment
// variables.
const (
	CachePath    = "CUDA_CACHE_PATH"    // the folder
	CacheSize    = "CUDA_CACHE_MAXSIZE" // the most bytes that the folder may take
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
	// Use returns the resources that each thread takes in the assembled code.
	Use() (Use, error)
}

// Use is the resources of each thread of a kernel.
type Use struct {
	Registers int `json:"registers"`
	// Local is local memory in bytes: if it is not zero, registers were spilled.
	Local int `json:"local_bytes"`
}

// Launch is a grid of blocks of a kernel.
type Launch struct {
	Grid, Block [3]uint32
	// Params are the kernel's parameters, packed with their natural alignment.
	Params []byte
}

// Stream is a queue of work on a card. Its calls return before the work is done, except Sync and EndCapture.
// Host memory that is copied must come from AllocHost.
type Stream interface {
	CopyIn(to Ptr, from []byte) error
	CopyOut(to []byte, from Ptr) error
	// Clear writes zeros.
	Clear(p Ptr, bytes int64) error
	Launch(f Function, l Launch) error
	// Record puts an event into the queue; Wait makes the queue wait for an event that was recorded.
	Record(e Event) error
	Wait(e Event) error
	// Sync waits for everything in the queue and returns any error of it.
	Sync() error
	// Done reports, without waiting, whether everything in the queue is done.
	Done() (bool, error)
	// BeginCapture makes later calls, until EndCapture, part of a graph instead of running them.
	BeginCapture() error
	EndCapture() (Graph, error)
	// Upload puts what a captured graph needs on the card. Otherwise the first replay would do so, and
	// allocate memory then.
	Upload(g Graph) error
	// Replay runs a captured graph.
	Replay(g Graph) error
	// Handle is the stream's handle for NVIDIA's other libraries.
	Handle() uintptr
	Close() error
}

// Spoiler is implemented by streams of drivers that can make reads of stale memory show.
type Spoiler interface {
	// Spoil says that what memory holds at this point of the stream must not be read.
	Spoil(p Ptr, bytes int64) error
}

// Event marks a point in a stream.
type Event interface {
	// Sync waits until everything queued before the event is done.
	Sync() error
	// Since is the time on the card from an earlier event to this one. Both must be done, and timed.
	Since(earlier Event) (time.Duration, error)
	Close() error
}

// Graph is captured work that can be replayed.
type Graph interface {
	Close() error
}
