package data

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWindowsByHand(t *testing.T) {
	const eos = 9
	c := newMemory(10, []int32{1, 2}, []int32{3}, []int32{4, 5, 6, 7})
	// stream: 1 2 9 3 9 4 5 6 7 9
	type window struct {
		Tokens, Labels []int32
		Weights        []float32
		Segments       []int32
	}
	want := []window{
		{[]int32{1, 2, eos, 3}, []int32{2, eos, 3, eos}, []float32{1, 1, 0, 1}, []int32{0, 0, 0, 1}},
		{[]int32{eos, 4, 5, 6}, []int32{4, 5, 6, 7}, []float32{0, 1, 1, 1}, []int32{0, 1, 1, 1}},
		{[]int32{7, eos, eos, eos}, []int32{eos, eos, eos, eos}, []float32{1, 0, 0, 0}, []int32{0, 1, 1, 1}},
	}
	w, err := NewWindows(c, WindowOptions{Length: 4})
	if err != nil {
		t.Fatal(err)
	}
	if w.Len() != 3 || w.Weight() != 7 {
		t.Fatalf("%d windows of weight %v, want 3 of 7", w.Len(), w.Weight())
	}
	for i := range want {
		got := window{make([]int32, 4), make([]int32, 4), make([]float32, 4), make([]int32, 4)}
		weight, err := w.Fill(int64(i), got.Tokens, got.Labels, got.Weights, got.Segments)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want[i], got); d != "" {
			t.Errorf("window %d: %s", i, d)
		}
		if s := sum(got.Weights); s != weight {
			t.Errorf("window %d: weight %v, sum of weights %v", i, weight, s)
		}
	}
}

func sum(w []float32) (s float64) {
	for _, x := range w {
		s += float64(x)
	}
	return s
}

// The guarantees of packing, on random corpora: labels are inputs shifted by one,
// every token is an input and a label as often as documented, weights and
// segments follow the document borders.
func TestWindowsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCorpus(t, 12)
		opt := WindowOptions{Length: rapid.IntRange(1, 20).Draw(t, "T"), CrossDocument: rapid.Bool().Draw(t, "cross")}
		w, err := NewWindows(c, opt)
		if err != nil {
			t.Fatal(err)
		}
		var inputs, labels []int32
		var total float64
		tok, lab := make([]int32, opt.Length), make([]int32, opt.Length)
		wt, seg := make([]float32, opt.Length), make([]int32, opt.Length)
		for i := range w.Len() {
			weight, err := w.Fill(i, tok, lab, wt, seg)
			if err != nil {
				t.Fatal(err)
			}
			if weight != sum(wt) {
				t.Fatalf("window %d: weight %v, sum %v", i, weight, sum(wt))
			}
			total += weight
			off := int(i) * opt.Length
			n := min(opt.Length, len(c.tokens)-1-off)
			if i < w.Len()-1 && n < opt.Length {
				t.Fatalf("window %d is padded and is not the last", i)
			}
			for k := range opt.Length {
				if k >= n {
					if wt[k] != 0 || tok[k] != c.EOS() || lab[k] != c.EOS() || n > 0 && seg[k] <= seg[n-1] {
						t.Fatalf("window %d place %d: padding counts or joins a document", i, k)
					}
					continue
				}
				p := int64(off + k) // of the input; its label is p+1
				opens := slices.Contains(c.ends, p+1)
				if want := opt.CrossDocument || !opens; (wt[k] == 1) != want {
					t.Fatalf("stream place %d: weight %v, opens a document: %t", p, wt[k], opens)
				}
				if k > 0 {
					if same := documentAt(c, p) == documentAt(c, p-1); same != (seg[k] == seg[k-1]) {
						t.Fatalf("stream place %d: segments %d, %d", p, seg[k-1], seg[k])
					}
				} else if seg[0] != 0 {
					t.Fatalf("window %d starts in segment %d", i, seg[0])
				}
			}
			inputs, labels = append(inputs, tok[:n]...), append(labels, lab[:n]...)
		}
		if d := cmp.Diff(c.tokens[:len(c.tokens)-1], inputs); d != "" {
			t.Fatalf("inputs are not the stream without its last token: %s", d)
		}
		if d := cmp.Diff(c.tokens[1:], labels); d != "" {
			t.Fatalf("labels are not the stream without its first token: %s", d)
		}
		if total != w.Weight() {
			t.Fatalf("windows weigh %v, Weight says %v", total, w.Weight())
		}
	})
}

func TestWindowsErrors(t *testing.T) {
	c := newMemory(10, []int32{1, 2, 3})
	_, err := NewWindows(c, WindowOptions{})
	wantError(t, err, "window length is 0")
	_, err = NewWindows(newMemory(10), WindowOptions{Length: 4})
	wantError(t, err, "0 tokens")
	w, err := NewWindows(c, WindowOptions{Length: 2})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]int32, 2)
	_, err = w.Fill(2, buf, buf, make([]float32, 2), nil)
	wantError(t, err, "window 2 of 2")
	_, err = w.Fill(0, buf, buf[:1], make([]float32, 2), nil)
	wantError(t, err, "1 labels")
}
