// Package dist connects the processes of one training run, its ranks: what they exchange,
// how they find each other, and how they notice that one is gone.
//
// A group moves bytes and computes nothing: adding up is left to the caller, which knows
// the order. That keeps sums the same for any number of ranks.
package dist

import (
	"encoding/binary"
	"fmt"
)

// Group is one rank's end of a group of processes. Every rank makes the same calls in the
// same order, one at a time, with the same sizes; if the kind or the size of a call
// differs between two ranks, both get an error. After an error the group can only be
// closed.
type Group interface {
	// Rank is the number of this process, World the number of processes.
	Rank() int
	World() int
	// AllToAll sends send[r] to each rank r and fills recv[r] with what r sent to this
	// rank; this rank's own part is copied.
	AllToAll(send, recv [][]byte) error
	// AllGather sends parts[Rank] to all ranks and fills the other parts with theirs.
	AllGather(parts [][]byte) error
	// Broadcast fills data with the root's data.
	Broadcast(root int, data []byte) error
	// Leave ends this rank's part. If cause, a failure, is not nil, the other ranks get
	// an [EndedError] with its text, and Leave may be called during another call, which
	// then ends with an error. Leaving twice does nothing.
	Leave(cause error) error
}

// Watched is a group whose ranks send each other signs of life, apart from the data they
// exchange. An engine that cannot detect a lost rank by itself can use it to do so.
type Watched interface {
	Group
	// Ended is closed when a rank is lost or has failed: no call can succeed any more.
	Ended() <-chan struct{}
	// Cause returns why a call that involves rank r failed with err: what ended the
	// group, even if the news of that is still on the way.
	Cause(r int, err error) error
}

// Gather gives every rank the data of each rank, all of one size.
func Gather(g Group, own []byte) (parts [][]byte, err error) {
	parts = make([][]byte, g.World())
	for r := range parts {
		parts[r] = make([]byte, len(own))
	}
	parts[g.Rank()] = own
	return parts, g.AllGather(parts)
}

// Barrier returns once every rank has called it.
func Barrier(g Group) error {
	_, err := Gather(g, make([]byte, 1))
	return err
}

// maxSized bounds a message whose size only its sender knows.
const maxSized = 1 << 30

// BroadcastSized gives every rank the root's data, of any size up to 1 GiB.
func BroadcastSized(g Group, root int, data []byte) ([]byte, error) {
	var size [8]byte
	if g.Rank() == root {
		binary.LittleEndian.PutUint64(size[:], uint64(len(data)))
	}
	if err := g.Broadcast(root, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxSized {
		return nil, fmt.Errorf("rank %d broadcasts %d bytes, more than the %d allowed", root, n, maxSized)
	}
	if g.Rank() != root {
		data = make([]byte, n)
	}
	return data, g.Broadcast(root, data)
}

// AllGatherSized gives every rank the data of each rank, of any sizes up to 1 GiB.
func AllGatherSized(g Group, data []byte) ([][]byte, error) {
	parts, err := Gather(g, binary.LittleEndian.AppendUint64(nil, uint64(len(data))))
	if err != nil {
		return nil, err
	}
	for r := range parts {
		n := binary.LittleEndian.Uint64(parts[r])
		if n > maxSized {
			return nil, fmt.Errorf("rank %d sends %d bytes, more than the %d allowed", r, n, maxSized)
		}
		if parts[r] = data; r != g.Rank() {
			parts[r] = make([]byte, n)
		}
	}
	return parts, g.AllGather(parts)
}

// LostError reports a rank that is gone without having said why.
type LostError struct {
	Rank int
	Why  string
}

func (e *LostError) Error() string {
	return fmt.Sprintf("rank %d was lost: %s; start the run again with --resume, with as many processes as are left or more", e.Rank, e.Why)
}

// ExitCode is 7: a process was lost.
func (*LostError) ExitCode() int { return 7 }

// EndedError reports a rank that ended with an error of its own.
type EndedError struct {
	Rank int
	Text string
}

func (e *EndedError) Error() string { return fmt.Sprintf("rank %d failed: %s", e.Rank, e.Text) }
