package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/snug-ml/snug/data"
)

func TestRoundTrip(t *testing.T) {
	for _, enc := range []byteEncoder{narrow, wide} {
		dir := filepath.Join(t.TempDir(), "deep", "prepared")
		prepare(t, dir, texts("one", "two", "", "three"), enc, Options{Tokenizer: "bytes"})
		c := open(t, dir, Train)
		if got := enc.decode(stream(t, c)); got != "one|two|three|" {
			t.Errorf("stream %q", got)
		}
		if c.Documents() != 3 || c.Bytes() != 11 || c.VocabSize() != enc.vocab || c.EOS() != enc.eos() {
			t.Errorf("%d documents, %d bytes, vocabulary %d, EOS %d", c.Documents(), c.Bytes(), c.VocabSize(), c.EOS())
		}
		if ends := []int64{c.DocumentEnd(0), c.DocumentEnd(1), c.DocumentEnd(2)}; !slices.Equal(ends, []int64{4, 8, 14}) {
			t.Errorf("documents end at %v", ends)
		}
		if st, err := os.Stat(filepath.Join(dir, "train-00000.tokens")); err != nil || st.Size() != int64(headerSize+(14*widthOf(enc.vocab)+7)/8*8+3*8) {
			t.Errorf("shard of %d bytes, %v", st.Size(), err)
		}
		_, err := Open(dir, HeldOut)
		wantError(t, err, "no heldout split")
	}
}

// Any division into shards gives the same stream, and any range of it can be read.
func TestShardsJoin(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		docs := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,9}`), 1, 20).Draw(rt, "documents")
		n++
		at := filepath.Join(dir, fmt.Sprint(n))
		prepare(t, at, texts(docs...), narrow, Options{ShardTokens: rapid.Int64Range(1, 40).Draw(rt, "limit")})
		c, err := Open(at, Train)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() {
			if err := errors.Join(c.Close(), os.RemoveAll(at)); err != nil {
				rt.Fatal(err)
			}
		}()
		want := narrow.EncodeOrdinary(nil, []byte(strings.Join(docs, "|")+"|"))
		end := int64(0)
		for i, d := range docs {
			end += int64(len(d)) + 1
			want[end-1] = narrow.eos()
			if c.DocumentEnd(int64(i)) != end {
				rt.Fatalf("document %d ends at %d, want %d", i, c.DocumentEnd(int64(i)), end)
			}
		}
		from := rapid.Int64Range(0, end).Draw(rt, "from")
		got := make([]int32, rapid.Int64Range(0, end-from).Draw(rt, "length"))
		if err := c.Read(got, from); err != nil {
			rt.Fatal(err)
		}
		if !slices.Equal(got, want[from:from+int64(len(got))]) {
			rt.Fatalf("ids from %d: %q, want %q", from, narrow.decode(got), narrow.decode(want[from:]))
		}
		if err := c.Read(make([]int32, 2), end-1); err == nil {
			rt.Fatal("read past the end")
		}
	})
}

func TestWorkersChangeNothing(t *testing.T) {
	dir := t.TempDir()
	src := many(5000)
	var want map[string]string
	for _, workers := range []int{1, 2, 5} {
		at := filepath.Join(dir, fmt.Sprint(workers))
		prepare(t, at, src, narrow, Options{HeldOut: 0.1, ShardTokens: 20_000, Workers: workers})
		got := contents(t, at)
		if want == nil {
			want = got
		}
		if len(got) < 6 || cmp.Diff(want, got) != "" {
			t.Errorf("%d workers: %d files, other than with one worker", workers, len(got))
		}
	}
}

func TestSplitByGroup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	src := many(3000)
	p := prepare(t, dir, src, narrow, Options{HeldOut: 0.2, Seed: 7})
	if held := float64(p.Report.HeldOut.Groups) / 1000; math.Abs(held-0.2) > 0.04 {
		t.Errorf("share of groups held out %.3f, want about 0.2", held)
	}
	in := map[Split]string{}
	for _, s := range []Split{Train, HeldOut} {
		in[s] = "|" + narrow.decode(stream(t, open(t, dir, s)))
	}
	for i := 0; i < len(src.docs); i += 3 {
		home := splitOfGroup(7, 0.2, src.docs[i].Group)
		for _, d := range src.docs[i : i+3] {
			if want := "|" + string(d.Text) + "|"; !strings.Contains(in[home], want) || strings.Contains(in[1-home], want) {
				t.Fatalf("%s of %s is not in %s alone", d.ID, d.Group, home)
			}
		}
	}
	// The split depends on seed and name, and raising the share moves groups in
	// one direction only.
	moved := 0
	for i := range 1000 {
		g := fmt.Sprint("group", i)
		if splitOfGroup(7, 0.2, g) != splitOfGroup(8, 0.2, g) {
			moved++
		}
		if splitOfGroup(7, 0.2, g) == HeldOut && splitOfGroup(7, 0.3, g) == Train {
			t.Errorf("%s is held out at 0.2 and not at 0.3", g)
		}
	}
	if moved < 200 {
		t.Errorf("another seed moved %d of 1000 groups", moved)
	}
}

func TestReuse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	src, opt := many(100), Options{HeldOut: 0.2, Length: 64}
	first := prepare(t, dir, src, narrow, opt)
	if first.Reused || !strings.Contains(first.Why, "no prepared data") {
		t.Errorf("first time: reused %t, why %q", first.Reused, first.Why)
	}
	before := contents(t, dir)
	again := prepare(t, dir, src, narrow, opt)
	if !again.Reused || cmp.Diff(first.Report, again.Report) != "" || cmp.Diff(first.Manifest, again.Manifest) != "" {
		t.Errorf("reused %t; report %s", again.Reused, cmp.Diff(first.Report, again.Report))
	}
	opt.Length = 32
	if p := prepare(t, dir, src, narrow, opt); !p.Reused || p.Report.Padding.Length != 32 || p.Report.Padding.Fixed == first.Report.Padding.Fixed {
		t.Errorf("another window: reused %t, padding %+v", p.Reused, p.Report.Padding)
	}
	other := src
	other.name = "changed"
	for name, change := range map[string]func() *Prepared{
		"source":    func() *Prepared { return prepare(t, dir, other, narrow, opt) },
		"seed":      func() *Prepared { return prepare(t, dir, src, narrow, Options{HeldOut: 0.2, Seed: 1}) },
		"tokenizer": func() *Prepared { return prepare(t, dir, src, narrow, Options{HeldOut: 0.2, Tokenizer: "x"}) },
	} {
		if p := change(); p.Reused || !strings.Contains(p.Why, "changed") {
			t.Errorf("%s changed: reused %t, why %q", name, p.Reused, p.Why)
		}
	}
	prepare(t, dir, src, narrow, opt)
	// A damaged file is detected and made again.
	name := filepath.Join(dir, "train-00000.tokens")
	raw := []byte(before["train-00000.tokens"])
	raw[headerSize+5] ^= 1
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if p := prepare(t, dir, src, narrow, opt); p.Reused || !strings.Contains(p.Why, "checksum of the ids") {
		t.Errorf("damaged: reused %t, why %q", p.Reused, p.Why)
	}
	if d := cmp.Diff(before["train-00000.tokens"], contents(t, dir)["train-00000.tokens"]); d != "" {
		t.Error("made again, it is another file")
	}
}

// A mapping stays readable while its folder is prepared again.
func TestReplaceUnderReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, texts("old text"), narrow, Options{})
	c := open(t, dir, Train)
	prepare(t, dir, texts("new", "words"), narrow, Options{})
	if got := narrow.decode(stream(t, c)); got != "old text|" {
		t.Errorf("mapped before: %q", got)
	}
	d := open(t, dir, Train)
	if got := narrow.decode(stream(t, d)); got != "new|words|" {
		t.Errorf("mapped after: %q", got)
	}
	if c.ID() == d.ID() {
		t.Error("other content, same ID")
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "p")
	prepare(t, dir, texts("good"), narrow, Options{})
	before := contents(t, dir)
	boom := errors.New("boom")
	bad := many(3000)
	bad.err = boom
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, try := range map[string]func() error{
		"boom": func() error {
			_, err := Prepare(context.Background(), dir, bad, narrow, Options{EOS: 256})
			if !errors.Is(err, boom) {
				t.Errorf("%v, want the error of the source", err)
			}
			return err
		},
		"canceled": func() error {
			_, err := Prepare(ctx, dir, many(3000), narrow, Options{EOS: 256})
			return err
		},
		"outside the vocabulary": func() error {
			src := list{docs: []data.Document{{ID: "npz", Tokens: []int32{1, 257}}}}
			_, err := Prepare(context.Background(), dir, src, narrow, Options{EOS: 256})
			return err
		},
		"none of the documents has text (2 read)": func() error {
			_, err := Prepare(context.Background(), dir, texts("", ""), narrow, Options{EOS: 256})
			return err
		},
		"nothing held out: none of 2 groups of documents fell into the share of 1e-09; raise data.held_out_fraction, choose another data.shuffle_seed, or ": func() error {
			_, err := Prepare(context.Background(), dir, texts("one", "two"), narrow, Options{EOS: 256, HeldOut: 1e-9})
			return err
		},
		"nothing left to train on": func() error {
			_, err := Prepare(context.Background(), dir, texts("one", "two"), narrow, Options{EOS: 256, HeldOut: 0.999999})
			return err
		},
		"one document, of which no share of 0.5 can be taken; divide more finely (data.documents: chunk, paragraph or line, with data.split_by: document)": func() error {
			_, err := Prepare(context.Background(), dir, texts("only"), narrow, Options{EOS: 256, HeldOut: 0.5})
			return err
		},
		"one document, of which no share of 0.25 can be taken; hold out the end of each document (data.split_by: end)": func() error {
			_, err := Prepare(context.Background(), dir, texts("only"), narrow, Options{EOS: 256, HeldOut: 0.25, Ends: true})
			return err
		},
		"EOS id 257": func() error {
			_, err := Prepare(context.Background(), dir, texts("x"), narrow, Options{EOS: 257})
			return err
		},
		"held-out share is 1": func() error {
			_, err := Prepare(context.Background(), dir, texts("x"), narrow, Options{HeldOut: 1})
			return err
		},
		"held-out share is NaN": func() error {
			_, err := Prepare(context.Background(), dir, texts("x"), narrow, Options{HeldOut: math.NaN()})
			return err
		},
	} {
		wantError(t, try(), name)
		if d := cmp.Diff(before, contents(t, dir)); d != "" {
			t.Errorf("%s: the folder changed: %s", name, d)
		}
		if e, err := os.ReadDir(parent); err != nil || len(e) != 1 {
			t.Errorf("%s: left behind %v, %v", name, e, err)
		}
	}
}

func TestRefusesOtherFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.doc"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Prepare(context.Background(), dir, texts("x"), narrow, Options{EOS: 256})
	wantError(t, err, "thesis.doc", "name another folder")
	_, err = Open(dir, Train)
	wantError(t, err, "no prepared data", "snug data prepare")
}

func TestReport(t *testing.T) {
	src := texts("a b", "A  b ", "other", "", "third one", "a B\n")
	for i := range src.docs {
		src.docs[i].Repaired = i
	}
	dir := filepath.Join(t.TempDir(), "p")
	r := prepare(t, dir, src, narrow, Options{}).Report
	want := Duplicates{WithinTrain: 2, Examples: []string{"doc1", "doc5"}}
	if d := cmp.Diff(want, r.Duplicates); d != "" {
		t.Error(d)
	}
	if r.Documents != 6 || r.EmptyDocuments != 1 || r.RepairedBytes != 15 || r.Train.Documents != 5 {
		t.Errorf("%+v", r)
	}
	// Lengths with EOS: 4, 6, 6, 10, 5.
	q := Quantiles{Min: 4, P5: 4, P25: 5, P50: 6, P75: 6, P95: 10, P99: 10, Max: 10, Mean: 6.2}
	if d := cmp.Diff(q, r.Train.Lengths); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]int64{0, 0, 4, 1}, r.Train.Histogram); d != "" {
		t.Error(d)
	}
	pad := r.Padding
	if pad.Length != 10 || math.Abs(pad.Fixed-(1-31.0/50)) > 1e-12 || math.Abs(pad.Packed) > 1e-12 {
		t.Errorf("%+v", pad)
	}
	if !slices.Equal(pad.BucketLengths, []int{8, 16}) || math.Abs(pad.Buckets-(1-31.0/48)) > 1e-12 {
		t.Errorf("%+v", pad)
	}
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"documents read                6\n", "documents                   5            0\n", "within train                2\n",
		"such as doc1, doc5\n", "median 6, 75% 6", "4 to 7                 4 " + strings.Repeat("#", 40) + "\n",
		"8 to 15                1 " + strings.Repeat("#", 10) + "\n", "padding at 10 tokens: 38.0 % fixed, 35.4 % in buckets of [8 16], 0.000 % packed",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the printed report lacks %q:\n%s", want, b.String())
		}
	}
	r = prepare(t, dir, src, narrow, Options{DropDuplicates: true}).Report
	if !r.Duplicates.Dropped || r.Train.Documents != 3 {
		t.Errorf("dropped: %+v", r)
	}
}

func TestDuplicatesAcrossSplits(t *testing.T) {
	src := many(300)
	for i := range 60 { // copies under other names, in whatever split they are
		d := src.docs[i]
		d.ID, d.Group = fmt.Sprint("copy", i), fmt.Sprint("copies", i)
		src.docs = append(src.docs, d)
	}
	opt := Options{HeldOut: 0.5}
	across := int64(0)
	for i := range 60 {
		if splitOfGroup(0, 0.5, src.docs[i].Group) != splitOfGroup(0, 0.5, fmt.Sprint("copies", i)) {
			across++
		}
	}
	dir := filepath.Join(t.TempDir(), "p")
	r := prepare(t, dir, src, narrow, opt).Report
	if r.Duplicates.Across != across || across == 0 {
		t.Errorf("%d across splits, want %d", r.Duplicates.Across, across)
	}
	if within := r.Duplicates.WithinTrain + r.Duplicates.WithinHeldOut; within != 60-across {
		t.Errorf("%d within splits, want %d", within, 60-across)
	}
	opt.DropDuplicates = true
	prepare(t, dir, src, narrow, opt)
	held := map[string]bool{}
	for _, s := range strings.Split(narrow.decode(stream(t, open(t, dir, HeldOut))), "|") {
		held[s] = s != ""
	}
	for _, s := range strings.Split(narrow.decode(stream(t, open(t, dir, Train))), "|") {
		if held[s] {
			t.Errorf("%q is in both splits", s)
		}
	}
}

func TestProgress(t *testing.T) {
	var last Progress
	calls := 0
	prepare(t, filepath.Join(t.TempDir(), "p"), many(5000), narrow, Options{Progress: func(p Progress) {
		if p.Documents < last.Documents || p.Tokens < last.Tokens {
			t.Errorf("progress went back from %+v to %+v", last, p)
		}
		last, calls = p, calls+1
	}})
	if last.Documents != 5000 || last.Tokens != last.TextBytes+5000 || calls < 2 {
		t.Errorf("%d calls, the last with %+v", calls, last)
	}
}

// A model that finds each byte and each EOS equally likely needs log2(257)
// bits for each, over the bytes alone.
func TestBitsPerByte(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, texts("abcdefg"), narrow, Options{})
	w, err := data.NewWindows(open(t, dir, Train), data.WindowOptions{Length: 4})
	if err != nil {
		t.Fatal(err)
	}
	// The first of 7 bytes and an EOS is not a label.
	if got, want := w.BitsPerByte(math.Log(257)), math.Log2(257); math.Abs(got-want) > 1e-12 {
		t.Errorf("%v bits a byte, want %v", got, want)
	}
}

// Windows and Loader over shards, as training uses them.
func TestTrainsFromShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, many(500), narrow, Options{ShardTokens: 3000})
	c := open(t, dir, Train)
	w, err := data.NewWindows(c, data.WindowOptions{Length: 50})
	if err != nil {
		t.Fatal(err)
	}
	l, err := data.NewLoader(w, data.LoaderOptions{MicroBatches: 2, BatchSize: 3, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := stream(t, c)
	for n := range int(l.Updates()) {
		u, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		for m, b := range u.Micro {
			at := (n*2 + m) * 150
			if at+150 < len(want) && !slices.Equal(b.Labels, want[at+1:at+151]) {
				t.Fatalf("update %d micro-batch %d: other labels than the stream", n, m)
			}
		}
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	prepare(t, dir, many(500), wide, Options{ShardTokens: 3000})
	c := open(t, dir, Train)
	dst := make([]int32, 5000)
	if n := testing.AllocsPerRun(100, func() {
		if err := c.Read(dst, 100); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a read", n)
	}
}

func BenchmarkRead(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "p")
	prepare(b, dir, many(50_000), narrow, Options{})
	c := open(b, dir, Train)
	dst := make([]int32, 1024)
	b.SetBytes(1024)
	for i := range b.N {
		if err := c.Read(dst, int64(i)*1024%(c.Tokens()-1024)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPrepare(b *testing.B) {
	src := many(50_000)
	var size int64
	for _, d := range src.docs {
		size += int64(len(d.Text))
	}
	b.SetBytes(size)
	for i := range b.N {
		prepare(b, filepath.Join(b.TempDir(), fmt.Sprint(i)), src, narrow, Options{HeldOut: 0.1})
	}
}

func TestSelect(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	src := many(300)
	prepare(t, dir, src, narrow, Options{HeldOut: 0.3, Seed: 5})
	prints := map[string]bool{}
	for _, split := range []Split{Train, HeldOut} {
		part := Select(src, split, 5, 0.3)
		var all []string
		for doc, err := range part.Documents() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(doc.Text)+"|")
		}
		if got := narrow.decode(stream(t, open(t, dir, split))); got != strings.Join(all, "") {
			t.Errorf("%s: selected %d documents, other than were prepared", split, len(all))
		}
		print, err := part.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		prints[print] = true
	}
	if len(prints) != 2 {
		t.Error("both parts have the same fingerprint")
	}
	bad := src
	bad.err = errors.New("boom")
	for _, err := range Select(bad, Train, 5, 0.3).Documents() {
		if err != nil {
			return
		}
	}
	t.Error("the error of the source was lost")
}
