package fakegpu

import "unsafe"

// within reports whether b lies in the n bytes that begin at first.
func within(first *byte, n int, b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	base := uintptr(unsafe.Pointer(first))
	return at >= base && at+uintptr(len(b)) <= base+uintptr(n)
}
