package token

import "unicode/utf8"

// A scanner splits text as one published split pattern does: it returns the end of the match
// that begins at s[i]. The patterns below match at every position, so the matches cover the
// text. A scanner is some twenty times faster than a regular expression.
type scanner func(s string, i int) int

// The split patterns that have a scanner, as they are spelled in tokenizer.json.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternO200k = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// scanners has each pattern under its common spellings.
var scanners = map[string]scanner{
	patternGPT2: scanGPT2,
	`'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: scanGPT2,

	patternLlama3: scanCL100k,
	patternQwen2:  scanQwen2,
	`'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`: scanCL100k,

	patternO200k: scanO200k,
}

// runOf returns the end of the run of characters from s[i] on that have a class in want.
func runOf(s string, i int, want class) int {
	for i < len(s) {
		c, n := classAt(s, i)
		if c&want == 0 {
			break
		}
		i += n
	}
	return i
}

// runOther returns the end of the run [^\s\p{L}\p{N}]* from s[i] on.
func runOther(s string, i int) int {
	for i < len(s) {
		c, n := classAt(s, i)
		if c&(letter|number|space) != 0 {
			break
		}
		i += n
	}
	return i
}

// runNumbers returns the end of \p{N}{1,most} at s[i], where a number is known to be.
func runNumbers(s string, i, most int) int {
	for ; most > 0 && i < len(s); most-- {
		c, n := classAt(s, i)
		if c&number == 0 {
			break
		}
		i += n
	}
	return i
}

// lastRune returns the start of the last character of s[:end].
func lastRune(s string, end int) int {
	_, n := utf8.DecodeLastRuneInString(s[:end])
	return end - n
}

// runSpace returns the end of \s+(?!\S)|\s+ at s[i], where a space is known to be: the
// run without its last character, which goes to the word that follows, if there is one.
func runSpace(s string, i int) int {
	end := runOf(s, i, space)
	if end == len(s) {
		return end
	}
	if last := lastRune(s, end); last > i {
		return last
	}
	return end
}

func scanGPT2(s string, i int) int {
	c, n := classAt(s, i)
	if s[i] == ' ' && i+1 < len(s) {
		if next, size := classAt(s, i+1); next&space == 0 {
			i, c, n = i+1, next, size
		}
	} else if s[i] == '\'' {
		if end := contraction(s, i, false); end > i {
			return end
		}
	}
	switch {
	case c&letter != 0:
		return runOf(s, i+n, letter)
	case c&number != 0:
		return runOf(s, i+n, number)
	case c&space != 0:
		return runSpace(s, i)
	}
	return runOther(s, i+n)
}

// contraction returns the end of 's|'t|'re|'ve|'m|'ll|'d at s[i], and i if there is none.
// With fold, case does not matter, and the long s (U+017F) is an s.
func contraction(s string, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return i
	}
	at := func(j int) byte {
		if j >= len(s) {
			return 0
		}
		b := s[j]
		if fold && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	switch b := at(i + 1); b {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if at(i+2) == 'e' {
			return i + 3
		}
	case 'l':
		if at(i+2) == 'l' {
			return i + 3
		}
	case "ſ"[0]:
		if fold && at(i+2) == "ſ"[1] {
			return i + 3
		}
	}
	return i
}

func scanCL100k(s string, i int) int { return scanWords(s, i, 3) }
func scanQwen2(s string, i int) int  { return scanWords(s, i, 1) }

// scanWords is the family of cl100k, where a match holds a limited number of digits.
func scanWords(s string, i, digits int) int {
	c, n := classAt(s, i)
	if s[i] == '\'' {
		if end := contraction(s, i, true); end > i {
			return end
		}
	}
	if c&letter != 0 {
		return runOf(s, i+n, letter)
	}
	if c&number != 0 {
		return runNumbers(s, i, digits)
	}
	if c&newline == 0 && i+n < len(s) {
		next, size := classAt(s, i+n)
		if next&letter != 0 {
			return runOf(s, i+n+size, letter)
		}
		if s[i] == ' ' && next&(number|space) == 0 {
			i, c, n = i+n, next, size
		}
	}
	if c&space == 0 {
		end := runOther(s, i+n)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	return runLines(s, i)
}

// runLines returns the end of \s*[\r\n]+|\s+(?!\S)|\s+ at s[i], where a space is known to
// be: after the last line end of the run, if any.
func runLines(s string, i int) int {
	end := runOf(s, i, space)
	for j := end; j > i; j-- {
		if s[j-1] == '\n' || s[j-1] == '\r' {
			return j
		}
	}
	return runSpace(s, i)
}

func scanO200k(s string, i int) int {
	c, n := classAt(s, i)
	// Both letter patterns may begin with one character that is neither letter, number
	// nor line end; a mark may be that character or part of the word. The order of the
	// four tries is the regular expression's.
	tries := [...]int{i + n, i}
	from := tries[1:]
	if c&(letter|number|newline) == 0 && i+n < len(s) {
		from = tries[:]
	}
	for _, try := range [...]func(string, int) int{lowerWord, upperWord} {
		for _, j := range from {
			if end := try(s, j); end > j {
				return contraction(s, end, true)
			}
		}
	}
	if c&number != 0 {
		return runNumbers(s, i, 3)
	}
	if s[i] == ' ' && i+1 < len(s) {
		if next, size := classAt(s, i+1); next&(letter|number|space) == 0 {
			i, c, n = i+1, next, size
		}
	}
	if c&space == 0 {
		end := runOther(s, i+n)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
			end++
		}
		return end
	}
	return runLines(s, i)
}

// lowerWord returns the end of U*L+ at s[i], and i if there is none, with U the class
// upper and L the class lower, which share Lm, Lo and M.
func lowerWord(s string, i int) int {
	end := runOf(s, i, upper)
	if e := runOf(s, end, lower); e > end {
		return e
	}
	// U* must give back up to its last character that is also in L; what follows it is
	// upper case only, so L+ ends there.
	for end > i {
		k := lastRune(s, end)
		if c, _ := classAt(s, k); c&lower != 0 {
			return end
		}
		end = k
	}
	return i
}

// upperWord returns the end of U+L* at s[i], and i if there is none.
func upperWord(s string, i int) int {
	end := runOf(s, i, upper)
	if end == i {
		return i
	}
	return runOf(s, end, lower)
}
