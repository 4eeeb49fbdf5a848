package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// stream is stdout or stderr. Everything that snug prints goes through one, so that failed writes and unsafe
// characters are handled in one place:
//
//   - The first failed write is remembered and reported, and later output is dropped, so commands need not check.
//     The exit code shows the failure at the end.
//   - Names, texts and messages from files and servers cannot control a terminal: control characters are shown as
//     escapes.
type stream struct {
	mu     sync.Mutex
	w      io.Writer
	escape bool        // escape characters that control a terminal
	part   []byte      // the first bytes of an incomplete character
	lost   error       // error of the first failed write
	onLoss func(error) // called once, at that error; may be nil
	live   bool        // lines can be rewritten
	held   bool        // something else is using the terminal
	kept   []byte      // output during that time, if it is to be kept
	width  func() int  // columns, 0 if unknown
}

// newStream returns the stream for w. Control characters are escaped on a terminal or, if always is set, as
// for stderr, everywhere; if only programs read stdout, it gets the bytes unchanged.
func newStream(w io.Writer, always bool) *stream {
	s := &stream{w: w, escape: always, width: func() int { return 0 }}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.escape = true
	s.live = os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
	s.width = func() int {
		columns, _, _ := term.GetSize(int(f.Fd())) // 0 if it fails
		return columns
	}
	return s
}

// Write implements io.Writer; it never fails.
func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	if s.escape {
		p, s.part = escaped(append(s.part, p...))
	}
	s.put(p)
	return n, nil
}

// steer writes control sequences for the terminal without escaping them.
func (s *stream) steer(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest()
	s.put([]byte(p))
}

// end writes what is left and returns the error of lost output.
func (s *stream) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest()
	return s.lost
}

// rest writes the start of a character that was never completed.
func (s *stream) rest() {
	for _, b := range s.part {
		s.put(fmt.Appendf(nil, `\x%02x`, b))
	}
	s.part = nil
}

func (s *stream) put(p []byte) {
	if s.held {
		if len(s.kept) < maxKept {
			s.kept = append(s.kept, p...)
		}
		return
	}
	if s.lost != nil || len(p) == 0 {
		return
	}
	if _, err := s.w.Write(p); err != nil {
		s.lost = err
		if s.onLoss != nil {
			s.onLoss(err)
		}
	}
}

// maxKept limits what is kept while something else uses the terminal.
const maxKept = 64 << 10

// hold keeps output off the terminal until release.
func (s *stream) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// release prints the kept output, if requested, and resumes normal output.
func (s *stream) release(say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.kept
	s.held, s.kept = false, nil
	if say {
		s.put(kept)
	}
}

// left reports whether the reader of a pipe has gone, as with head, which is not an error.
func left(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) }

// escaped returns p with control characters as JSON escapes, so that a JSON document stays valid. rest is the
// start of a character that is cut off at the end of p.
func escaped(p []byte) (out, rest []byte) {
	out = make([]byte, 0, len(p))
	for len(p) > 0 {
		if !utf8.FullRune(p) {
			return out, append([]byte(nil), p...)
		}
		r, n := utf8.DecodeRune(p)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, p[0])
		case !steers(r):
			out = append(out, p[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		p = p[n:]
	}
	return out, nil
}

// steers reports whether a terminal acts on r instead of showing it, or shows the following text in another
// order.
func steers(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r):
		return true
	case r == 0x2028 || r == 0x2029: // line and paragraph separators
		return true
	case r >= 0xfff9 && r <= 0xfffb || r >= 0xe0000 && r <= 0xe007f: // annotations and tags, which programs read but nobody sees
		return true
	}
	return unicode.Is(unicode.Bidi_Control, r)
}
