//go:build !linux

package cpu

import "runtime"

// yield gives the rest of the time slice to another goroutine, if one is waiting.
func yield() { runtime.Gosched() }
