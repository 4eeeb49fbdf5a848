package metric

import (
	"strings"
	"unicode"
)

// NormalizeAnswer is the form in which SQuAD compares answers (Rajpurkar et
// al. 2016): lower case, without the ASCII punctuation and without the
// articles a, an and the, words separated by one space.
func NormalizeAnswer(s string) string {
	s = strings.Map(func(r rune) rune {
		if r <= unicode.MaxASCII && (unicode.IsPunct(r) || unicode.IsSymbol(r)) {
			return -1
		}
		return unicode.ToLower(r)
	}, s)
	words := strings.Fields(s)
	kept := words[:0]
	for _, w := range words {
		if w != "a" && w != "an" && w != "the" {
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " ")
}

// ExactMatch is 1 if the answer is one of the right ones after normalization, otherwise
// 0.
func ExactMatch(answer string, right ...string) float64 {
	for _, r := range right {
		if NormalizeAnswer(answer) == NormalizeAnswer(r) {
			return 1
		}
	}
	return 0
}

// TokenF1 is the harmonic mean of the shares of the answer's words that are right and of
// the right words that it contains, after normalization, for the best of the right
// answers. An answer without words is right if a right one has none either.
func TokenF1(answer string, right ...string) float64 {
	best := 0.0
	given := strings.Fields(NormalizeAnswer(answer))
	for _, r := range right {
		want := strings.Fields(NormalizeAnswer(r))
		if len(given) == 0 || len(want) == 0 {
			if len(given) == len(want) {
				best = 1
			}
			continue
		}
		best = max(best, f1(float64(overlap(given, want)), len(given), len(want)))
	}
	return best
}

// overlap counts the items that two lists share, each as often as it occurs in both.
func overlap[T comparable](a, b []T) (n int) {
	have := map[T]int{}
	for _, x := range b {
		have[x]++
	}
	for _, x := range a {
		if have[x] > 0 {
			have[x]--
			n++
		}
	}
	return n
}

// f1 is the F1 of a number of hits among given and wanted items.
func f1(hits float64, given, want int) float64 {
	if hits == 0 {
		return 0
	}
	p, r := hits/float64(given), hits/float64(want)
	return 2 * p * r / (p + r)
}
