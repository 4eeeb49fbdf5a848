// Package mpi exchanges what the ranks of a group send each other over an MPI library: one that
// is installed, loaded when it is asked for, without cgo. The ranks have found each other by
// other means (package dist), and go on giving each other signs of life there: MPI itself does
// not say that a rank is gone.
//
// Known are the native interfaces of Open MPI 4 and 5, of MPICH 3.1 to 5 and what is built to its
// interface (Intel MPI, MVAPICH, Cray), and the standard one of MPI 5.0.
package mpi

import "errors"

// Library is an MPI library that was found.
type Library struct {
	Path string
	// Version is what it says of itself, such as "Open MPI v4.1.4".
	Version string
	// ABI is the binary interface that it has: Open MPI, MPICH or MPI 5.
	ABI string
}

func (l *Library) String() string { return l.Version + " (" + l.Path + ")" }

// Launched refuses a process that no launcher of MPI has started: a library would find it alone in
// the world.
func Launched(getenv func(string) string) error {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"} {
		if getenv(name) != "" {
			return nil
		}
	}
	return errors.New("no launcher of MPI has started this process: start it by the mpirun or mpiexec of an MPI library, or by srun with --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI)")
}

// What one rank sends another in a call goes in messages of at most slotBytes, the first of
// which begins with a header. Each is copied to a slot, whose message is sent while the next
// slot is filled. MPI counts bytes in 32 bits: no message comes near that.
const (
	slots = 2

	mostSlotBytes  = 1 << 20
	leastSlotBytes = 64 << 10
	mostStaged     = 32 << 20 // in all, unless the least slots need more
)

// slotBytes is the size of a slot, the same on all ranks.
func slotBytes(world int) int {
	return max(leastSlotBytes, min(mostSlotBytes, mostStaged/(2*slots*max(1, world-1)))) &^ 63
}

// StagingBytes is the memory of a rank that messages are sent from and received into. The
// library has more of its own.
func StagingBytes(world int) int64 {
	return int64(2*slots*slotBytes(world)) * int64(max(0, world-1))
}
