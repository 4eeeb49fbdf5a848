// Package nccl exchanges the memory of NVIDIA cards between the ranks of a group by NVIDIA's NCCL,
// where that is installed: it is loaded when it is asked for, without cgo. The ranks have found
// each other by other means (package dist), which carry the communicator's id and go on to
// notice that one is gone: then the communicator is aborted.
//
// Communicators do not block: calls return at once, and their state is asked for until they are
// through. What is exchanged runs on a stream of the caller's, and a call returns when the
// stream has done it.
package nccl

import "fmt"

// Buffer is memory of the card: its address and its size.
type Buffer struct {
	Address uintptr
	Bytes   int64
}

// Stream is a stream of a card's work, whoever made it.
type Stream interface {
	// Bind makes the stream's card that of the calling thread.
	Bind() error
	// Handle is the stream's cudaStream_t, which is the driver's CUstream.
	Handle() uintptr
	// Done reports whether all work on the stream is done, without waiting for it.
	Done() (bool, error)
}

// Version is major, minor and patch in one number, as NCCL has them since 2.9: 21403 is 2.14.3.
type Version int

func (v Version) String() string {
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// oldest has communicators that do not block.
const oldest Version = 21400

// idBytes is the size of a communicator's id.
const idBytes = 128
