package isa

import "golang.org/x/sys/unix"

// The entry of the auxiliary vector that contains the bit, and the bit.
const (
	atHWCAP2   = 26
	hwcap2BF16 = 1 << 14
)

func hasBF16() bool {
	vector, err := unix.Auxv()
	if err != nil {
		return false // a kernel that does not say is assumed not to have it
	}
	for _, entry := range vector {
		if entry[0] == atHWCAP2 {
			return entry[1]&hwcap2BF16 != 0
		}
	}
	return false
}
