//go:build (linux || darwin) && (amd64 || arm64) && !nocuda

package dynlib

import (
	"os"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Libraries see a variable, even if it replaces an existing one; Go and child processes do not.
func TestSetenv(t *testing.T) {
	const name = "SNUG_TEST_OF_DYNLIB"
	var getenv uintptr
	if missing := Find(purego.RTLD_DEFAULT, map[string]*uintptr{"getenv": &getenv}); missing != nil {
		t.Fatal(missing)
	}
	for _, value := range []string{"first", "/a folder/of several words", ""} {
		if err := Setenv(name, value); err != nil {
			t.Fatal(err)
		}
		text := append([]byte(name), 0)
		r, _, _ := purego.SyscallN(getenv, uintptr(unsafe.Pointer(&text[0])))
		if r == 0 || String(r) != value {
			t.Errorf("libraries see %q, want %q", String(r), value)
		}
		if v, ok := os.LookupEnv(name); ok {
			t.Errorf("Go sees %q", v)
		}
	}
}
