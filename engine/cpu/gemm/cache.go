package gemm

import "github.com/klauspost/cpuid/v2"

// defaultKC is how many words of K one block holds. It is the same on every
// machine, because it is the one block size that the bits of a result depend on.
const defaultKC = 512

// Blocks of A and of C share the second-level cache with the panels of B that
// stream through it.
var blockBytesA, blockBytesC = cacheBlocks(cpuid.CPU.Cache.L2)

func cacheBlocks(l2 int) (a, c int) {
	if l2 <= 0 { // unknown
		l2 = 512 << 10
	}
	l2 = min(max(l2, 256<<10), 2<<20)
	return l2 * 3 / 8, l2 / 2
}
