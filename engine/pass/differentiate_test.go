package pass_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// The gradient of a value that is read in parts is that of its uses, whether they overlap or leave something out. Where
// they do not overlap, no part's gradient becomes a tensor as large as the value.
func TestGradientsOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const d = 3
		n := rapid.IntRange(2, 8).Draw(t, "rows")
		want := make([]float32, n)
		b := graph.NewBuilder("f")
		w := b.Param("w", graph.Zeros(), n, d)
		b.Output("w", b.MulC(w, 1)) // is read, whatever is drawn
		loss := b.Sum(b.MulC(w, 0))
		ranges := map[[2]int]bool{}
		for i := range rapid.IntRange(2, 5).Draw(t, "parts") {
			from := rapid.IntRange(0, n-1).Draw(t, "from")
			rows := rapid.IntRange(1, n-from).Draw(t, "length")
			loss = b.Add(loss, b.MulC(b.Sum(b.Slice(w, 0, from, rows)), float64(i+1)))
			for r := from; r < from+rows; r++ {
				want[r] += float32(i + 1)
			}
			if rows < n {
				ranges[[2]int{from, rows}] = true
			}
		}
		grads, err := pass.Differentiate(b.F, loss, []*graph.Value{w}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Output("gradient", b.MulC(grads[0], 1))
		used, overlap := make([]bool, n), false
		for r := range ranges {
			for i := r[0]; i < r[0]+r[1]; i++ {
				overlap, used[i] = overlap || used[i], true
			}
		}
		u := &pass.Unit{F: b.F, Align: 64}
		if err := pass.Run(u, pass.Options{Verify: true, Stop: "simplify"}); err != nil {
			t.Fatal(err)
		}
		if k := count(u.F, "slice_grad"); k > 1 && !overlap {
			t.Errorf("%d parts that do not overlap are spread one by one\n%v", k, u.F)
		}
		got := f32(forward(t, b.F).data["update 0: f/gradient"])
		for i, g := range got {
			if g != want[i/d] {
				t.Fatalf("the gradient of row %d is %v, want %v", i/d, g, want[i/d])
			}
		}
	})
}
