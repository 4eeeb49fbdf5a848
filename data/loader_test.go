package data

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type rapidOrT interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

func newLoader(t rapidOrT, c Corpus, length int, opt LoaderOptions) *Loader {
	w, err := NewWindows(c, WindowOptions{Length: length})
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLoader(w, opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// row is one row of a micro-batch, copied.
type row struct {
	Tokens, Labels []int32
	Weights        []float32
	Segments       []int32
}

// take copies the rows of up to n updates.
func take(t rapidOrT, l *Loader, n int) (rows []row) {
	size := l.windows.Length()
	for range n {
		u, err := l.Next()
		if err == io.EOF {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		var weight float64
		for _, b := range u.Micro {
			for lo := 0; lo < len(b.Tokens); lo += size {
				r := row{
					Tokens:  slices.Clone(b.Tokens[lo : lo+size]),
					Labels:  slices.Clone(b.Labels[lo : lo+size]),
					Weights: slices.Clone(b.Weights[lo : lo+size]),
				}
				if b.Segments != nil {
					r.Segments = slices.Clone(b.Segments[lo : lo+size])
				}
				weight += sum(r.Weights)
				rows = append(rows, r)
			}
		}
		if weight != u.Weight {
			t.Fatalf("update weighs %v, its rows %v", u.Weight, weight)
		}
	}
	return rows
}

func drawOptions(t *rapid.T) LoaderOptions {
	return LoaderOptions{
		MicroBatches: rapid.IntRange(1, 3).Draw(t, "A"),
		BatchSize:    rapid.IntRange(1, 4).Draw(t, "B"),
		Segments:     rapid.Bool().Draw(t, "segments"),
		Shuffle:      rapid.Bool().Draw(t, "shuffle"),
		Seed:         rapid.Uint64().Draw(t, "seed"),
		Workers:      rapid.IntRange(1, 4).Draw(t, "workers"),
		Depth:        rapid.IntRange(1, 4).Draw(t, "depth"),
	}
}

// An epoch has every window once, whatever the batches and the workers.
func TestLoaderEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCorpus(t, 30)
		opt := drawOptions(t)
		opt.Epochs = rapid.Int64Range(1, 3).Draw(t, "epochs")
		l := newLoader(t, c, 4, opt)
		defer l.Close()
		rows := take(t, l, 10_000)
		per := opt.MicroBatches * opt.BatchSize
		total := int(l.windows.Len() * opt.Epochs)
		if want := (total + per - 1) / per * per; len(rows) != want {
			t.Fatalf("%d rows, want %d", len(rows), want)
		}
		for _, r := range rows[total:] {
			if sum(r.Weights) != 0 || slices.Max(r.Tokens) != c.EOS() {
				t.Fatalf("filler row %+v", r)
			}
		}
		for e := range int(opt.Epochs) {
			n := int(l.windows.Len())
			seen := make([]int, n)
			order := NewPermutation(int64(n), opt.Seed, uint64(e))
			for i, r := range rows[e*n : (e+1)*n] {
				window := i
				if opt.Shuffle {
					window = int(order.At(int64(i)))
				}
				seen[window]++
				want := min(4, len(c.tokens)-1-4*window)
				if !slices.Equal(r.Tokens[:want], c.tokens[4*window:4*window+want]) {
					t.Fatalf("epoch %d row %d is not window %d", e, i, window)
				}
			}
			if slices.Min(seen) != 1 {
				t.Fatalf("epoch %d: windows seen %v", e, seen)
			}
		}
	})
}

// The stream after Seek(position) equals the uninterrupted one, even through JSON, with
// other workers, and with other batch shapes.
func TestLoaderResume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCorpus(t, 30)
		opt := drawOptions(t)
		per := opt.MicroBatches * opt.BatchSize
		before, after := rapid.IntRange(0, 12).Draw(t, "before"), rapid.IntRange(1, 12).Draw(t, "after")

		whole := newLoader(t, c, 3, opt)
		defer whole.Close()
		take(t, whole, before)
		raw, err := json.Marshal(whole.Position())
		if err != nil {
			t.Fatal(err)
		}
		want := take(t, whole, after)

		again := opt
		again.Workers, again.Depth = 5-opt.Workers, 5-opt.Depth
		if rapid.Bool().Draw(t, "reshape") {
			again.MicroBatches, again.BatchSize = 1, per
		}
		resumed := newLoader(t, c, 3, again)
		defer resumed.Close()
		take(t, resumed, rapid.IntRange(0, 3).Draw(t, "ahead"))
		var position Position
		if err := json.Unmarshal(raw, &position); err != nil {
			t.Fatal(err)
		}
		if err := resumed.Seek(position); err != nil {
			t.Fatal(err)
		}
		if resumed.Position() != position {
			t.Fatalf("position after Seek %+v, want %+v", resumed.Position(), position)
		}
		if d := cmp.Diff(want, take(t, resumed, after)); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(whole.Position(), resumed.Position()); d != "" {
			t.Fatal(d)
		}
	})
}

// The ranks together see the same as one rank with all the rows.
func TestLoaderRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCorpus(t, 30)
		opt := drawOptions(t)
		world := rapid.IntRange(2, 3).Draw(t, "world")
		one := opt
		one.BatchSize *= world
		single := newLoader(t, c, 3, one)
		defer single.Close()
		want := take(t, single, 3)
		share := make([][]row, world)
		for rank := range world {
			part := opt
			part.Rank, part.World = rank, world
			l := newLoader(t, c, 3, part)
			share[rank] = take(t, l, 3)
			l.Close()
		}
		var got []row
		for m := 0; m < len(share[0]); m += opt.BatchSize {
			for _, s := range share {
				got = append(got, s[m:m+opt.BatchSize]...)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestLoaderShuffleDiffersByEpoch(t *testing.T) {
	var doc []int32
	for i := range int32(400) {
		doc = append(doc, i)
	}
	l := newLoader(t, newMemory(500, doc), 4, LoaderOptions{MicroBatches: 1, BatchSize: 1, Shuffle: true, Seed: 3})
	defer l.Close()
	rows := take(t, l, 200)
	same, sorted := 0, 0
	for i := range 100 {
		if rows[i].Tokens[0] == rows[100+i].Tokens[0] {
			same++
		}
		if rows[i].Tokens[0] == int32(4*i) {
			sorted++
		}
	}
	if same > 8 || sorted > 8 {
		t.Errorf("%d of 100 windows at the same place in both epochs, %d at their own", same, sorted)
	}
}

func TestLoaderSeekRefuses(t *testing.T) {
	c := newMemory(10, []int32{1, 2, 3, 4, 5, 6, 7, 8})
	l := newLoader(t, c, 2, LoaderOptions{MicroBatches: 1, BatchSize: 1, Seed: 1})
	defer l.Close()
	good := l.Position()
	for want, change := range map[string]func(*Position){
		"corpus":     func(c *Position) { c.Corpus = "other" },
		"3 tokens":   func(c *Position) { c.Length = 3 },
		"seed=2":     func(c *Position) { c.Seed = 2 },
		"shuffle":    func(c *Position) { c.Shuffle = true },
		"window 4":   func(c *Position) { c.Index = 4 },
		"window -1":  func(c *Position) { c.Index = -1 },
		"epoch -1":   func(c *Position) { c.Epoch = -1 },
		"epoch 9223": func(c *Position) { c.Epoch = 1<<63 - 1 },
	} {
		bad := good
		change(&bad)
		wantError(t, l.Seek(bad), want)
	}
	if err := l.Seek(good); err != nil {
		t.Error(err)
	}
}

// broken fails to read from a position on.
type broken struct {
	*memory
	from int64
	err  error
}

func (b *broken) Read(dst []int32, off int64) error {
	if off+int64(len(dst)) > b.from {
		return b.err
	}
	return b.memory.Read(dst, off)
}

func TestLoaderErrors(t *testing.T) {
	boom := errors.New("boom")
	c := &broken{newMemory(10, []int32{1, 2, 3, 4, 5, 6, 7, 8}), 5, boom}
	l := newLoader(t, c, 2, LoaderOptions{MicroBatches: 1, BatchSize: 1, Depth: 3, Workers: 2})
	for i := range 2 {
		if _, err := l.Next(); err != nil {
			t.Fatalf("update %d: %v", i, err)
		}
	}
	for range 3 {
		if _, err := l.Next(); !errors.Is(err, boom) {
			t.Fatalf("%v, want the error of the corpus, again and again", err)
		}
	}
	if err := l.Seek(l.at(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(); err != nil {
		t.Errorf("after Seek away from the fault: %v", err)
	}
	l.Close()
	l.Close()
	_, err := l.Next()
	wantError(t, err, "closed")
	wantError(t, l.Seek(l.at(0)), "closed")
	for want, opt := range map[string]LoaderOptions{
		"0 micro-batches": {BatchSize: 1},
		"batch size is 0": {MicroBatches: 1},
		"rank 2 of 2":     {MicroBatches: 1, BatchSize: 1, Rank: 2, World: 2},
		"-1 epochs":       {MicroBatches: 1, BatchSize: 1, Epochs: -1},
		"-1 loader":       {MicroBatches: 1, BatchSize: 1, Workers: -1},
	} {
		_, err := NewLoader(l.windows, opt)
		wantError(t, err, want)
	}
}

// slow counts reads, to see how far ahead the workers go.
type slow struct {
	*memory
	reads atomic.Int64
}

func (s *slow) Read(dst []int32, off int64) error {
	s.reads.Add(1)
	return s.memory.Read(dst, off)
}

func TestLoaderPrefetches(t *testing.T) {
	c := &slow{memory: newMemory(10, make([]int32, 1000))}
	l := newLoader(t, c, 2, LoaderOptions{MicroBatches: 1, BatchSize: 1, Depth: 5})
	defer l.Close()
	const readsPerWindow = 2
	for deadline := time.Now().Add(5 * time.Minute); c.reads.Load() < 6*readsPerWindow; {
		if time.Now().After(deadline) {
			t.Fatalf("%d reads before anyone asked, want 6 windows", c.reads.Load())
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(10 * time.Millisecond)
	if n := c.reads.Load(); n != 6*readsPerWindow {
		t.Errorf("%d reads: more than the slots can hold", n)
	}
}

// In the steady state nothing is allocated, by the consumer or the workers.
func TestLoaderAllocatesNothing(t *testing.T) {
	c := newMemory(10, make([]int32, 5000), make([]int32, 3000))
	l := newLoader(t, c, 16, LoaderOptions{MicroBatches: 2, BatchSize: 4, Segments: true, Shuffle: true, Workers: 2})
	defer l.Close()
	dst := l.newUpdate().Micro[0]
	step := func() {
		u, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		for i := range u.Micro {
			if err := u.Micro[i].CopyTo(dst); err != nil {
				t.Fatal(err)
			}
		}
	}
	step()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 1000 {
		step()
	}
	runtime.ReadMemStats(&after)
	// The count covers all goroutines; the runtime itself may add a few.
	if n := after.Mallocs - before.Mallocs; n > 20 {
		t.Errorf("%d allocations in 1000 updates", n)
	}
	dst.Labels = dst.Labels[1:]
	wantError(t, l.newUpdate().Micro[0].CopyTo(dst), "63")
}

func BenchmarkLoader(b *testing.B) {
	l := newLoader(b, newMemory(50_000, make([]int32, 1<<22)), 1024,
		LoaderOptions{MicroBatches: 4, BatchSize: 8, Segments: true, Shuffle: true, Workers: 2})
	defer l.Close()
	for range b.N {
		if _, err := l.Next(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*4*8*1024/b.Elapsed().Seconds()/1e6, "Mtok/s")
}
