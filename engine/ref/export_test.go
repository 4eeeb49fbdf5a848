package ref

import "github.com/snug-ml/snug/engine/graph"

// ToNearest rounds second moments to nearest until the returned function is called.
func ToNearest() (again func()) {
	before := momentBits
	momentBits = func(graph.Rounding, int, uint32) uint16 { return 1 << 15 }
	return func() { momentBits = before }
}
