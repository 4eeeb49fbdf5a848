//go:build (amd64 || arm64) && !nocuda

package blas

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

var usual = []string{"/System/Library/Frameworks/Accelerate.framework/Accelerate"}

// single makes the library compute only on the calling thread, and names it.
func single(handle uintptr) (name string, err error) {
	if _, err := purego.Dlsym(handle, "openblas_set_num_threads"); err == nil {
		return openBLAS(handle)
	}
	if _, err := purego.Dlsym(handle, "vDSP_mmul"); err != nil {
		return "", errors.New("want Accelerate or an OpenBLAS, which can be told to start no threads")
	}
	// Accelerate reads the variable when it first multiplies. Since macOS 15 there is
	// BLASSetThreading, but its setting belongs to one thread.
	setenv, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return "", err
	}
	key, one := []byte("VECLIB_MAXIMUM_THREADS\x00"), []byte("1\x00")
	purego.SyscallN(setenv, address(&key[0]), address(&one[0]), 1)
	version, err := unix.Sysctl("kern.osproductversion")
	if err != nil {
		return "", fmt.Errorf("the version of macOS: %w", err)
	}
	return "Accelerate of macOS " + version, nil
}
