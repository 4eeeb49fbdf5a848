//go:build nocuda || !linux || !(amd64 || arm64)

package cublaslt

// Open returns an error, as this build has no CUDA.
func Open(int, []string) (Library, error) { return nil, &Absent{"this build of snug has no CUDA"} }
