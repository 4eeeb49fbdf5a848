//go:build linux && (amd64 || arm64) && !nocuda

package libcuda

import (
	"errors"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/internal/dynlib"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// Install starts a machine for the duration of a test. The test's own process and those that it starts find its library;
// the test fails if they misuse it or none loads it. It returns false if there is no C compiler.
func Install(t *testing.T, d func() *fakegpu.Driver, definitions ...string) bool {
	t.Helper()
	m, err := Start(t.TempDir(), d, definitions...)
	if errors.Is(err, dynlibtest.ErrNoCompiler) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	m.Announce(t)
	return true
}

// Announce makes the test's own process, and those that it starts, find the machine.
func (m *Machine) Announce(t *testing.T) {
	t.Helper()
	for name, value := range m.Environment() {
		t.Setenv(name, value)
		if err := dynlib.Setenv(name, value); err != nil { // Go's environment is not the library's
			t.Fatal(err)
		}
	}
}
