package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

var errTooLong = errors.New("too long")

// appendLine appends the next line with its line end. It returns io.EOF only
// with an empty line, and errTooLong once dst would pass limit bytes.
func appendLine(dst []byte, r *bufio.Reader, limit int64) ([]byte, error) {
	start := len(dst)
	for {
		part, err := r.ReadSlice('\n')
		if int64(len(dst)+len(part)) > limit {
			return dst, errTooLong
		}
		dst = append(dst, part...)
		switch {
		case err == nil, err == io.EOF && len(dst) > start:
			return dst, nil
		case err != bufio.ErrBufferFull:
			return dst, err
		}
	}
}

// Lines yields the lines of a stream, without line ends, each as soon as it has been read; the
// next one overwrites it. A byte-order mark, or lines that end with carriage returns only, are
// treated as in a file. A line and its end have at most maxRecord bytes (see [RecordLimit]).
// An error comes last.
func Lines(name string, r io.Reader, maxRecord int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		in, limit := bufio.NewReader(r), RecordLimit(maxRecord)
		var buf []byte
		for n := 1; ; n++ {
			line, err := appendLine(buf[:0], in, limit)
			buf = line
			switch {
			case err == io.EOF:
				return
			case err == errTooLong:
				err = fmt.Errorf("data: %s:%d: line longer than %d bytes; raise data.max_record", name, n, limit)
			case err != nil:
				err = fmt.Errorf("data: %s:%d: %w", name, n, err)
			case n == 1:
				if line, err = firstLine(name, line); len(line) == 0 && err == nil {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil) {
				return
			}
		}
	}
}

// firstLine drops the byte-order mark of a stream's first line. It does not look further than
// that line, unlike lineEnds, because the next one may be yet to be written.
func firstLine(name string, line []byte) ([]byte, error) {
	n, err := mark(name, line)
	line = line[n:]
	if err == nil && !bytes.HasSuffix(line, []byte("\n")) && bytes.IndexByte(bytes.TrimRight(line, "\r"), '\r') >= 0 {
		err = returnsOnly(name)
	}
	return line, err
}

// textDocuments splits one text file into documents. It returns false when emit
// asked to stop.
func textDocuments(name string, opt Options, emit func(Document) bool) (bool, error) {
	open := openLines
	if opt.Split == SplitFile {
		open = openInput
	}
	in, err := open(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = in.Close() }() // read only: nothing to lose
	if opt.Split == SplitFile {
		text, err := readAllLimit(in, opt.MaxRecord)
		if err != nil {
			return false, fmt.Errorf("data: %s: %w; set data.documents to chunk, paragraph or line, or raise data.max_record", name, err)
		}
		return emit(Document{ID: name, Text: text}), nil
	}
	var text []byte
	line, first := 0, 1
	flush := func() bool {
		if opt.Split != SplitChunk {
			text = bytes.TrimRight(text, "\r\n")
		}
		if len(text) == 0 {
			return true
		}
		id := fmt.Sprintf("%s:%d", name, first)
		doc := Document{ID: id, Text: bytes.Clone(text)}
		text = text[:0]
		return emit(doc)
	}
	for {
		if len(text) == 0 {
			first = line + 1
		}
		start := len(text)
		text, err = appendLine(text, in.Reader, opt.MaxRecord)
		if err == io.EOF {
			return flush(), nil
		}
		if err != nil {
			if err == errTooLong {
				err = fmt.Errorf("%s longer than %d bytes; raise data.max_record", opt.Split, opt.MaxRecord)
			}
			return false, fmt.Errorf("data: %s:%d: %w", name, first, err)
		}
		line++
		blank := len(bytes.TrimSpace(text[start:])) == 0
		switch opt.Split {
		case SplitChunk:
			if len(text) < opt.ChunkBytes {
				continue
			}
		case SplitParagraph:
			if !blank {
				continue
			}
			text = text[:start]
		}
		if !flush() {
			return false, nil
		}
	}
}
