package pass

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// label gives every result that has no name one of its own: its layer and
// operation, and a number among those. The names survive the passes that follow, as
// those of inputs and states do.
func label(f *graph.Func) {
	seen := map[string]int{}
	for _, n := range f.Nodes {
		for _, v := range n.Out {
			if v.Name != "" || graph.IsView(n.Op) {
				continue
			}
			half := "forward"
			if n.Backward {
				half = "backward"
			}
			name := half + " " + v.Label()
			seen[name]++
			v.Name = fmt.Sprintf("%s ~%d", name, seen[name])
		}
	}
}
