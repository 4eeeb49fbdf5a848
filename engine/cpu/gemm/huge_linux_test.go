package gemm

import "syscall"

// hugePages returns n bytes the kernel is asked to back with huge pages, as
// the executor's arena is.
func hugePages(n int) []byte {
	const huge = 2 << 20
	mem, err := syscall.Mmap(-1, 0, roundUp(n, huge)+huge, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return make([]byte, n)
	}
	const madvHugepage = 14
	_ = syscall.Madvise(mem, madvHugepage)
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 0
	}
	return mem
}
