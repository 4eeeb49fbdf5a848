package data

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/snug-ml/snug/internal/regular"
)

// maxZstdWindow bounds the memory that a zstd frame may claim. 128 MiB is what
// `zstd --long` writes and what the zstd tool accepts without a flag.
const maxZstdWindow = 128 << 20

// input is an open file, decompressed if its first bytes say so.
type input struct {
	*bufio.Reader
	closers []func() error
}

// Close closes the decompressor and the file.
func (in *input) Close() error {
	var first error
	for i := len(in.closers) - 1; i >= 0; i-- {
		if err := in.closers[i](); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// OpenFile opens a file for reading and decompresses gzip and zstd, which it recognizes
// by their magic bytes and never by the name. A byte-order mark of UTF-8 is dropped; one
// of UTF-16 or UTF-32 is an error.
func OpenFile(name string) (io.ReadCloser, error) { return openInput(name) }

// ReadFile reads what [OpenFile] opens, which must be at most most bytes long.
func ReadFile(name string, most int64) (raw []byte, err error) {
	in, err := openInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	raw, err = io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(raw)) > most {
		err = fmt.Errorf("%s: more than %d bytes (unpacked, if it is compressed), and it is read in one piece; raise data.max_record to its size, or split it into several files", name, most)
	}
	return raw, err
}

func openInput(name string) (*input, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	in := &input{Reader: bufio.NewReaderSize(f, 128<<10), closers: []func() error{f.Close}}
	if err := in.decode(name); err != nil {
		_ = in.Close() // the first error is the one to report
		return nil, err
	}
	return in, nil
}

func (in *input) decode(name string) error {
	// Peek returns whatever there is; a short file has no magic.
	magic, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return fmt.Errorf("data: %s: %w", name, err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in.Reader)
		if err != nil {
			return fmt.Errorf("data: %s: gzip: %w", name, err)
		}
		in.Reader = bufio.NewReaderSize(z, 128<<10)
		in.closers = append(in.closers, z.Close)
	case isZstd(magic):
		z, err := zstd.NewReader(in.Reader, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return fmt.Errorf("data: %s: zstd: %w", name, err)
		}
		in.Reader = bufio.NewReaderSize(z, 128<<10)
		in.closers = append(in.closers, func() error { z.Close(); return nil })
	default:
		// A file without magic of this name is damaged, unless it is empty.
		if e := strings.ToLower(filepath.Ext(name)); len(magic) > 0 && (e == ".gz" || e == ".zst") {
			return fmt.Errorf("data: %s: its name says gzip or zstd, but it is neither", name)
		}
	}
	return in.dropMark(name)
}

// isZstd recognizes the frame magic and the sixteen magics of a skippable frame (RFC
// 8878, 3.1).
func isZstd(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	magic := binary.LittleEndian.Uint32(b)
	return magic == 0xFD2FB528 || magic&^0xF == 0x184D2A50
}

func (in *input) dropMark(name string) error {
	head, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return fmt.Errorf("data: %s: %w", name, err)
	}
	n, err := mark(name, head)
	if err != nil {
		return err
	}
	_, err = in.Discard(n)
	return err
}

// mark returns the length of the byte-order mark of UTF-8 that text begins with, and refuses
// those of other encodings.
func mark(name string, text []byte) (int, error) {
	switch {
	case bytes.HasPrefix(text, []byte{0xef, 0xbb, 0xbf}):
		return 3, nil
	case bytes.HasPrefix(text, []byte{0, 0, 0xfe, 0xff}), bytes.HasPrefix(text, []byte{0xff, 0xfe, 0, 0}):
		return 0, fmt.Errorf("data: %s: starts with a UTF-32 byte-order mark; convert it to UTF-8 (iconv -t UTF-8)", name)
	case bytes.HasPrefix(text, []byte{0xfe, 0xff}), bytes.HasPrefix(text, []byte{0xff, 0xfe}):
		return 0, fmt.Errorf("data: %s: starts with a UTF-16 byte-order mark; convert it to UTF-8 (iconv -t UTF-8)", name)
	}
	return 0, nil
}

// lineEnds refuses a file whose lines end with bare carriage returns, as on old Macs: a
// reader of lines would take it for a single one.
func (in *input) lineEnds(name string) error {
	head, _ := in.Peek(64 << 10) // an error comes again when its line is read
	head = bytes.TrimRight(head, "\r\n")
	if bytes.IndexByte(head, '\r') >= 0 && bytes.IndexByte(head, '\n') < 0 {
		return returnsOnly(name)
	}
	return nil
}

func returnsOnly(name string) error {
	return fmt.Errorf("data: %s: its lines end with carriage returns only; convert it (tr '\\r' '\\n')", name)
}

// openLines is openInput for readers of lines.
func openLines(name string) (*input, error) {
	in, err := openInput(name)
	if err != nil {
		return nil, err
	}
	if err := in.lineEnds(name); err != nil {
		_ = in.Close() // the first error is the one to report
		return nil, err
	}
	return in, nil
}
