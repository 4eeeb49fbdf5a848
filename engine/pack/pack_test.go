package pack

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mustPack(t testing.TB, bufs []Buffer, opts Options) Result {
	t.Helper()
	r, err := Pack(bufs, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(bufs, max(opts.Align, 1), r.Size); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestExamples(t *testing.T) {
	for _, c := range []struct {
		name string
		bufs []Buffer
		size int64
	}{
		{"none", nil, 0},
		{"one", []Buffer{{Size: 1, Start: 0, End: 1}}, 64},
		{"in turn", []Buffer{{Size: 64, Start: 0, End: 1}, {Size: 64, Start: 1, End: 2}}, 64},
		{"together", []Buffer{{Size: 64, Start: 0, End: 2}, {Size: 64, Start: 1, End: 2}}, 128},
		{"zero sizes", []Buffer{{Size: 0, Start: 0, End: 2}, {Size: 0, Start: 3, End: 3 + 1}}, 0},
		// An online allocator (the order of start) leaves a hole here and needs 4 units.
		{"hole", []Buffer{
			{Size: 64, Start: 0, End: 2}, {Size: 64, Start: 1, End: 4}, {Size: 128, Start: 2, End: 4},
		}, 192},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := mustPack(t, c.bufs, Options{Align: 64})
			if r.Size != c.size || r.LowerBound != c.size {
				t.Errorf("size %d, bound %d: want %d", r.Size, r.LowerBound, c.size)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		bufs []Buffer
		opts Options
		want string
	}{
		{"negative size", []Buffer{{Size: -1, End: 1}}, Options{}, "negative size -1"},
		{"never live", []Buffer{{Size: 1, Start: 3, End: 3}}, Options{}, "live in [3,3)"},
		{"before the start", []Buffer{{Size: 1, Start: -1, End: 3}}, Options{}, "live in [-1,3)"},
		{"alignment", nil, Options{Align: 48}, "alignment 48"},
		{"too large", []Buffer{{Size: math.MaxInt64, End: 1}}, Options{}, "too large"},
		{"sum", []Buffer{{Size: math.MaxInt64 - 100, End: 1}, {Size: 100, End: 1}}, Options{}, "add up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Pack(c.bufs, c.opts)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

func drawBuffers(t *rapid.T) []Buffer {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Buffer {
		start := rapid.Int32Range(0, 60).Draw(t, "start")
		return Buffer{
			Size:  rapid.Int64Range(0, 5000).Draw(t, "size"),
			Start: start,
			End:   start + rapid.Int32Range(1, 20).Draw(t, "life"),
		}
	}), 0, 80).Draw(t, "bufs")
}

// overlap is the definition, in O(n^2). A buffer of size 0 overlaps nothing.
func overlap(bufs []Buffer) bool {
	for i, a := range bufs {
		for _, b := range bufs[:i] {
			if a.Size > 0 && b.Size > 0 && a.Start < b.End && b.Start < a.End && a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
				return true
			}
		}
	}
	return false
}

func TestPackProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t)
		opts := Options{
			Align:  rapid.SampledFrom([]int64{1, 64, 512}).Draw(t, "align"),
			Search: rapid.IntRange(0, 30).Draw(t, "search"),
		}
		again := slices.Clone(bufs)
		r, err := Pack(bufs, opts)
		if err != nil {
			t.Fatal(err)
		}
		if overlap(bufs) {
			t.Fatal("buffers overlap")
		}
		if r.Size < r.LowerBound {
			t.Fatalf("size %d below the bound %d", r.Size, r.LowerBound)
		}
		var top int64
		for _, b := range bufs {
			if b.Offset%opts.Align != 0 {
				t.Fatalf("offset %d is not aligned to %d", b.Offset, opts.Align)
			}
			if b.Size > 0 {
				top = max(top, b.Offset+b.Size)
			}
		}
		if up := (top + opts.Align - 1) / opts.Align * opts.Align; up != r.Size {
			t.Fatalf("size %d, the buffers reach up to %d", r.Size, up)
		}
		if r2, err := Pack(again, opts); err != nil || r2 != r || !slices.Equal(again, bufs) {
			t.Fatalf("a second call gave %+v (%v), the first %+v", r2, err, r)
		}
	})
}

func TestLowerBoundIsMaxLive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t)
		var most int64
		for at := range int32(90) {
			var live int64
			for _, b := range bufs {
				if b.Start <= at && at < b.End {
					live += b.Size
				}
			}
			most = max(most, live)
		}
		r, err := Pack(bufs, Options{Align: 1})
		if err != nil {
			t.Fatal(err)
		}
		if r.LowerBound != most {
			t.Fatalf("bound %d, want %d", r.LowerBound, most)
		}
	})
}

func TestCheckAgreesWithDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bufs := drawBuffers(t)
		for i := range bufs {
			bufs[i].Offset = rapid.Int64Range(0, 50_000).Draw(t, "offset")
		}
		// Usually overlapping; keep a prefix so that both answers occur.
		for n := range bufs {
			if got, want := check(bufs[:n], 1, math.MaxInt64) != nil, overlap(bufs[:n]); got != want {
				t.Fatalf("of %d buffers: Check finds an overlap: %v, the definition: %v", n, got, want)
			}
		}
	})
}

func TestCheckErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		bufs []Buffer
		want string
	}{
		{"unaligned", []Buffer{{Size: 1, End: 1, Offset: 32}}, "multiple of 64"},
		{"negative", []Buffer{{Size: 1, End: 1, Offset: -64}}, "multiple of 64"},
		{"outside", []Buffer{{Size: 65, End: 1, Offset: 64}}, "beyond the arena of 128 bytes"},
		{"overlap", []Buffer{{Size: 65, End: 2}, {Size: 1, Start: 1, End: 2, Offset: 64}}, "buffers 1 and 0 overlap"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := check(c.bufs, 64, 128); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// shapes are realistic models, at every recompute level, with and without chunked
// cross-entropy.
func shapes() []gpt {
	var all []gpt
	for _, m := range []gpt{
		{layers: 4, batch: 8, time: 256, width: 256, vocab: 8192, heads: 4},
		{layers: 12, batch: 8, time: 1024, width: 768, vocab: 50304, heads: 12},
		{layers: 24, batch: 4, time: 1023, width: 2048, vocab: 50257, heads: 16},
		{layers: 36, batch: 2, time: 1024, width: 1280, vocab: 50257, heads: 20},
	} {
		for _, m.recompute = range []recompute{keepAll, selective, full} {
			for _, m.ceChunks = range []int{1, 8} {
				all = append(all, m)
			}
		}
	}
	return all
}

// TestTransformerGap checks the package's promise: within 0.5 % of the bound on transformer
// programs.
func TestTransformerGap(t *testing.T) {
	for _, g := range shapes() {
		for _, align := range []int64{64, 512} {
			r := mustPack(t, g.trace(), Options{Align: align})
			if gap(r) > 0.005 {
				t.Errorf("%v: %d bytes, bound %d: %.2f %% above (%s)", g, r.Size, r.LowerBound, 100*gap(r), r.Method)
			}
		}
	}
}

// TestRandomTransformerGap draws unusual shapes; the search closes the gap that the
// greedy orders leave.
func TestRandomTransformerGap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 300
	exact, within := 0, 0
	var worst float64
	for range n {
		g := gpt{
			layers: 2 + rng.IntN(40), batch: 1 + rng.IntN(16), time: 128 * (1 + rng.IntN(16)), width: 64 * (4 + rng.IntN(28)),
			vocab: 8192 * (1 + rng.IntN(16)), recompute: recompute(rng.IntN(3)), ceChunks: 1 + 7*rng.IntN(2),
		}
		g.heads = g.width / 64
		r := mustPack(t, g.trace(), Options{Tolerance: 0.005, Search: 500})
		if r.Size == r.LowerBound {
			exact++
		}
		if gap(r) <= 0.005 {
			within++
		} else {
			t.Logf("%v: %.2f %% above the bound (%s, %d tried)", g, 100*gap(r), r.Method, r.Tried)
		}
		worst = max(worst, gap(r))
	}
	t.Logf("%d shapes: %d at the bound, %d within 0.5 %%, worst %.2f %%", n, exact, within, 100*worst)
	if within < n*98/100 || worst > 0.03 {
		t.Errorf("want 98 %% of the shapes within 0.5 %% and none above 3 %%")
	}
}

func TestSearchImproves(t *testing.T) {
	// Random rectangles are far harder than training steps.
	rng := rand.New(rand.NewPCG(3, 4))
	bufs := make([]Buffer, 200)
	for i := range bufs {
		start := rng.Int32N(100)
		bufs[i] = Buffer{Size: 64 * (1 + rng.Int64N(100)), Start: start, End: start + 1 + rng.Int32N(40)}
	}
	plain := mustPack(t, bufs, Options{})
	searched := mustPack(t, bufs, Options{Search: 3000})
	t.Logf("bound %d, greedy +%.2f %%, searched +%.2f %%", plain.LowerBound, 100*gap(plain), 100*gap(searched))
	if searched.Size >= plain.Size {
		t.Errorf("searched %d, greedy %d: want fewer bytes", searched.Size, plain.Size)
	}
	// A size that is enough is not improved.
	if r := mustPack(t, bufs, Options{Search: 3000, Enough: plain.Size}); r.Size != plain.Size {
		t.Errorf("size %d although %d is enough", r.Size, plain.Size)
	}
}

// BenchmarkPack10k packs the step of a 400-layer model (about 10,000 buffers).
func BenchmarkPack10k(b *testing.B) {
	for _, level := range []recompute{keepAll, selective, full} {
		g := gpt{layers: 400, batch: 1, time: 1024, width: 512, vocab: 50304, heads: 8, recompute: level, ceChunks: 8}
		bufs := g.trace()
		b.Run(g.String(), func(b *testing.B) {
			var r Result
			for b.Loop() {
				r = mustPack(b, bufs, Options{})
			}
			b.ReportMetric(float64(len(bufs)), "buffers")
			b.ReportMetric(100*gap(r), "%gap")
			b.ReportMetric(float64(r.Tried), "tried")
		})
	}
}

// BenchmarkAllOrders10k is the worst case: no order meets the bound, so all eight
// placements run to their limit.
func BenchmarkAllOrders10k(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	bufs := make([]Buffer, 10_000)
	for i := range bufs {
		start := rng.Int32N(10_000)
		bufs[i] = Buffer{Size: 64 * (1 + rng.Int64N(10_000)), Start: start, End: start + 1 + rng.Int32N(5_000)}
	}
	var r Result
	for b.Loop() {
		r = mustPack(b, bufs, Options{})
	}
	b.ReportMetric(100*gap(r), "%gap")
	b.ReportMetric(float64(r.Tried), "tried")
}

func BenchmarkCheck10k(b *testing.B) {
	bufs := gpt{layers: 400, batch: 1, time: 1024, width: 512, vocab: 50304, heads: 8, ceChunks: 8}.trace()
	r := mustPack(b, bufs, Options{})
	for b.Loop() {
		if err := check(bufs, 64, r.Size); err != nil {
			b.Fatal(err)
		}
	}
}

// gap is how far a packing is above its lower bound, as a fraction of it.
func gap(r Result) float64 {
	if r.LowerBound == 0 {
		return 0
	}
	return float64(r.Size-r.LowerBound) / float64(r.LowerBound)
}
