// Package safetensors reads and writes the safetensors format, the file format in
// which the field exchanges weights.
//
// It promises:
//
//   - A file is opened by memory map and nothing of it is copied but the header;
//     a tensor's Data points into the map until File.Close.
//   - Every rule of the format is checked before a tensor is returned: the header is at
//     most 100,000,000 bytes and inside the file, is valid UTF-8 and one JSON object
//     that starts with '{'; names are unique; dtypes are known; shape times element
//     size equals the byte range, computed without overflow; ranges follow each other
//     from 0 without hole or overlap and end at the end of the file; __metadata__ maps
//     strings to strings.
//   - Memory used while opening is proportional to the file that is really
//     there, never to a number the file claims.
//   - What is written is streamed, has the header padded with spaces to 8 bytes
//     and the tensors in the reference's order (dtype by descending alignment,
//     then name), so equal input gives equal bytes.
//   - An error names the file, the tensor, what was expected and what was found.
//
// A map of a file that someone else truncates faults on access (SIGBUS), as with every
// memory map; if others can write to a file, read it into memory and use Parse.
//
// Format: https://github.com/huggingface/safetensors, checked against its
// reference implementation as of May 2026.
package safetensors

import (
	"fmt"

	"github.com/snug-ml/snug/internal/few"
)

// MaxHeader is the largest header, in bytes, that the format allows.
const MaxHeader = 100_000_000

// MetadataKey is the one header key that is not a tensor.
const MetadataKey = "__metadata__"

// Error is a breach of the format. Path and Tensor are empty if they are not known.
type Error struct {
	Path    string
	Tensor  string
	Problem string
}

func (e *Error) Error() string {
	s := "safetensors: "
	if e.Path != "" {
		s += e.Path + ": "
	}
	if e.Tensor != "" {
		s += fmt.Sprintf("tensor %q: ", few.Text(e.Tensor, 200))
	}
	return s + few.Text(e.Problem, 600)
}

func errorf(tensor, format string, args ...any) *Error {
	return &Error{Tensor: tensor, Problem: fmt.Sprintf(format, args...)}
}
