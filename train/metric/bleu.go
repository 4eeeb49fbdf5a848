package metric

import (
	"math"
	"regexp"
	"strings"
)

// bleuOrder is the length of the longest run of words that BLEU counts.
const bleuOrder = 4

// BLEU is the corpus-level score in [0, 100] of texts against one reference each
// (Papineni et al. 2002), as sacreBLEU computes it by default (Post 2018): the
// tokenization 13a, case-sensitive, runs of up to four words, and if no run of some
// length is shared, half of what the previous length would have counted as (smoothing
// "exp").
func BLEU(texts, references []string) float64 {
	var shared, given [bleuOrder]int
	var length, reference int
	for i := range texts {
		a, b := tokenize13a(texts[i]), tokenize13a(references[i])
		length, reference = length+len(a), reference+len(b)
		for n := range bleuOrder {
			g := grams(a, n+1)
			given[n] += len(g)
			shared[n] += overlap(g, grams(b, n+1))
		}
	}
	if shared[0] == 0 {
		return 0
	}
	sum, orders, smooth := 0.0, 0, 1.0
	for n := range bleuOrder {
		if given[n] == 0 {
			break // no text is that long
		}
		orders++
		p := float64(shared[n])
		if shared[n] == 0 {
			smooth *= 2
			p = 1 / smooth
		}
		sum += math.Log(p / float64(given[n]))
	}
	if orders < bleuOrder {
		return 0
	}
	brevity := 1.0
	if length < reference {
		brevity = math.Exp(1 - float64(reference)/float64(length))
	}
	return 100 * brevity * math.Exp(sum/float64(orders))
}

// The rules of mteval-v13a, in their order, after entities and line breaks.
var rules13a = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile("([!\"#$%&()*+/:;<=>?@\\[\\\\\\]^_`{|}~])"), " $1 "}, // punctuation, but not . , - '
	{regexp.MustCompile(`([^0-9])([\.,])`), "$1 $2 "},                        // a period or comma not after a digit
	{regexp.MustCompile(`([\.,])([^0-9])`), " $1 $2"},                        // or not before one
	{regexp.MustCompile(`([0-9])(-)`), "$1 $2 "},                             // a dash after a digit
}

var entities13a = strings.NewReplacer("<skipped>", "", "-\n", "", "\n", " ")

// tokenize13a splits a text into words as mteval-v13a does.
func tokenize13a(s string) []string {
	s = entities13a.Replace(s)
	if strings.Contains(s, "&") {
		for _, e := range [...][2]string{{"&quot;", `"`}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}} {
			s = strings.ReplaceAll(s, e[0], e[1])
		}
	}
	s = " " + s + " "
	for _, r := range rules13a {
		s = r.find.ReplaceAllString(s, r.put)
	}
	return strings.Fields(s)
}
