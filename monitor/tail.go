package monitor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/snug-ml/snug/internal/regular"
)

// tail reads the lines that are added to a file. While there are none, a poll costs
// one stat. A file that was replaced is read from its start.
type tail struct {
	path   string
	limit  int64       // how many bytes of the file are read
	info   fs.FileInfo // of the file when it was last read; nil: there was none
	offset int64       // after the last whole line
	before []byte      // the end of what was read, which must still be the same
	long   bool        // within a line that is too long
	lines  lineCount
}

const (
	tailChunk = 1 << 20
	tailSlack = 16 << 10 // a file may grow while it is read
	tailCheck = 1 << 10
)

// lineCount counts the lines of a file, and those that are invalid.
type lineCount struct {
	all, bad int
	first    int // the first bad one, from 1
}

func (c *lineCount) add(ok bool) {
	if c.all++; ok {
		return
	}
	if c.bad++; c.bad == 1 {
		c.first = c.all
	}
}

// changed returns when the file was last written, zero if there is none.
func (t *tail) changed() time.Time {
	if t.info == nil {
		return time.Time{}
	}
	return t.info.ModTime()
}

// problem says which part of the file is not shown; empty: none.
func (t *tail) problem() string {
	text := ""
	switch c := &t.lines; {
	case c.bad == 1:
		text = fmt.Sprintf("line %d is damaged, and left out", c.first)
	case c.bad > 1:
		text = fmt.Sprintf("%d lines are damaged, and left out; the first is line %d", c.bad, c.first)
	}
	if t.info != nil && t.offset >= t.limit {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("it has %d bytes, of which the first %d are read", t.info.Size(), t.limit)
	}
	return text
}

// poll passes the new whole lines to take, in parts of a file of which left bytes remain;
// take must not keep them. reset is called first if what was read before is no longer in
// the file.
func (t *tail) poll(reset func(), take func(parts [][]byte, left int64)) (changed bool, err error) {
	info, err := regular.Stat(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		if t.info != nil {
			t.forget(reset)
			return true, nil
		}
		return false, nil
	}
	if err != nil {
		return false, err
	}
	same := t.info != nil && os.SameFile(t.info, info)
	if same && t.info.Size() == info.Size() && t.info.ModTime().Equal(info.ModTime()) {
		return false, nil
	}
	f, err := regular.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it is being replaced
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read: nothing to lose
	if info, err = f.Stat(); err != nil {
		return false, err
	}
	if t.info != nil && (!os.SameFile(t.info, info) || info.Size() < t.offset || !t.continues(f)) {
		t.forget(reset)
	}
	if err := t.read(f, info.Size(), take); err != nil {
		return false, err
	}
	t.info = info // a file that grew meanwhile differs from it, and is read on
	return true, nil
}

// forget makes the next poll start at the beginning of the file.
func (t *tail) forget(reset func()) {
	t.info, t.offset, t.before, t.long, t.lines = nil, 0, nil, false, lineCount{}
	reset()
}

// continues reports whether the file still contains what was read last.
func (t *tail) continues(f *os.File) bool {
	now := make([]byte, len(t.before))
	_, err := f.ReadAt(now, t.offset-int64(len(t.before)))
	return err == nil && bytes.Equal(now, t.before)
}

// read reads the whole lines after the offset, in as many parts at a time as there are
// processors.
func (t *tail) read(f *os.File, size int64, take func(parts [][]byte, left int64)) error {
	size = min(size, t.limit)
	chunk := min(tailChunk, max(0, size-t.offset)+tailSlack)
	var buffers [][]byte
	for more := true; more && t.offset < t.limit; {
		var parts [][]byte
		for i := 0; more && i < min(runtime.GOMAXPROCS(0), 8); i++ {
			if i == len(buffers) {
				buffers = append(buffers, make([]byte, chunk))
			}
			part, whole, err := t.part(f, buffers[i])
			if err != nil {
				return err
			}
			if more = whole; len(part) > 0 {
				parts = append(parts, part)
			}
		}
		if len(parts) > 0 {
			take(parts, max(0, size-t.offset))
		}
	}
	return nil
}

// part reads whole lines into a buffer; more is true if the file may have others.
func (t *tail) part(f *os.File, buffer []byte) (lines []byte, more bool, err error) {
	buffer = buffer[:min(int64(len(buffer)), t.limit-t.offset)]
	n, err := f.ReadAt(buffer, t.offset)
	if err != nil && err != io.EOF {
		return nil, false, err
	}
	text, more := buffer[:n], n == len(buffer) && n > 0
	if t.long { // the rest of the line that is too long
		i := bytes.IndexByte(text, '\n') + 1
		if i == 0 {
			t.advance(text)
			return nil, more, nil
		}
		t.long = false
		t.lines.add(false)
		t.advance(text[:i])
		text = text[i:]
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	switch {
	case end > 0:
	case n == tailChunk || more && t.offset+int64(n) >= t.limit:
		t.long = true // no line of a run is that long
		t.advance(text)
		return nil, more, nil
	default:
		return nil, false, nil // the last line is torn, or being written
	}
	t.advance(text[:end])
	return text[:end], more, nil
}

// advance moves the offset after a text that was read.
func (t *tail) advance(text []byte) {
	t.before = append(t.before[:0], text[max(0, len(text)-tailCheck):]...)
	t.offset += int64(len(text))
}

// each passes the lines of parts, without their ends, to line, which reports whether it
// can be read.
func (t *tail) each(line func(raw []byte) (ok bool)) func(parts [][]byte, left int64) {
	return func(parts [][]byte, _ int64) {
		for _, part := range parts {
			for raw := range bytes.Lines(part) {
				t.lines.add(line(raw[:len(raw)-1]))
			}
		}
	}
}
