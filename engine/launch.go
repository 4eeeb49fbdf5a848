package engine

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// Launch is a kernel that a card runs for a node of a program.
type Launch struct {
	Node *graph.Node
	// Also are the nodes that it computes too: an optimizer steps several weights at once.
	Also []*graph.Node
	*Kernel
}

// Kernel is a kernel with its grid and what it does there: what a plan needs to price it. Launches of equal nodes
// share it.
type Kernel struct {
	// Name leaves out what tells generated kernels apart; Symbol has it, where the kernel was made.
	Name, Symbol    string
	Blocks, Threads int
	Work            counts.Kernel
	// Bytes is its traffic with the card's memory where caches serve a part of what was counted;
	// 0: they do not.
	Bytes float64
	// Rows marks what goes over rows more than once, as norms do.
	Rows bool
	// FLOPs are those of its matmul.
	FLOPs float64
}

// Lowering knows the kernels of a card that need not be there.
type Lowering interface {
	// Launches are those of nodes of a function, which follow one another. Copies between card and host are left
	// out.
	Launches(nodes []*graph.Node) ([]Launch, error)
	// Workspace is how many bytes a program's kernels need besides the arena.
	Workspace(p *Program) (int64, error)
}
