//go:build nocuda || !linux || !(amd64 || arm64)

package nvml

import "errors"

// Open reports that this build has no CUDA.
func Open() (Library, error) { return nil, errors.New("this build of snug has no CUDA") }
