package token

import (
	"slices"
	"sync"
	"testing"
)

// Many goroutines encode with one tokenizer, with the same results as a single one.
func TestConcurrent(t *testing.T) {
	for _, kind := range []string{"gpt2", "roberta", "bert-uncased", "unigram"} {
		tok := goldenTokenizer(t, kind)
		texts := goldenTexts()[:300]
		want := make([][]int32, len(texts))
		for i, line := range goldenLines(t, kind+".golden.gz")[:len(texts)] {
			want[i] = unjson[[]int32](t, line[0])
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				var ids []int32
				for k := range texts {
					i := (k*7 + g*31) % len(texts)
					if ids = tok.Encode(ids[:0], texts[i]); !slices.Equal(ids, want[i]) {
						t.Errorf("%s: text %d: ids %v, want %v", kind, i, ids, want[i])
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// Encode appends, and in the steady state allocates nothing for words that it has seen.
func TestEncodeAllocates(t *testing.T) {
	tok := goldenTokenizer(t, "gpt2")
	text := goldenTexts()[0]
	ids := tok.Encode([]int32{7}, text)
	if ids[0] != 7 || !slices.Equal(ids[1:], tok.Encode(nil, text)) {
		t.Fatalf("not appended: %v", ids)
	}
	if n := testing.AllocsPerRun(100, func() { ids = tok.Encode(ids[:0], text) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
