package train

import "fmt"

// Sums says how ranks add up the gradients of an update.
type Sums int

// The ways to add up.
const (
	// Ordered adds micro-batch to micro-batch in order: the bits are the same for any number of
	// ranks.
	Ordered Sums = iota
	// Fast makes each rank add up its own micro-batches, like a single process, and
	// exchange only the sums: results depend on the number of ranks.
	Fast
	// Tree adds up neighbors, then neighboring pairs, and so on (tree.go): each rank exchanges
	// one sum, and the bits are the same for any power of two of ranks.
	Tree
)

// Shareable reports why that many processes cannot share the updates of a program.
func (s Sums) Shareable(accumulation, world int) error {
	if s == Tree && (world&(world-1) != 0 || accumulation%world != 0) {
		return fmt.Errorf("training.gradient_sums: tree adds up halves, quarters, ... of %d micro-batches, which are not those of %d processes: want 1, 2, 4, 8, ... processes and a multiple of their number in training.gradient_accumulation_steps, or training.gradient_sums: ordered", accumulation, world)
	}
	if accumulation >= world && accumulation >= 2 {
		return nil
	}
	or := ""
	if accumulation >= 2 {
		or = fmt.Sprintf(", or start at most %d processes", accumulation)
	}
	return fmt.Errorf("%d processes share the micro-batches of an update, of which there are %d: set training.gradient_accumulation_steps to %d or a multiple of it%s", world, accumulation, max(2, world), or)
}

// turns says which rank computes which micro-batches of an update. In a round each rank computes
// one, as long as there are some.
type turns struct {
	rank, world int
	block       int // of neighbors that a rank computes; 0: it computes every world-th micro-batch
}

// of returns which rank computes micro-batch m, and in which round.
func (t turns) of(m int) (rank, round int) {
	if t.block > 0 {
		return m / t.block, m % t.block
	}
	return m % t.world, m / t.world
}

func (t turns) has(m int) bool {
	rank, _ := t.of(m)
	return rank == t.rank
}

// next returns the micro-batch that follows m, by rounds and within them by ranks, of micro; -1:
// none.
func (t turns) next(m, micro int) int {
	if t.block == 0 {
		if m+1 < micro {
			return m + 1
		}
		return -1
	}
	if m+t.block < min(micro, t.block*t.world) {
		return m + t.block
	}
	if _, round := t.of(m); round+1 < min(micro, t.block) {
		return round + 1
	}
	return -1
}

// begins reports whether micro-batch m is the first of its round.
func (t turns) begins(m int) bool {
	rank, _ := t.of(m)
	return rank == 0
}

// rounds returns the number of rounds.
func (t turns) rounds(micro int) int {
	if t.block > 0 {
		return min(t.block, micro)
	}
	return (micro + t.world - 1) / t.world
}

// ranks returns how many ranks have a micro-batch in a round: the first ones.
func (t turns) ranks(round, micro int) int {
	if t.block > 0 {
		return (micro - round + t.block - 1) / t.block
	}
	return min(t.world, micro-round*t.world)
}

// idle reports whether the rank has no micro-batch at all.
func (t turns) idle(micro int) bool { return t.rank >= t.ranks(0, micro) }
