//go:build linux

// Package libcuda gives programs that load NVIDIA's driver simulated cards (engine/cuda/fakegpu): it builds a
// libcuda.so.1, and a libcublasLt.so.12, whose functions are answered by this process. Code that loads the real
// libraries, which is engine/cuda/driver, engine/cuda/cublaslt and programs as released, can then run and be tested
// without a card.
package libcuda

import (
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

//go:embed src
var sources embed.FS

// Machine is a computer with simulated cards, as seen by programs that load the driver.
type Machine struct {
	folder   string
	listener *net.UnixListener
	driver   func() *fakegpu.Driver
	served   sync.WaitGroup

	mu       sync.Mutex
	programs int     // how many have loaded the library
	problems []error // misuse of the driver, and faults of kernels
	running  map[*net.UnixConn]bool
}

// longestSocket is the most bytes that the path of a socket may have (unix(7)).
const longestSocket = 107

// CublasLt is the name of the library of matmuls, of a version that the simulated driver can use.
const CublasLt = "libcublasLt.so.12"

// Start builds the library in a folder, and that of matmuls if the driver has one, and answers the programs that load
// them, each with a driver of its own. Definitions are those of libcuda.c. The error is [dynlibtest.ErrNoCompiler] if
// there is no C compiler.
func Start(folder string, driver func() *fakegpu.Driver, definitions ...string) (*Machine, error) {
	if err := os.CopyFS(folder, sources); err != nil {
		return nil, err
	}
	libraries := map[string]string{"libcuda.so.1": "libcuda.c"}
	if driver().CublasLt != nil {
		libraries[CublasLt] = "libcublasLt.c"
	}
	for name, source := range libraries {
		if err := dynlibtest.Compile(filepath.Join(folder, name), filepath.Join(folder, "src", source), definitions...); err != nil {
			return nil, err
		}
	}
	socket := filepath.Join(folder, "card")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		if len(socket) > longestSocket {
			err = fmt.Errorf("%w: its path has %d bytes, of which a socket takes %d: choose a shorter folder (TMPDIR)", err, len(socket), longestSocket)
		}
		return nil, err
	}
	m := &Machine{folder: folder, listener: l, driver: driver, running: map[*net.UnixConn]bool{}}
	m.served.Go(m.accept)
	return m, nil
}

// Environment returns the variables, by name, that make a program load the library.
func (m *Machine) Environment() map[string]string {
	path := m.folder
	if more := os.Getenv("LD_LIBRARY_PATH"); more != "" {
		path += string(filepath.ListSeparator) + more
	}
	return map[string]string{"LD_LIBRARY_PATH": path, "SNUG_CARD": m.listener.Addr().String()}
}

// Close disconnects programs that still run, and returns an error that lists all misuse of the driver. It also fails if no
// program has loaded the library.
func (m *Machine) Close() error {
	err := m.listener.Close()
	m.mu.Lock()
	for c := range m.running {
		err = errors.Join(err, c.Close())
	}
	m.mu.Unlock()
	m.served.Wait()
	if m.programs == 0 {
		err = errors.Join(err, errors.New("no program has loaded the driver's library, libcuda.so.1"))
	}
	return errors.Join(append(m.problems, err)...)
}

func (m *Machine) accept() {
	for {
		c, err := m.listener.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				m.problem(fmt.Errorf("a program cannot be answered: %w", err))
			}
			return
		}
		m.mu.Lock()
		m.programs++
		m.running[c] = true
		m.mu.Unlock()
		m.served.Go(func() {
			p := newProgram(m, c)
			p.serve()
			m.mu.Lock()
			delete(m.running, c)
			m.mu.Unlock()
		})
	}
}

func (m *Machine) problem(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems = append(m.problems, err)
}
