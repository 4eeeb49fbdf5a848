package cuda_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain makes garbage collections rare: thousands of small programs are compiled and interpreted.
func TestMain(m *testing.M) {
	debug.SetGCPercent(500)
	os.Exit(m.Run())
}
