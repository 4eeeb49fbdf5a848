package monitor

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/snug-ml/snug/internal/regular"
)

// tail reads the lines that are added to a file. While there are none, a poll costs
// one stat. A file that was replaced is read from its start.
type tail struct {
	path   string
	info   fs.FileInfo // of the file as it was read last; nil: there was none
	offset int64       // after the last whole line
	before []byte      // the end of what was read, which must still be there
	buffer []byte
	long   bool // within a line that is too long to be one
}

const (
	tailChunk = 256 << 10
	tailCheck = 1 << 10
)

// changed is when the file was written last, zero where there is none.
func (t *tail) changed() time.Time {
	if t.info == nil {
		return time.Time{}
	}
	return t.info.ModTime()
}

// poll gives each new whole line, without its end, to line, which must not keep it.
// reset is called first where what was read before is no longer in the file.
func (t *tail) poll(reset func(), line func(raw []byte)) (changed bool, err error) {
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
	defer func() { _ = f.Close() }() // read only: nothing to lose
	if info, err = f.Stat(); err != nil {
		return false, err
	}
	if t.info != nil && (!os.SameFile(t.info, info) || info.Size() < t.offset || !t.continues(f)) {
		t.forget(reset)
	}
	if err := t.read(f, line); err != nil {
		return false, err
	}
	t.info = info // a file that grew meanwhile differs from it, and is read on
	return true, nil
}

// forget makes the next poll begin at the start of the file.
func (t *tail) forget(reset func()) {
	t.info, t.offset, t.before, t.long = nil, 0, nil, false
	reset()
}

// continues reports whether the file still has what was read last.
func (t *tail) continues(f *os.File) bool {
	now := make([]byte, len(t.before))
	_, err := f.ReadAt(now, t.offset-int64(len(t.before)))
	return err == nil && bytes.Equal(now, t.before)
}

// read reads the whole lines after the offset.
func (t *tail) read(f *os.File, line func(raw []byte)) error {
	if t.buffer == nil {
		t.buffer = make([]byte, tailChunk)
	}
	for {
		n, err := f.ReadAt(t.buffer, t.offset)
		if err != nil && err != io.EOF {
			return err
		}
		part := t.buffer[:n]
		end := bytes.LastIndexByte(part, '\n') + 1
		if end == 0 {
			if n < len(t.buffer) {
				return nil // the last line is torn, or being written
			}
			end, t.long = n, true // no line of a run is as long
		}
		for raw := range bytes.Lines(part[:end]) {
			switch whole := raw[len(raw)-1] == '\n'; {
			case t.long && whole:
				t.long = false // the end of what is too long
			case !t.long:
				line(raw[:len(raw)-1])
			}
		}
		t.before = append(t.before[:0], part[max(0, end-tailCheck):end]...)
		t.offset += int64(end)
		if n < len(t.buffer) {
			return nil
		}
	}
}
