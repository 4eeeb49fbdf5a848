package session_test

import (
	"os"
	"testing"

	"github.com/snug-ml/snug/session"
)

// TestMain keeps rates measured by tests out of the user's cache.
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
	session.ReuseRates()
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
