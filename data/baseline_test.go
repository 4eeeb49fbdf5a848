package data

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func baselines(t testing.TB, train, heldOut Corpus, length int) Baseline {
	t.Helper()
	var w [2]*Windows
	for i, c := range []Corpus{train, heldOut} {
		var err error
		if w[i], err = NewWindows(c, WindowOptions{Length: length}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := Baselines(context.Background(), w[0], w[1])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func near(t testing.TB, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %v, want %v within %v", what, got, want, tolerance)
	}
}

// The whole computation by hand on a stream of eight ids.
func TestBaselineByHand(t *testing.T) {
	const eos = 3
	train := newMemory(4, []int32{0, 1, 0, 1}, []int32{0, 2})
	held := newMemory(4, []int32{0, 1, 2})
	// Train pairs with weight: 01 10 01 1e | 02 2e (e0 opens a document).
	// Labels: 1:2 0:1 e:2 2:1, inputs: 0:3 1:2 2:1.
	uni := func(y int32) float64 {
		return (map[int32]float64{0: 1, 1: 2, 2: 1, eos: 2}[y] + 0.5) / (6 + 2)
	}
	type pair [2]int32
	n := map[pair]float64{{0, 1}: 2, {1, 0}: 1, {1, eos}: 1, {0, 2}: 1, {2, eos}: 1}
	of := map[int32]float64{0: 3, 1: 2, 2: 1}
	b := baselines(t, train, held, 3)
	best, beta := math.Inf(1), 0.0
	for try := 0.25; try <= 1<<16; try *= 2 {
		var loss float64
		for p, c := range n {
			loss -= c * math.Log((c-1+try*uni(p[1]))/(of[p[0]]-1+try))
		}
		if loss < best {
			best, beta = loss, try
		}
	}
	near(t, "beta", b.Beta, beta, 0)
	var u, bi float64
	for _, p := range []pair{{0, 1}, {1, 2}, {2, eos}} {
		u -= math.Log(uni(p[1])) / 3
		bi -= math.Log((n[p]+beta*uni(p[1]))/(of[p[0]]+beta)) / 3
	}
	near(t, "unigram", b.Unigram, u, 1e-12)
	near(t, "bigram", b.Bigram, bi, 1e-12)
	if b.Counted != 6 || b.Scored != 3 {
		t.Errorf("counted %v, scored %v; want 6, 3", b.Counted, b.Scored)
	}
}

// chain draws ids from a Markov chain in which each id is followed by one of
// two, so the entropy of the next id is known: 2-way choice of 0.9 and 0.1.
func chain(vocab int32, n int, seed uint64) *memory {
	r := rand.New(rand.NewPCG(seed, 1))
	doc := make([]int32, n)
	for i := 1; i < n; i++ {
		x := doc[i-1]
		doc[i] = (3*x + 1) % (vocab - 1)
		if r.Float64() < 0.1 {
			doc[i] = (5*x + 2) % (vocab - 1)
		}
	}
	return newMemory(int(vocab), doc)
}

func TestBaselineKnownEntropy(t *testing.T) {
	b := baselines(t, chain(102, 400_000, 1), chain(102, 50_000, 2), 128)
	want := -0.9*math.Log(0.9) - 0.1*math.Log(0.1)
	near(t, "bigram", b.Bigram, want, 0.01)
	if b.Unigram < 4 || b.Unigram > math.Log(102) {
		t.Errorf("unigram %v, want a little under log 102 = %v", b.Unigram, math.Log(102))
	}
}

// Without structure the bigram must not be much worse than the unigram:
// interpolation must adapt.
func TestBaselineNoStructure(t *testing.T) {
	random := func(seed uint64) *memory {
		r := rand.New(rand.NewPCG(seed, 1))
		doc := make([]int32, 30_000)
		for i := range doc {
			doc[i] = r.Int32N(500)
		}
		return newMemory(501, doc)
	}
	b := baselines(t, random(1), random(2), 64)
	near(t, "bigram against unigram", b.Bigram, b.Unigram, 0.02)
	near(t, "unigram", b.Unigram, math.Log(500), 0.02)
}

func TestBaselineErrors(t *testing.T) {
	a, err := NewWindows(newMemory(10, []int32{1, 2}), WindowOptions{Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewWindows(newMemory(11, []int32{1, 2}), WindowOptions{Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Baselines(context.Background(), a, b)
	wantError(t, err, "10 in training, 11 held out")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Baselines(ctx, a, a)
	wantError(t, err, "canceled")
}

// BenchmarkBaselines counts 10 M tokens of a skewed vocabulary of 50,000.
func BenchmarkBaselines(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	z := rand.NewZipf(r, 1.2, 4, 49_998)
	doc := make([]int32, 10_000_000)
	for i := range doc {
		doc[i] = int32(z.Uint64())
	}
	train, held := newMemory(50_000, doc), newMemory(50_000, doc[:1_000_000])
	b.ResetTimer()
	for range b.N {
		baselines(b, train, held, 1024)
	}
	b.ReportMetric(10*float64(b.N)/b.Elapsed().Seconds(), "Mtok/s")
	b.ReportMetric(float64(time.Duration(b.Elapsed().Nanoseconds()/int64(b.N)).Milliseconds()), "ms")
}
