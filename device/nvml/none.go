//go:build nocuda || !linux || !(amd64 || arm64)

package nvml

// Open gives nil: this build has no CUDA.
func Open() Library { return nil }
