package metric

import (
	"strings"
	"unicode"
)

// ROUGE are the F-measures of a text against a reference (Lin 2004): shared
// words, shared pairs of words, and the longest common subsequence of words.
type ROUGE struct{ R1, R2, RL float64 }

// Rouge compares a text with a reference. Words are runs of ASCII letters and digits in
// lower case, without stemming, as in the package rouge_score; like it, nothing is left
// of other scripts.
func Rouge(text, reference string) ROUGE {
	a, b := rougeWords(text), rougeWords(reference)
	if len(a) == 0 || len(b) == 0 {
		return ROUGE{}
	}
	r := ROUGE{
		R1: f1(float64(overlap(a, b)), len(a), len(b)),
		RL: f1(float64(longestCommon(a, b)), len(a), len(b)),
	}
	if len(a) > 1 && len(b) > 1 {
		r.R2 = f1(float64(overlap(grams(a, 2), grams(b, 2))), len(a)-1, len(b)-1)
	}
	return r
}

// MeanRouge is the mean over texts and their references.
func MeanRouge(texts, references []string) (mean ROUGE) {
	for i := range texts {
		r := Rouge(texts[i], references[i])
		mean.R1, mean.R2, mean.RL = mean.R1+r.R1, mean.R2+r.R2, mean.RL+r.RL
	}
	n := float64(max(1, len(texts)))
	return ROUGE{mean.R1 / n, mean.R2 / n, mean.RL / n}
}

func rougeWords(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// grams returns the runs of n words.
func grams(words []string, n int) []string {
	var out []string
	for i := 0; i+n <= len(words); i++ {
		out = append(out, strings.Join(words[i:i+n], "\x00"))
	}
	return out
}

// longestCommon is the length of the longest common subsequence.
func longestCommon(a, b []string) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		corner := 0 // of the row before, left of here
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = corner + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			corner = above
		}
	}
	return row[len(b)]
}
