//go:build nocuda || !linux || !(amd64 || arm64)

package nccl

import (
	"context"
	"errors"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/internal/dynlib"
)

// Library is NCCL.
type Library struct{}

// Communicator is one rank's end of a set of ranks that exchange memory of their cards.
type Communicator struct{}

var errNone = errors.New("this build of snug has no CUDA: " + dynlib.Without)

// Open reports that this build loads no libraries.
func Open([]string) (*Library, error) { return nil, errNone }

// OpenFile reports that this build loads no libraries.
func OpenFile(string) (*Library, error) { return nil, errNone }

func (*Library) String() string { return "no NCCL" }

// Version returns 0.
func (*Library) Version() Version { return 0 }

// Connect reports that this build has no CUDA.
func (*Library) Connect(context.Context, dist.Watched, Stream) (*Communicator, error) {
	return nil, errNone
}

// AllToAll reports that this build has no CUDA.
func (*Communicator) AllToAll(_, _ []Buffer) error { return errNone }

// AllGather reports that this build has no CUDA.
func (*Communicator) AllGather([]Buffer) error { return errNone }

// Broadcast reports that this build has no CUDA.
func (*Communicator) Broadcast(int, Buffer) error { return errNone }

// Leave does nothing.
func (*Communicator) Leave(error) error { return nil }
