// Package dynlibtest builds libraries from C, to stand in for those that a test cannot rely
// on.
package dynlibtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ErrNoCompiler means that no C compiler is installed.
var ErrNoCompiler = errors.New("no C compiler is installed")

// Build compiles a source file, with definitions such as "WORLD=4", to a shared library called
// name, and returns its path. If no C compiler is installed the test is skipped.
func Build(t *testing.T, name, source string, definitions ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	err := Compile(path, source, definitions...)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Compile compiles a source file, with definitions, to the shared library at path.
func Compile(path, source string, definitions ...string) error {
	args := []string{"-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread", "-o", path, source}
	for _, d := range definitions {
		args = append(args, "-D"+d)
	}
	cc, err := compiler()
	if err != nil {
		return err
	}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return nil
}

// CompareWithHeader compiles a source file with HEADER defined as each copy of NVIDIA's header of that name, such as
// "cuda.h", in SNUG_CUDA_HEADERS (docs/gpu.md). Without one the test is skipped.
func CompareWithHeader(t *testing.T, source, header string) {
	t.Helper()
	compared := 0
	for _, path := range filepath.SplitList(os.Getenv("SNUG_CUDA_HEADERS")) {
		if filepath.Base(path) != header {
			continue
		}
		compared++
		if err := Compile(os.DevNull, source, `HEADER="`+path+`"`); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if compared == 0 {
		t.Skipf("SNUG_CUDA_HEADERS names no %s", header)
	}
}

func compiler() (path string, err error) {
	for _, name := range []string{"cc", "gcc", "clang", "clang-19"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNoCompiler
}
