package token

import (
	"errors"
	"fmt"
	"time"
)

// What a tokenizer file can demand is bounded, because such files are not trusted: rules
// that double a text forty times, and patterns that try every way to match it, are as
// short as harmless ones.
const (
	// maxGrowth is how many times as long as its input a text may become on its
	// way to the model. Unicode's own worst case is 11 bytes for one (U+FDFA in
	// NFKC), spelling bytes as characters takes at most two for one.
	maxGrowth = 32
	// alwaysAllowed is the length that even the shortest text may reach.
	alwaysAllowed = 64 << 10
	// maxNested and maxParts bound the nesting of components and the parts of one. Those
	// in use have 2 and a few dozen.
	maxNested = 16
	maxParts  = 1000
	// maxBacktracking bounds the stack of one match of a regular expression, in words.
	maxBacktracking = 16 << 20
)

// matchTimeout bounds one match. Those in use take microseconds; anything longer would
// never end, so no result depends on the clock: there is either a result or an error.
var matchTimeout = 30 * time.Second

// A LimitError means that a text was too much for a tokenizer. It is raised by
// panic, as encoding has no other failures; Catch makes it an error.
type LimitError struct{ problem string }

func (e *LimitError) Error() string {
	return "the tokenizer " + e.problem + "; use another one (data.tokenizer.path)"
}

func exceed(format string, args ...any) { panic(&LimitError{fmt.Sprintf(format, args...)}) }

// Catch is deferred around encoding and decoding, and assigns a LimitError that was
// raised to err. Any other panic continues.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case *LimitError:
		*err = errors.Join(*err, r)
	default:
		panic(r)
	}
}

// grown returns how long a text of n bytes may become.
func grown(n int) int { return max(alwaysAllowed, maxGrowth*n) }

// allow makes sure that n bytes are at most the allowed number.
func allow(n, most int) {
	if n > most {
		exceed("makes more than %d bytes out of a text of at most %d: its replacements grow without end", most, most/maxGrowth)
	}
}
