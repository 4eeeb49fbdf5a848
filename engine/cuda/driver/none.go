//go:build nocuda || !linux || !(amd64 || arm64)

package driver

import "errors"

// ErrNone says that this build cannot use a card.
var ErrNone = errors.New("this build of snug has no CUDA (it is for Linux on amd64 and arm64, without the build tag nocuda)")

// Open reports that this build has no CUDA.
func Open() (Driver, error) { return nil, ErrNone }
