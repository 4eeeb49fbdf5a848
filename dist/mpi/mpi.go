// Package mpi exchanges data between the ranks of a group over an installed MPI library, loaded
// on demand, without cgo. The ranks have found each other by other means (package dist), and go
// on sending each other signs of life there: MPI itself does not report that a rank is gone.
//
// It knows the native interfaces of Open MPI 4 and 5, of MPICH 3.1 to 5 and of libraries built to
// its interface (Intel MPI, MVAPICH, Cray), and the standard one of MPI 5.0.
package mpi

import "errors"

// Library is an MPI library that was found.
type Library struct {
	Path string
	// Version is the library's own version string, such as "Open MPI v4.1.4".
	Version string
	// ABI is its binary interface: Open MPI, MPICH or MPI 5.
	ABI string
}

func (l *Library) String() string { return l.Version + " (" + l.Path + ")" }

// Launched refuses a process that was not started by an MPI launcher: a library would find it
// alone in the world.
func Launched(getenv func(string) string) error {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"} {
		if getenv(name) != "" {
			return nil
		}
	}
	return errors.New("no launcher of MPI has started this process: start it by the mpirun or mpiexec of an MPI library, or by srun with --mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI)")
}

// The bytes that one rank sends another in a call go in messages of at most slotBytes, the
// first of which begins with a header. Each is copied to a slot, and its message is sent
// while the next slot is filled. MPI counts bytes in 32 bits: no message comes near that.
const (
	slots = 2

	mostSlotBytes  = 1 << 20
	leastSlotBytes = 64 << 10
	mostStaged     = 32 << 20 // in all, unless the minimum of slots needs more
)

// slotBytes returns the size of a slot, the same on all ranks.
func slotBytes(world int) int {
	return max(leastSlotBytes, min(mostSlotBytes, mostStaged/(2*slots*max(1, world-1)))) &^ 63
}

// StagingBytes returns the memory of a rank that messages are sent from and received
// into. The library needs more of its own.
func StagingBytes(world int) int64 {
	return int64(2*slots*slotBytes(world)) * int64(max(0, world-1))
}
