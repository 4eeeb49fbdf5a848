//go:build nocuda || !linux || !(amd64 || arm64)

package mpi

import (
	"context"
	"errors"
	"os"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/internal/dynlib"
)

var errNone = errors.New("this build of snug loads no MPI library: " + dynlib.Without)

// Find reports that this build loads no libraries.
func Find(string) (*Library, error) { return nil, errNone }

// Open reports that this build loads no libraries.
func Open(context.Context, dist.Watched, string) (dist.Group, *Library, error) {
	return nil, nil, errNone
}

// Exit ends the process.
func Exit(code int) { os.Exit(code) }
