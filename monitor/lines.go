package monitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/rundir"
)

// header is the first line of a file of lines: whose run it is about.
type header struct {
	Run string `json:"run"`
}

// lineFile is a file of JSON lines in a run directory that is appended to and now
// and then rewritten, completely or not at all. Where the disk is full the next
// attempt comes after retryAfter: nothing waits for these files.
type lineFile struct {
	dir    *rundir.Dir
	name   string
	f      *os.File // nil: it is to be rewritten
	size   int64
	failed time.Time
}

const retryAfter = 30 * time.Second

// openLines reads the lines that the run of dir has written before; those of another
// run in the same folder are ignored.
func openLines(dir *rundir.Dir, name string, line func(raw []byte)) (*lineFile, error) {
	l := &lineFile{dir: dir, name: name}
	text, err := dir.Read(name, regular.Text)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	first := true
	for raw := range bytes.Lines(text) {
		if raw[len(raw)-1] != '\n' {
			break // torn by a crash
		}
		if first {
			var h header
			if json.Unmarshal(raw, &h) != nil || h.Run != dir.ID() {
				break
			}
			first = false
			continue
		}
		line(raw)
	}
	return l, nil
}

// rewrite replaces the file by these lines.
func (l *lineFile) rewrite(lines []byte) error {
	if time.Since(l.failed) < retryAfter {
		return nil
	}
	err := l.close()
	head, e := json.Marshal(header{l.dir.ID()})
	if err = errors.Join(err, e); err == nil {
		text := append(append(head, '\n'), lines...)
		l.size = int64(len(text))
		err = l.dir.Replace(l.name, text)
	}
	if err == nil {
		l.f, err = l.dir.Append(l.name)
	}
	if err != nil {
		l.failed = time.Now()
	}
	return err
}

// add adds a line. When it fails the file may end within one, so it is to be
// rewritten.
func (l *lineFile) add(line []byte) error {
	if l.f == nil {
		return nil
	}
	n, err := l.f.Write(append(line, '\n'))
	l.size += int64(n)
	if err != nil {
		l.failed = time.Now()
		err = errors.Join(err, l.close())
	}
	return err
}

// whole reports whether the file has all its lines, and still its name.
func (l *lineFile) whole() bool { return l.f != nil && l.dir.Named(l.name, l.f) }

func (l *lineFile) close() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}
