//go:build nocuda || !(linux || darwin) || !(amd64 || arm64)

package blas

import "unsafe"

// Open reports that this build loads no libraries.
func Open(string) (*Library, error) { return nil, &Absent{"this build of snug loads no libraries"} }

func (l *Library) invoke(*call, *byte, *byte, unsafe.Pointer, unsafe.Pointer, unsafe.Pointer) {}
