package session_test

import (
	"os"
	"testing"
)

// Rates that tests measure are not the user's.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "snug-session")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_CACHE_HOME", "HOME"} {
		if err := os.Setenv(name, dir); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
