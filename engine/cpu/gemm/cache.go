package gemm

// Block sizes. A panel of B (kc*nr words) streams through the first-level
// cache for each tile of rows; a block of A and a block of C share the second.
const (
	blockBytesA = 384 << 10
	blockBytesC = 512 << 10
)

// defaultKC returns the words of K in one block.
func defaultKC(*machine) int { return 512 }
