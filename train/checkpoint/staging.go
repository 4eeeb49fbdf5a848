package checkpoint

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/internal/offheap"
)

// pieceBytes is how much of a tensor is read, staged and written at a time.
const pieceBytes = 1 << 20

// maxStaging bounds what is staged. It is what an update may change before the writer
// has read it: the writer works through it in a fraction of a second, and a model that
// fits in is staged whole, so that no update waits.
const maxStaging = 64 << 20

// StagingBytes is the memory that a save of tensors of these sizes needs; it is allocated
// once and is part of a memory plan.
func StagingBytes(sizes ...int64) int64 {
	all, piece := int64(0), int64(0)
	for _, n := range sizes {
		all += rounded(n)
		piece = max(piece, min(rounded(n), pieceBytes))
	}
	return min(all, maxStaging) + piece
}

// rounded is n rounded up to a cache line.
func rounded(n int64) int64 { return (n + 63) &^ 63 }

// staging is memory of which pieces are taken and given back in any order. It is not safe
// for concurrent use.
type staging struct {
	memory []byte
	piece  []byte // the writer's own
	free   []span // in order, neighbors joined
}

type span struct{ at, n int64 }

// resize makes room for tensors that need the given bytes, unless there is enough.
func (s *staging) resize(bytes int64) error {
	if int64(len(s.memory)) >= bytes {
		return nil
	}
	memory, err := offheap.Allocate(bytes)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	old := s.memory
	s.memory = memory
	return offheap.Release(old)
}

// reset gives everything back. The last piece bytes are the writer's.
func (s *staging) reset(piece int64) {
	n := int64(len(s.memory)) - piece
	s.piece = s.memory[n:]
	s.free = append(s.free[:0], span{0, n})
}

// take finds room for n bytes.
func (s *staging) take(n int) (at int64, ok bool) {
	need := rounded(int64(n))
	for i := range s.free {
		f := &s.free[i]
		if f.n < need {
			continue
		}
		at = f.at
		f.at, f.n = f.at+need, f.n-need
		if f.n == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		return at, true
	}
	return 0, false
}

// give gives back what take found.
func (s *staging) give(at int64, n int) {
	size := rounded(int64(n))
	i, _ := slices.BinarySearchFunc(s.free, at, func(f span, at int64) int { return int(f.at - at) })
	s.free = slices.Insert(s.free, i, span{at, size})
	if i+1 < len(s.free) && at+size == s.free[i+1].at {
		s.free[i].n += s.free[i+1].n
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].at+s.free[i-1].n == at {
		s.free[i-1].n += s.free[i].n
		s.free = slices.Delete(s.free, i, i+1)
	}
}

// bytes is what was taken at a place.
func (s *staging) bytes(at int64, n int) []byte { return s.memory[at : at+int64(n)] }

// release gives the memory back to the system.
func (s *staging) release() error {
	err := offheap.Release(s.memory)
	*s = staging{}
	return err
}
