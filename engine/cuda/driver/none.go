//go:build nocuda || !linux || !(amd64 || arm64)

package driver

import (
	"errors"

	"github.com/snug-ml/snug/internal/dynlib"
)

// ErrNone means that this build cannot use a card.
var ErrNone = errors.New("this build of snug has no CUDA: " + dynlib.Without)

// Open returns [ErrNone].
func Open(func() map[string]string) (Driver, error) { return nil, ErrNone }
