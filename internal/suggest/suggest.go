// Package suggest finds the valid name that a misspelled one was meant to be.
package suggest

import (
	"strings"
	"unicode/utf8"
)

// Nearest returns the candidate with the smallest edit distance to word, the first of equals. ok
// is false if none is near: the distance must not exceed a third of the longer name's length (at
// least 1), and part of word must remain. Case is ignored, and - . and space count as _, so that
// only real misspellings cost.
func Nearest(word string, candidates []string) (nearest string, ok bool) {
	w := fold(word)
	best := -1
	for _, c := range candidates {
		f := fold(c)
		d := distance(w, f)
		length := utf8.RuneCountInString(w)
		if d < length && d <= max(1, max(length, utf8.RuneCountInString(f))/3) && (best < 0 || d < best) {
			nearest, best = c, d
		}
	}
	return nearest, best >= 0
}

var separators = strings.NewReplacer("-", "_", ".", "_", " ", "_")

func fold(s string) string { return separators.Replace(strings.ToLower(s)) }

// distance is the optimal string alignment distance: insertions, deletions, substitutions and swaps of
// neighbors each cost 1 (Damerau 1964, restricted).
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	prev2, prev, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(s); i++ {
		row[0] = i
		for j := 1; j <= len(t); j++ {
			cost := 1
			if s[i-1] == t[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && s[i-1] == t[j-2] && s[i-2] == t[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev, row = prev, row, prev2
	}
	return prev[len(t)]
}
