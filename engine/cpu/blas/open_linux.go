//go:build (amd64 || arm64) && !nocuda

package blas

// usual are the names of OpenBLAS that distributions install, with and without its headers.
var usual = []string{"libopenblas.so.0", "libopenblas.so"}

// single makes the library compute only on the calling thread, and names it.
func single(handle uintptr) (name string, err error) { return openBLAS(handle) }
