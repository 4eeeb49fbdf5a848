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

// stream is stdout or stderr. Everything that snug prints goes through one, so
// that what cannot be printed and what must not be are known in one place:
//
//   - The first write that fails is remembered and reported; the rest is dropped, and
//     no verb needs to check. The exit code shows it at the end.
//   - Names, texts and messages that came from files and servers do not steer a
//     terminal: characters that would are shown as escapes.
type stream struct {
	mu     sync.Mutex
	w      io.Writer
	escape bool        // what would steer a terminal
	part   []byte      // the first bytes of a character whose others are still to come
	lost   error       // of the first write that failed
	onLoss func(error) // called once, then; may be nil
	live   bool        // lines can be written over
	held   bool        // something else is on the terminal
	kept   []byte      // what was printed meanwhile, if it is to be kept
	width  func() int  // columns, 0 where not known
}

// newStream is for stdout, or with always set for stderr: where nobody but
// programs read, stdout has the bytes as they are.
func newStream(w io.Writer, always bool) *stream {
	s := &stream{w: w, escape: always, width: func() int { return 0 }}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.escape = true
	s.live = os.Getenv("TERM") != "dumb" && os.Getenv("NO_COLOR") == ""
	s.width = func() int {
		columns, _, _ := term.GetSize(int(f.Fd())) // 0 where it fails
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

// steer writes what is to reach the terminal unescaped.
func (s *stream) steer(p string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest()
	s.put([]byte(p))
}

// end writes what is left and reports what was lost.
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

// maxKept bounds what is kept while something else has the terminal.
const maxKept = 64 << 10

// hold keeps what is written off the terminal until release.
func (s *stream) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// release writes what was kept, if requested, and continues.
func (s *stream) release(say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.kept
	s.held, s.kept = false, nil
	if say {
		s.put(kept)
	}
}

// left reports whether the reader of a pipe has gone, as head does, which is not an
// error.
func left(err error) bool { return errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) }

// escaped is p with characters that steer a terminal as the escapes that JSON
// has for them, so that a JSON document stays valid; rest is the start of a
// character that p cuts off.
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

// steers reports whether a terminal does something at r instead of showing it,
// or shows what comes after it in another order.
func steers(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r):
		return true
	case r == 0x2028 || r == 0x2029: // ends of lines
		return true
	case r >= 0xfff9 && r <= 0xfffb || r >= 0xe0000 && r <= 0xe007f: // annotations, tags: read by programs, seen by nobody
		return true
	}
	return unicode.Is(unicode.Bidi_Control, r)
}
