package graph_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
)

var shapes = rapid.Custom(func(t *rapid.T) graph.Shape {
	return graph.Shape(rapid.SliceOfN(rapid.IntRange(1, 3), 0, 4).Draw(t, "dims"))
})

func TestBroadcast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := shapes.Draw(t, "a"), shapes.Draw(t, "b"), shapes.Draw(t, "c")
		ab, err := graph.Broadcast(a, b)
		ba, err2 := graph.Broadcast(b, a)
		if (err == nil) != (err2 == nil) || err == nil && !ab.Equal(ba) {
			t.Fatalf("not symmetric: %v %v and %v %v", ab, err, ba, err2)
		}
		if same, err := graph.Broadcast(a, a); err != nil || !same.Equal(a) {
			t.Fatalf("%v with itself gives %v %v", a, same, err)
		}
		if same, err := graph.Broadcast(a, nil); err != nil || !same.Equal(a) {
			t.Fatalf("%v with a scalar gives %v %v", a, same, err)
		}
		fits := true // by the wording of the rule
		for i := range min(len(a), len(b)) {
			x, y := a[len(a)-1-i], b[len(b)-1-i]
			fits = fits && (x == y || x == 1 || y == 1)
		}
		if fits != (err == nil) {
			t.Fatalf("%v and %v give %v %v", a, b, ab, err)
		}
		if err != nil {
			return
		}
		if again, err := graph.Broadcast(ab, a); err != nil || !again.Equal(ab) {
			t.Fatalf("%v does not hold %v: %v %v", ab, a, again, err)
		}
		left, err := graph.Broadcast(ab, c)
		bc, err2 := graph.Broadcast(b, c)
		if err2 != nil {
			return
		}
		right, err2 := graph.Broadcast(a, bc)
		if (err == nil) != (err2 == nil) || err == nil && !left.Equal(right) {
			t.Fatalf("not associative: %v %v and %v %v", left, err, right, err2)
		}
	})
}

// Reading by Strides visits, at each index of the larger shape, the element
// whose index is the same with the stretched dimensions at 0.
func TestStrides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := shapes.Draw(t, "a"), shapes.Draw(t, "b")
		out, err := graph.Broadcast(a, b)
		if err != nil {
			t.Skip()
		}
		st := a.Strides(out)
		at := make([]int, len(out))
		for n := range out.Elems() {
			rest := int(n)
			for d := len(out) - 1; d >= 0; d-- {
				at[d], rest = rest%out[d], rest/out[d]
			}
			got, want := 0, 0
			for d := range out {
				got += at[d] * st[d]
				if i := d - len(out) + len(a); i >= 0 {
					want = want*a[i] + at[d]%a[i]
				}
			}
			if got != want {
				t.Fatalf("%v in %v at %v reads element %d, want %d", a, out, at, got, want)
			}
		}
	})
}

func TestShapeSizes(t *testing.T) {
	for _, c := range []struct {
		s          graph.Shape
		elems      int64
		rows, last int
		text       string
	}{
		{nil, 1, 1, 1, "[]"},
		{graph.Shape{5}, 5, 1, 5, "[5]"},
		{graph.Shape{2, 3, 4}, 24, 6, 4, "[2,3,4]"},
		{graph.Shape{1 << 20, 1 << 20}, 1 << 40, 1 << 20, 1 << 20, "[1048576,1048576]"},
	} {
		if c.s.Elems() != c.elems || c.s.Rows() != c.rows || c.s.Last() != c.last || c.s.String() != c.text {
			t.Errorf("%v has %d elements, %d rows of %d", c.s, c.s.Elems(), c.s.Rows(), c.s.Last())
		}
	}
	if b := graph.T(graph.BF16, 2, 3).Bytes(); b != 12 {
		t.Errorf("bf16[2,3] takes %d bytes", b)
	}
}

func TestDTypeNames(t *testing.T) {
	for d, want := range map[graph.DType]string{graph.F32: "f32", graph.BF16: "bf16", graph.F16: "f16", graph.I32: "i32"} {
		if d.String() != want {
			t.Errorf("%d is called %v, want %s", d, d, want)
		}
	}
}
