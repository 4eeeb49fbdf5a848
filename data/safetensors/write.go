package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/snug-ml/snug/internal/durable"
)

// Entry is a tensor to be written: Data, or Emit if its bytes are produced while they are
// written (a cast, a device copy), so that no second copy of a model is ever needed.
type Entry struct {
	Name  string
	DType DType
	Shape []int
	Data  []byte
	Emit  func(io.Writer) error
}

// Write writes one file to w and returns its size in bytes. The order of the
// tensors in the file does not depend on their order in the slice. metadata
// may be nil; transformers expects {"format": "pt"} in it.
func Write(w io.Writer, entries []Entry, metadata map[string]string) (int64, error) {
	sorted, text, total, err := prepare(entries, metadata)
	if err != nil {
		return 0, err
	}
	out := &counter{w: w}
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
	if _, err := out.Write(length[:]); err != nil {
		return out.n, fmt.Errorf("safetensors: write header: %w", err)
	}
	if _, err := out.Write(text); err != nil {
		return out.n, fmt.Errorf("safetensors: write header: %w", err)
	}
	for i := range sorted {
		if err := out.emit(&sorted[i]); err != nil {
			return out.n, err
		}
	}
	if out.n != total {
		panic("safetensors: layout and bytes written differ") // each entry was counted above
	}
	return out.n, nil
}

// WriteFile writes a file so that path has either its old content or all of the
// new.
func WriteFile(path string, entries []Entry, metadata map[string]string) error {
	return replaceFile(path, func(w io.Writer) error {
		_, err := Write(w, entries, metadata)
		return err
	})
}

func replaceFile(path string, write func(io.Writer) error) error {
	err := durable.Write(path, func(f *os.File) error { return write(f) })
	if err != nil {
		return fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return nil
}

// FileSize returns the size in bytes of the file that Write would make.
func FileSize(entries []Entry, metadata map[string]string) (int64, error) {
	_, _, total, err := prepare(entries, metadata)
	return total, err
}

// prepare sorts the entries, lays them out and makes the header text.
func prepare(entries []Entry, metadata map[string]string) (sorted []Entry, text []byte, total int64, err error) {
	sorted = slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
	var b bytes.Buffer
	b.WriteByte('{')
	if metadata != nil {
		b.WriteString(`"` + MetadataKey + `":{`)
		for i, key := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
				return nil, nil, 0, errorf("", "%s: key %q: key and value must be valid UTF-8", MetadataKey, key)
			}
			if i > 0 {
				b.WriteByte(',')
			}
			quote(&b, key)
			b.WriteByte(':')
			quote(&b, metadata[key])
		}
		b.WriteByte('}')
	}
	end := int64(0)
	seen := make(map[string]bool, len(sorted))
	for i, e := range sorted {
		size, err := e.size(seen)
		if err != nil {
			return nil, nil, 0, err
		}
		if size > maxBytes-end {
			return nil, nil, 0, errorf(e.Name, "the file would have more than 2^62 bytes")
		}
		if i > 0 || metadata != nil {
			b.WriteByte(',')
		}
		quote(&b, e.Name)
		b.WriteString(`:{"dtype":"` + e.DType.String() + `","shape":[`)
		for j, dim := range e.Shape {
			if j > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(dim))
		}
		fmt.Fprintf(&b, `],"data_offsets":[%d,%d]}`, end, end+size)
		end += size
	}
	b.WriteByte('}')
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	if b.Len() > MaxHeader {
		return nil, nil, 0, errorf("", "the header of %d tensors has %d bytes; the format allows %d: write several shards", len(entries), b.Len(), MaxHeader)
	}
	return sorted, b.Bytes(), 8 + int64(b.Len()) + end, nil
}

// size checks an entry and returns its bytes.
func (e *Entry) size(seen map[string]bool) (int64, error) {
	switch {
	case e.Name == MetadataKey:
		return 0, errorf(e.Name, "the name is reserved for metadata")
	case !utf8.ValidString(e.Name):
		return 0, errorf(e.Name, "the name is not valid UTF-8")
	case seen[e.Name]:
		return 0, errorf(e.Name, "the name was given twice")
	}
	seen[e.Name] = true
	size, err := e.DType.ByteSize(e.Shape)
	if err != nil {
		return 0, errorf(e.Name, "%v", err)
	}
	if e.Emit == nil && int64(len(e.Data)) != size {
		return 0, errorf(e.Name, "%s of shape %v needs %d bytes, got %d", e.DType, e.Shape, size, len(e.Data))
	}
	return size, nil
}

// quote appends a JSON string. s must be valid UTF-8.
func quote(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		panic(err) // a string always encodes and a Buffer always takes it
	}
	b.Truncate(b.Len() - 1) // Encode ends with a newline
}

// counter counts the bytes written to w.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) emit(e *Entry) error {
	before := c.n
	var err error
	if e.Emit != nil {
		err = e.Emit(c)
	} else {
		_, err = c.Write(e.Data)
	}
	if err != nil {
		return fmt.Errorf("safetensors: write tensor %q: %w", e.Name, err)
	}
	want, err := e.DType.ByteSize(e.Shape)
	if err != nil {
		return errorf(e.Name, "%v", err)
	}
	if got := c.n - before; got != want {
		return errorf(e.Name, "%s of shape %v needs %d bytes, %d were emitted", e.DType, e.Shape, want, got)
	}
	return nil
}
