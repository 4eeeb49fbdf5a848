// Package dynlibtest builds libraries from C, to stand in for those that a test cannot rely
// on.
package dynlibtest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Build compiles a source file, with definitions such as "WORLD=4", to a shared library called
// name, and returns its path. If no C compiler is installed the test is skipped.
func Build(t *testing.T, name, source string, definitions ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o", path, source}
	for _, d := range definitions {
		args = append(args, "-D"+d)
	}
	if out, err := exec.Command(compiler(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

func compiler(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"cc", "gcc", "clang", "clang-19"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no C compiler is installed")
	return ""
}
