package data

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// newTexts makes a table of texts of the given lengths: example i holds ids
// i*100, i*100+1, ..., its label is i, its image is i in each pixel.
func newTexts(t rapidOrT, lengths ...int) *Table {
	table, err := NewTable(
		Field{Name: "ids", Shape: []int{-1}, Pad: 7},
		Field{Name: "label"},
		Field{Name: "image", Float: true, Shape: []int{2, 3}},
		Field{Name: "pairs", Float: true, Shape: []int{-1, 2}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range lengths {
		ids, image, pairs := make([]int32, n), make([]float32, 6), make([]float32, 2*(n/2))
		for k := range ids {
			ids[k] = int32(i*100 + k)
		}
		for k := range image {
			image[k] = float32(i)
		}
		for k := range pairs {
			pairs[k] = float32(k)
		}
		if err := table.Add(float32(1+i%2), ids, []int32{int32(i)}, image, pairs); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

func newExamples(t rapidOrT, x Examples, opt ExampleOptions) *ExampleLoader {
	l, err := NewExampleLoader(x, opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// drain copies up to n updates.
func drain(t rapidOrT, l *ExampleLoader, n int) (all []ExampleUpdate) {
	for range n {
		u, err := l.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		c := *u
		c.Micro = nil
		for _, b := range u.Micro {
			d := ExampleBatch{Bucket: b.Bucket, Weights: slices.Clone(b.Weights), Index: slices.Clone(b.Index)}
			for f := range b.Ints {
				d.Ints = append(d.Ints, slices.Clone(b.Ints[f]))
				d.Floats = append(d.Floats, slices.Clone(b.Floats[f]))
			}
			c.Micro = append(c.Micro, d)
		}
		all = append(all, c)
	}
	return all
}

func TestExamplesByHand(t *testing.T) {
	x := newTexts(t, 3, 1, 2)
	l := newExamples(t, x, ExampleOptions{MicroBatches: 3, Epochs: 1, Buckets: []Bucket{{2, 2}, {4, 1}}})
	defer l.Close()
	u := drain(t, l, 10)
	if len(u) != 1 || l.Updates() != 1 {
		t.Fatalf("%d updates, want 1", len(u))
	}
	want := []ExampleBatch{
		{
			Bucket: 0, Weights: []float32{2, 1}, Index: []int{1, 2},
			Ints: [][]int32{{100, 7, 200, 201}, {1, 2}, nil, nil},
			Floats: [][]float32{nil, nil, {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2},
				{0, 0, 0, 0, 0, 1, 0, 0}},
		},
		{
			Bucket: 1, Weights: []float32{1}, Index: []int{0},
			Ints:   [][]int32{{0, 1, 2, 7}, {0}, nil, nil},
			Floats: [][]float32{nil, nil, {0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0}},
		},
		{
			Bucket: 0, Weights: []float32{0, 0}, Index: []int{-1, -1},
			Ints:   [][]int32{{7, 7, 7, 7}, {0, 0}, nil, nil},
			Floats: [][]float32{nil, nil, make([]float32, 12), make([]float32, 8)},
		},
	}
	if d := cmp.Diff(want, u[0].Micro); d != "" {
		t.Error(d)
	}
	if u[0].Weight != 4 || u[0].Examples != 3 {
		t.Errorf("weight %v of %d examples, want 4 of 3", u[0].Weight, u[0].Examples)
	}
}

func drawExamples(t *rapid.T) (*Table, ExampleOptions) {
	lengths := rapid.SliceOfN(rapid.IntRange(0, 12), 1, 40).Draw(t, "lengths")
	opt := ExampleOptions{
		MicroBatches: rapid.IntRange(1, 3).Draw(t, "A"),
		Shuffle:      rapid.Bool().Draw(t, "shuffle"),
		Seed:         rapid.Uint64().Draw(t, "seed"),
		Workers:      rapid.IntRange(1, 4).Draw(t, "workers"),
		Depth:        rapid.IntRange(1, 3).Draw(t, "depth"),
	}
	for _, length := range []int{3, 8, 12} {
		opt.Buckets = append(opt.Buckets, Bucket{length, rapid.IntRange(1, 5).Draw(t, "rows")})
	}
	return newTexts(t, lengths...), opt
}

// An epoch has every example once, in the smallest bucket that fits it, padded
// right; weights add up.
func TestExamplesEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, opt := drawExamples(t)
		opt.Epochs = 2
		l := newExamples(t, x, opt)
		defer l.Close()
		seen := make([]int, x.Len())
		for _, u := range drain(t, l, 10_000) {
			var weight float64
			for _, b := range u.Micro {
				weight += sum(b.Weights)
				length := opt.Buckets[b.Bucket].Length
				for r, i := range b.Index {
					ids := b.Ints[0][r*length : (r+1)*length]
					if i < 0 {
						if b.Weights[r] != 0 || slices.Max(ids) != 7 {
							t.Fatalf("row without example: weight %v, ids %v", b.Weights[r], ids)
						}
						continue
					}
					seen[i]++
					n := x.Length(i)
					if n > length || b.Bucket > 0 && n <= opt.Buckets[b.Bucket-1].Length {
						t.Fatalf("example of %d places in bucket %d", n, length)
					}
					for k, id := range ids {
						if want := int32(i*100 + k); k < n && id != want || k >= n && id != 7 {
							t.Fatalf("example %d of %d places: ids %v", i, n, ids)
						}
					}
					if b.Ints[1][r] != int32(i) || b.Floats[2][6*r+5] != float32(i) || b.Weights[r] != float32(1+i%2) {
						t.Fatalf("example %d: label %d, image %v, weight %v", i, b.Ints[1][r], b.Floats[2][6*r:6*r+6], b.Weights[r])
					}
				}
			}
			if weight != u.Weight {
				t.Fatalf("update weighs %v, its rows %v", u.Weight, weight)
			}
		}
		// Only the two epochs' last update may be shared or filled up.
		if slices.Min(seen) != 2 || slices.Max(seen) != 2 {
			t.Fatalf("examples seen %v times in two epochs", seen)
		}
	})
}

func TestExamplesResume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, opt := drawExamples(t)
		whole := newExamples(t, x, opt)
		defer whole.Close()
		drain(t, whole, rapid.IntRange(0, 9).Draw(t, "before"))
		raw, err := json.Marshal(whole.Position())
		if err != nil {
			t.Fatal(err)
		}
		want := drain(t, whole, 5)
		opt.Workers, opt.Depth = 5-opt.Workers, 4-opt.Depth
		resumed := newExamples(t, x, opt)
		defer resumed.Close()
		var position ExamplePosition
		if err := json.Unmarshal(raw, &position); err != nil {
			t.Fatal(err)
		}
		if err := resumed.Seek(position); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, drain(t, resumed, 5)); d != "" {
			t.Fatal(d)
		}
		if whole.Position() != resumed.Position() {
			t.Fatalf("positions %+v, %+v", whole.Position(), resumed.Position())
		}
	})
}

// The ranks together see the micro-batches of one rank.
func TestExamplesRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, opt := drawExamples(t)
		one := opt
		one.MicroBatches *= 2
		single := newExamples(t, x, one)
		defer single.Close()
		var want, got []ExampleBatch
		for _, u := range drain(t, single, 4) {
			want = append(want, u.Micro...)
		}
		var share [2][]ExampleBatch
		for rank := range share {
			opt.Rank, opt.World = rank, 2
			l := newExamples(t, x, opt)
			for _, u := range drain(t, l, 4) {
				share[rank] = append(share[rank], u.Micro...)
			}
			l.Close()
		}
		for i := range share[0] {
			got = append(got, share[0][i], share[1][i])
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestExamplesShuffle(t *testing.T) {
	lengths := make([]int, 200)
	for i := range lengths {
		lengths[i] = 1 + i%2*5
	}
	l := newExamples(t, newTexts(t, lengths...), ExampleOptions{MicroBatches: 1, Shuffle: true, Seed: 1, Buckets: []Bucket{{1, 4}, {6, 4}}})
	defer l.Close()
	epochs := [2][]int{}
	changes := 0
	for e := range epochs {
		last := -1
		for _, u := range drain(t, l, int(l.Updates())) {
			epochs[e] = append(epochs[e], u.Micro[0].Index...)
			if u.Micro[0].Bucket != last {
				changes++
			}
			last = u.Micro[0].Bucket
		}
	}
	same := 0
	for i := range epochs[0] {
		if epochs[0][i] == epochs[1][i] {
			same++
		}
	}
	if same > 20 || changes < 20 {
		t.Errorf("%d of 200 examples in the same place in both epochs, %d changes of bucket in 100 batches", same, changes)
	}
}

func TestExamplesAllocateNothing(t *testing.T) {
	lengths := make([]int, 500)
	for i := range lengths {
		lengths[i] = i % 60
	}
	l := newExamples(t, newTexts(t, lengths...), ExampleOptions{MicroBatches: 2, Shuffle: true, Workers: 2, Buckets: []Bucket{{20, 8}, {60, 4}}})
	defer l.Close()
	step := func() {
		if _, err := l.Next(); err != nil {
			t.Fatal(err)
		}
	}
	step()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		step()
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 20 {
		t.Errorf("%d allocations in 1000 updates", n)
	}
}

func TestExamplesErrors(t *testing.T) {
	x := newTexts(t, 1, 9)
	one := []Bucket{{9, 1}}
	for want, opt := range map[string]ExampleOptions{
		"example 1 has 9 positions, the longest bucket has 8": {MicroBatches: 1, Buckets: []Bucket{{8, 1}}},
		"no buckets":        {MicroBatches: 1},
		"0 micro-batches":   {Buckets: one},
		"ascending lengths": {MicroBatches: 1, Buckets: []Bucket{{9, 1}, {9, 1}}},
		"1 row or more":     {MicroBatches: 1, Buckets: []Bucket{{9, 0}}},
		"rank 1 of 1":       {MicroBatches: 1, Buckets: one, Rank: 1},
		"-1 epochs":         {MicroBatches: 1, Buckets: one, Epochs: -1},
		"-1 updates ahead":  {MicroBatches: 1, Buckets: one, Depth: -1},
	} {
		_, err := NewExampleLoader(x, opt)
		wantError(t, err, want)
	}
	_, err := NewExampleLoader(newTexts(t), ExampleOptions{MicroBatches: 1, Buckets: one})
	wantError(t, err, "no examples")
	l := newExamples(t, x, ExampleOptions{MicroBatches: 1, Buckets: one, Seed: 1})
	defer l.Close()
	for want, change := range map[string]func(*ExamplePosition){
		"seed=1":        func(c *ExamplePosition) { c.Order = "other" },
		"micro-batch 2": func(c *ExamplePosition) { c.Index = 2 },
		"epoch -1":      func(c *ExamplePosition) { c.Epoch = -1 },
	} {
		c := l.Position()
		change(&c)
		wantError(t, l.Seek(c), want)
	}
}

// faulty is a set whose examples cannot all be read.
type faulty struct{ *Table }

var errFaulty = errors.New("picture is torn")

func (f faulty) Fill(i int, row Row) (float32, error) {
	if i == 3 {
		return 0, errFaulty
	}
	return f.Table.Fill(i, row)
}

func TestExamplesReadError(t *testing.T) {
	l := newExamples(t, faulty{newTexts(t, 1, 1, 1, 1)}, ExampleOptions{MicroBatches: 1, Buckets: []Bucket{{1, 2}}})
	defer l.Close()
	if _, err := l.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(); !errors.Is(err, errFaulty) {
		t.Errorf("%v, want the error of the set", err)
	}
}

func TestTableErrors(t *testing.T) {
	_, err := NewTable(Field{Name: "a"}, Field{Name: "a"})
	wantError(t, err, `"a"`, "twice")
	_, err = NewTable(Field{Name: "a", Shape: []int{2, -1}})
	wantError(t, err, "only the first size may be -1")
	table := newTexts(t, 4)
	id := table.ID()
	ok := []any{[]int32{1}, []int32{1}, make([]float32, 6), []float32{1, 2}}
	for want, change := range map[string]func(v []any) ([]any, float32){
		"3 values for 4 fields":                    func(v []any) ([]any, float32) { return v[:3], 1 },
		"field label: 2 elements":                  func(v []any) ([]any, float32) { v[1] = []int32{1, 2}; return v, 1 },
		"field image: want []float32":              func(v []any) ([]any, float32) { v[2] = []int32{1}; return v, 1 },
		"field ids: want []int32":                  func(v []any) ([]any, float32) { v[0] = []float32{1}; return v, 1 },
		"field ids: want []int32 or []float32":     func(v []any) ([]any, float32) { v[0] = "text"; return v, 1 },
		"field pairs: 3 elements are not a multip": func(v []any) ([]any, float32) { v[3] = []float32{1, 2, 3}; return v, 1 },
		"weight -1": func(v []any) ([]any, float32) { return v, -1 },
	} {
		values, weight := change(slices.Clone(ok))
		wantError(t, table.Add(weight, values...), want)
	}
	if table.ID() != id || table.Len() != 1 {
		t.Error("a refused example changed the table")
	}
	if err := table.Add(1, ok...); err != nil || table.ID() == id {
		t.Errorf("%v; ID changed: %t", err, table.ID() != id)
	}
	if d := cmp.Diff(Lengths{4: 1, 1: 1}, CountLengths(table)); d != "" {
		t.Error(d)
	}
}
