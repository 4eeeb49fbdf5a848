package pass

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

func TestRefine(t *testing.T) {
	for _, c := range []struct{ a, b, want graph.Shape }{
		{graph.Shape{30, 44, 64, 8}, graph.Shape{10, 3 * 44 * 64, 8}, graph.Shape{10, 3, 44, 64, 8}},
		{graph.Shape{6, 4}, graph.Shape{6, 4}, graph.Shape{6, 4}},
		{graph.Shape{5, 1, 2, 8}, graph.Shape{10, 8}, graph.Shape{5, 2, 8}},
		{graph.Shape{4, 6}, graph.Shape{8, 3}, graph.Shape{4, 2, 3}},
		{graph.Shape{2, 3}, graph.Shape{3, 2}, nil},
		{graph.Shape{1, 1}, graph.Shape{1}, graph.Shape{}},
	} {
		got, ok := refine(c.a, c.b)
		if ok != (c.want != nil) || ok && !got.Equal(c.want) {
			t.Errorf("%v and %v: %v, %v, want %v", c.a, c.b, got, ok, c.want)
		}
		if back, _ := refine(c.b, c.a); ok && !back.Equal(got) {
			t.Errorf("%v and %v: %v, the other way %v", c.a, c.b, got, back)
		}
	}
}
