package metric

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// pairs, with the results of rouge_score 0.1.2 (no stemmer) and the tokenizer of
// sacreBLEU 2.6.0.
var pairs = []struct {
	text, reference string
	r1, r2, rl      float64
	words           string
}{
	{"the cat sat on the mat", "the cat is on the mat", 0.8333333333333334, 0.6, 0.8333333333333334, "the cat sat on the mat"},
	{"Hello, world! It's 3.14, isn't it?", "Hello world! It is 3.14 , isn't it ?", 0.8888888888888888, 0.75, 0.8888888888888888, "Hello , world ! It's 3.14 , isn't it ?"},
	{"func (b *Buffer) Write(p []byte) (n int, err error)", "func (b *Buffer) WriteString(s string) (n int, err error)", 0.7, 0.5555555555555556, 0.7, "func ( b * Buffer ) Write ( p [ ] byte ) ( n int , err error )"},
	{"a", "a", 1, 0, 1, "a"},
	{"read frame header", "read the frame header now", 0.75, 0.3333333333333333, 0.75, "read frame header"},
	{"well-known 1990-1995 years &quot;x&quot; &amp; y", "well-known 1990 - 1995 years \"x\" & y", 0.8235294117647058, 0.5333333333333333, 0.8235294117647058, `well-known 1990 - 1995 years " x " & y`},
	{"", "nothing", 0, 0, 0, ""},
	{"zwei Männer stehen am Herd", "Zwei Männer stehen am Herd und kochen .", 0.8571428571428571, 0.8333333333333333, 0.8571428571428571, "zwei Männer stehen am Herd"},
	{"a b c d e f", "f e d c b a", 1, 0, 0.16666666666666666, "a b c d e f"},
	{"line one\nline two", "line one line two", 1, 1, 1, "line one line two"},
}

func close9(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestRouge(t *testing.T) {
	var texts, references []string
	sum := 0.0
	for _, p := range pairs {
		r := Rouge(p.text, p.reference)
		if !close9(r.R1, p.r1) || !close9(r.R2, p.r2) || !close9(r.RL, p.rl) {
			t.Errorf("%q: %+v, want %v %v %v", p.text, r, p.r1, p.r2, p.rl)
		}
		texts, references = append(texts, p.text), append(references, p.reference)
		sum += p.rl
	}
	if m := MeanRouge(texts, references); !close9(m.RL, sum/float64(len(pairs))) {
		t.Errorf("mean %v", m)
	}
}

func TestBLEU(t *testing.T) {
	for _, p := range pairs {
		if got := strings.Join(tokenize13a(p.text), " "); got != p.words {
			t.Errorf("%q is cut into %q, want %q", p.text, got, p.words)
		}
	}
	for _, c := range []struct {
		from, to int
		want     float64
	}{
		{0, 10, 57.77339667764951}, {0, 3, 53.42612190847707}, {4, 5, 0}, {8, 9, 12.703318703865376}, {5, 6, 100}, {7, 8, 36.70124608961282}, {3, 4, 0},
	} {
		var texts, references []string
		for _, p := range pairs[c.from:c.to] {
			texts, references = append(texts, p.text), append(references, p.reference)
		}
		if got := BLEU(texts, references); !close9(got, c.want) {
			t.Errorf("pairs %d to %d: %v, sacreBLEU has %v", c.from, c.to, got, c.want)
		}
	}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		answer string
		right  []string
		em, f1 float64
	}{
		{"The Eiffel Tower!", []string{"eiffel tower"}, 1, 1},
		{"in Paris", []string{"Paris"}, 0, 2.0 / 3},
		{"Rome", []string{"Paris", "rome."}, 1, 1},
		{"one two two", []string{"two two two"}, 0, 2.0 / 3},
		{"", []string{"x"}, 0, 0},
		{"the", []string{"a"}, 1, 1},
		{"*T", []string{"T"}, 1, 1},
	} {
		if em, f := ExactMatch(c.answer, c.right...), TokenF1(c.answer, c.right...); em != c.em || !close9(f, c.f1) {
			t.Errorf("%q for %q: %v and %v, want %v and %v", c.answer, c.right, em, f, c.em, c.f1)
		}
	}
}

// The subsequence is the longest, by comparison with all of them.
func TestLongestCommon(t *testing.T) {
	words := func(n int) []string { return strings.Split(fmt.Sprintf("%06b", n), "") }
	for n := range 64 {
		for m := range 64 {
			a, b := words(n), words(m)
			best := 0
			for pick := range 64 {
				var sub []string
				for i, w := range a {
					if pick>>i&1 == 1 {
						sub = append(sub, w)
					}
				}
				rest := b
				for _, w := range sub {
					if i := slices.Index(rest, w); i >= 0 {
						rest = rest[i+1:]
					} else {
						sub = nil
						break
					}
				}
				best = max(best, len(sub))
			}
			if got := longestCommon(a, b); got != best {
				t.Fatalf("%v and %v: %d, want %d", a, b, got, best)
			}
		}
	}
}
