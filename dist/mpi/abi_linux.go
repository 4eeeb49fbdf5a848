//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/internal/dynlib"
)

// abi is a binary interface: the values behind the names in the header mpi.h, as far as they
// are used here.
type abi struct {
	name                       string
	world, bytes, returnErrors uintptr // MPI_COMM_WORLD, MPI_BYTE, MPI_ERRORS_RETURN
	ignoreStatus               uintptr // MPI_STATUS_IGNORE
	funneled                   uintptr // MPI_THREAD_FUNNELED
}

var (
	// mpich is the interface of MPICH since 3.1, by the agreement of its vendors
	// (mpich.org/abi): handles are ints.
	mpich = abi{name: "MPICH", world: 0x44000000, bytes: 0x4c00010d, returnErrors: 0x54000001, ignoreStatus: 1, funneled: 1}
	// standard is chapter 20 of MPI 5.0; the values are from the header in
	// github.com/mpi-forum/mpi-abi-stubs.
	standard = abi{name: "MPI 5", world: 0x101, bytes: 0x247, returnErrors: 0x143, ignoreStatus: 0, funneled: 1024}
)

// openMPI returns the interface of Open MPI 4 and 5, whose handles are the addresses of
// variables.
func openMPI(handle uintptr) (a abi, err error) {
	a = abi{name: "Open MPI", ignoreStatus: 0, funneled: 1}
	missing := dynlib.Find(handle, map[string]*uintptr{
		"ompi_mpi_comm_world": &a.world, "ompi_mpi_byte": &a.bytes, "ompi_mpi_errors_return": &a.returnErrors,
	})
	if len(missing) > 0 {
		return a, fmt.Errorf("an Open MPI without %s, which versions 4 and 5 have", missing[0])
	}
	return a, nil
}

// abiOf determines which interface a library has. MPI_Abi_get_version confirms that of MPI 5;
// a library of version 5 with another interface answers -1; older ones have no such function.
func abiOf(handle uintptr, version string) (abi, error) {
	if _, err := purego.Dlsym(handle, "ompi_mpi_comm_world"); err == nil {
		return openMPI(handle)
	}
	if f, err := purego.Dlsym(handle, "MPI_Abi_get_version"); err == nil {
		var major, minor int32
		if code := invoke(f, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))); code == 0 && major == 1 {
			return standard, nil
		} else if code == 0 && major > 1 {
			return abi{}, fmt.Errorf("%s has version %d.%d of the standard interface: 1 is known", version, major, minor)
		}
	}
	if strings.HasPrefix(version, "Open MPI") {
		return abi{}, fmt.Errorf("%s has an interface that is not known: want version 4 or 5, or a libmpi_abi.so", version)
	}
	return mpich, nil
}
