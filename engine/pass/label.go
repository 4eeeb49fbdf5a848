package pass

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// label names every result that has no name: by its layer and operation, and a number to
// tell equal ones apart. The names survive the passes that follow, like those of inputs
// and states.
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
