package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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
