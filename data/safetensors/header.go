package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Info describes a tensor of a file. Offset counts bytes from the start of the
// data, which follows the header.
type Info struct {
	Name   string
	DType  DType
	Shape  []int
	Offset int64
	Size   int64
}

// header is the checked content of the first part of a file.
type header struct {
	tensors  []Info         // by offset
	byName   map[string]int // into tensors
	metadata map[string]string
	data     int64 // where the data starts in the file
}

// headerLength reads the length field and checks it against the file's size.
func headerLength(first []byte, fileSize int64) (int64, error) {
	if fileSize < 8 {
		return 0, errorf("", "the file has %d bytes; the smallest has 8 and a header", fileSize)
	}
	n := binary.LittleEndian.Uint64(first)
	if n > MaxHeader {
		return 0, errorf("", "the header claims %d bytes; the format allows %d (is this a safetensors file?)", n, MaxHeader)
	}
	if int64(n) > fileSize-8 {
		return 0, errorf("", "the header claims %d bytes, but only %d follow its length: the file is truncated or not a safetensors file", n, fileSize-8)
	}
	if n < 2 {
		return 0, errorf("", "the header claims %d bytes; an empty one, {}, has 2", n)
	}
	return int64(n), nil
}

// parseHeader parses and checks the header text of a file with the given
// number of data bytes.
func parseHeader(text []byte, dataSize int64) (*header, error) {
	if text[0] != '{' {
		return nil, errorf("", "the header starts with %q; the format requires '{'", text[0])
	}
	if !utf8.Valid(text) {
		return nil, errorf("", "the header is not valid UTF-8")
	}
	h := &header{byName: map[string]int{}, data: 8 + int64(len(text))}
	s := &scanner{s: text}
	err := s.object(func(key string) error {
		if key == MetadataKey {
			return h.readMetadata(s)
		}
		return h.readTensor(s, key)
	})
	if err == nil {
		if s.space(); s.pos != len(text) {
			err = s.errorf("after the header's closing brace only spaces may follow, found %s", s.found())
		}
	}
	if err != nil {
		if known := (*Error)(nil); errors.As(err, &known) {
			return nil, err
		}
		return nil, errorf("", "%v", err)
	}
	return h, h.layout(dataSize)
}

func (h *header) readMetadata(s *scanner) error {
	if h.metadata != nil {
		return errorf("", "%s appears twice", MetadataKey)
	}
	h.metadata = map[string]string{}
	err := s.object(func(key string) error {
		if _, twice := h.metadata[key]; twice {
			return s.errorf("key %q appears twice", key)
		}
		value, err := s.str()
		if err != nil {
			return fmt.Errorf("key %q must have a string value: %w", key, err)
		}
		h.metadata[key] = value
		return nil
	})
	if err != nil {
		return errorf("", "%s: %v", MetadataKey, err)
	}
	return nil
}

var tensorKeys = [...]string{"dtype", "shape", "data_offsets"}

func (h *header) readTensor(s *scanner, name string) error {
	if _, twice := h.byName[name]; twice {
		return errorf(name, "the name appears twice")
	}
	t := Info{Name: name}
	var dtype string
	var offsets []int
	var seen [len(tensorKeys)]bool
	err := s.object(func(key string) (err error) {
		k := slices.Index(tensorKeys[:], key)
		if k < 0 {
			return s.errorf("unknown key %q; a tensor has dtype, shape and data_offsets", key)
		}
		if seen[k] {
			return s.errorf("key %q appears twice", key)
		}
		seen[k] = true
		switch key {
		case "dtype":
			dtype, err = s.str()
		case "shape":
			t.Shape, err = s.integers()
		case "data_offsets":
			offsets, err = s.integers()
		}
		return err
	})
	if err != nil {
		return errorf(name, "%v", err)
	}
	for k, key := range tensorKeys {
		if !seen[k] {
			return errorf(name, "%s is missing", key)
		}
	}
	if t.DType, err = ParseDType(dtype); err != nil {
		return errorf(name, "%v", err)
	}
	if len(offsets) != 2 {
		return errorf(name, "data_offsets has %d numbers, want begin and end", len(offsets))
	}
	if offsets[1] < offsets[0] {
		return errorf(name, "data_offsets [%d, %d] end before they begin", offsets[0], offsets[1])
	}
	size, err := t.DType.ByteSize(t.Shape)
	if err != nil {
		return errorf(name, "%v", err)
	}
	t.Offset, t.Size = int64(offsets[0]), int64(offsets[1]-offsets[0])
	if t.Size != size {
		return errorf(name, "%s of shape %v needs %d bytes, data_offsets has %d", t.DType, t.Shape, size, t.Size)
	}
	h.byName[name] = len(h.tensors)
	h.tensors = append(h.tensors, t)
	return nil
}

// layout sorts the tensors by place and checks that they tile the data.
func (h *header) layout(dataSize int64) error {
	slices.SortFunc(h.tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for i, t := range h.tensors {
		h.byName[t.Name] = i
		switch {
		case t.Offset > end:
			return errorf(t.Name, "begins at %d, but the tensors before it end at %d: bytes that belong to no tensor are not allowed", t.Offset, end)
		case t.Offset < end:
			return errorf(t.Name, "begins at %d, inside tensor %q, which ends at %d", t.Offset, h.tensors[i-1].Name, end)
		case t.Size > dataSize-end:
			return errorf(t.Name, "ends at %d, but the file has %d bytes of data: it is truncated", end+t.Size, dataSize)
		}
		end += t.Size
	}
	if end != dataSize {
		return errorf("", "the tensors end at %d, but the file has %d bytes of data: %d bytes belong to no tensor", end, dataSize, dataSize-end)
	}
	return nil
}
