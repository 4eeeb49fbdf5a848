package data

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestLines: a stream of lines is read as a file of lines is, and errors say where and what to do.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		in    string
		most  int64
		want  []string
		wrong string
	}{
		{in: ""},
		{in: "\xef\xbb\xbf"},
		{in: "a\r\n\nb", want: []string{"a", "", "b"}},
		{in: "\n\n", want: []string{"", ""}},
		{in: "\xef\xbb\xbfa\nb\n", want: []string{"a", "b"}},
		{in: "a\n\xef\xbb\xbfb", want: []string{"a", "\ufeffb"}},
		{in: "a\rb\nc\n", want: []string{"a\rb", "c"}},
		{in: "a\r", want: []string{"a"}},
		{in: long + long + "\n", want: []string{long + long}},
		{in: "\xff\xfea\x00\n\x00", wrong: "stdin: starts with a UTF-16 byte-order mark; convert it to UTF-8 (iconv -t UTF-8)"},
		{in: "\x00\x00\xfe\xff\x00\x00\x00a", wrong: "stdin: starts with a UTF-32 byte-order mark"},
		{in: "a\rb\rc\r", wrong: "stdin: its lines end with carriage returns only; convert it"},
		{in: "abc\nabcdef\n", most: 6, want: []string{"abc"}, wrong: "stdin:2: line longer than 6 bytes; raise data.max_record"},
	} {
		var got []string
		var failed error
		for line, err := range Lines("stdin", strings.NewReader(c.in), c.most) {
			if failed = err; err == nil {
				got = append(got, string(line))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%.40q is read as %.40q", c.in, got)
		}
		if c.wrong != "" {
			wantError(t, failed, c.wrong)
		} else if failed != nil {
			t.Errorf("%.40q: %v", c.in, failed)
		}
	}
}

// TestLinesComeAtOnce: a line is there before the next one is written, and a failed read is reported with
// its place.
func TestLinesComeAtOnce(t *testing.T) {
	r, w := io.Pipe()
	var got []byte
	for line, err := range Lines("stdin", io.MultiReader(strings.NewReader("a\n"), r), 0) {
		if err != nil {
			wantError(t, err, "stdin:3: gone")
			break
		}
		got = append(got, line...)
		if bytes.Equal(got, []byte("a")) {
			go func() {
				_, _ = w.Write([]byte("b\n"))            // a pipe with a reader takes everything
				_ = w.CloseWithError(errors.New("gone")) // never fails
			}()
		}
	}
	if string(got) != "ab" {
		t.Errorf("read %q", got)
	}
}
