package cpu

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cpu/blas"
	"github.com/snug-ml/snug/engine/graph"
)

// Comparison is the measured time of a library and of snug's kernels for a matmul.
type Comparison struct {
	Product string  `json:"product"`
	Own     float64 `json:"snug_seconds"`
	Library float64 `json:"library_seconds"`
	// ByLibrary says that a program would leave the matmul to the library.
	ByLibrary bool `json:"by_library"`
}

func (c Comparison) String() string {
	by := fmt.Sprintf("snug's kernels, as the library is not %.0f %% faster", 100*(gain-1))
	if c.ByLibrary {
		by = "the library, the faster"
	}
	return fmt.Sprintf("%s by %s (snug %.2f ms, library %.2f ms)", c.Product, by, 1e3*c.Own, 1e3*c.Library)
}

// compared are the matmuls that [CompareLibrary] measures, m by k by n: one as in a
// linear layer, and one whose first operand is long.
var compared = [][3]int{{512, 512, 512}, {128, 2048, 512}}

// CompareLibrary measures a library with the given number of threads, as a program that is
// loaded with it does, on matmuls of a model's size.
func CompareLibrary(l *blas.Library, threads int) (list []Comparison, err error) {
	b := graph.NewBuilder("products")
	for i, s := range compared {
		x, w := b.Input(fmt.Sprint("x", i), graph.T(graph.F32, s[0], s[1])), b.Input(fmt.Sprint("w", i), graph.T(graph.F32, s[1], s[2]))
		b.Output(fmt.Sprint("y", i), b.MatMul(x, w, false, false))
	}
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CPU, ComputeDType: graph.F32}, b.F)
	if err != nil {
		return nil, err
	}
	i, err := Backend{Threads: threads}.UseLibrary(l).Load(p)
	if err != nil {
		return nil, err
	}
	x := i.(*executable)
	for _, s := range compared {
		name := product{m: s[0], k: s[1], n: s[2]}.String()
		t, ok := x.products.times[name]
		if !ok {
			return nil, errors.Join(fmt.Errorf("the matmul %s was not measured", name), x.Close())
		}
		list = append(list, Comparison{name, t[0], t[1], x.products.byLibrary[name]})
	}
	return list, x.Close()
}
