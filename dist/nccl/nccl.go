// Package nccl exchanges memory of NVIDIA cards between the ranks of a group with NVIDIA's NCCL,
// where that is installed: it is loaded on demand, without cgo. The ranks have found each other
// by other means (package dist), which carry the communicator's id and go on to detect a lost
// rank: then the communicator is aborted.
//
// Communicators do not block: calls return at once, and their state is polled until they are
// complete. Exchanges run on a stream of the caller's, and a call returns when the stream has
// done its work.
package nccl

import "fmt"

// Buffer is memory of the card: an address and a size.
type Buffer struct {
	Address uintptr
	Bytes   int64
}

// Stream is a stream of a card's work, made by the caller.
type Stream interface {
	// Bind makes the stream's card current on the calling thread.
	Bind() error
	// Handle is the stream's cudaStream_t, which is the driver's CUstream.
	Handle() uintptr
	// Done reports whether all work on the stream is done, without waiting for it.
	Done() (bool, error)
}

// Version is major, minor and patch in one number, as NCCL has encoded them since 2.9: 21403 is
// 2.14.3.
type Version int

func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// oldest is the first version with non-blocking communicators.
const oldest Version = 21400

// idBytes is the size of a communicator's id.
const idBytes = 128
