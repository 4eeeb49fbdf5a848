//go:build !unix

package checkpoint

import "math"

func freeBytes(string) (int64, error) { return math.MaxInt64, nil }
