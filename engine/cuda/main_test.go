package cuda_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes garbage collections rare, as far as memory allows: thousands of small programs are compiled and
// interpreted.
func TestMain(m *testing.M) {
	debug.SetGCPercent(500)
	debug.SetMemoryLimit(5 << 30)
	os.Exit(m.Run())
}
