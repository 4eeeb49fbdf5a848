// Package pytorch reads files of weights that torch.save wrote, such as the
// pytorch_model.bin of older model folders: a zip archive with one pickle and a
// raw file for each storage.
//
// It promises:
//
//   - Nothing is executed. The pickle runs on a stack machine of this package
//     that knows the opcodes a dictionary of tensors needs, and that calls
//     nothing except the few constructors of globals.go, which build plain data.
//     Every other opcode and every other name is refused.
//   - A file is opened by memory map. A tensor whose elements are in order points into
//     the map; any other (transposed, sliced, expanded) is gathered on request.
//   - Memory is bounded by the actual size of the file: the pickle by
//     MaxPickle, its objects and its stack by number, a gathered tensor by the
//     size of the file.
//   - Every storage is uncompressed inside the file, has the size that the pickle
//     states, and shares no byte with another entry; every tensor is inside its
//     storage. An entry's checksum is compared before it is used, where the file has
//     one (torch.serialization.set_crc32_options(False) writes 0).
//   - An error names the file, the position in the pickle with its opcode, or
//     the tensor, and what to do.
//
// The format of PyTorch before 1.6, which is not an archive, is refused with the
// line that converts it.
//
// Format: https://docs.python.org/3/library/pickletools.html and
// https://pytorch.org/docs/stable/notes/serialization.html.
package pytorch

import (
	"fmt"

	"github.com/snug-ml/snug/internal/few"
)

// Error is what is wrong with a file. Path and Tensor are empty if they are not known.
type Error struct {
	Path    string
	Tensor  string
	Problem string
}

func (e *Error) Error() string {
	s := "pytorch: "
	if e.Path != "" {
		s += e.Path + ": "
	}
	if e.Tensor != "" {
		s += fmt.Sprintf("tensor %q: ", few.Text(e.Tensor, 200))
	}
	return s + few.Text(e.Problem, 800)
}

func errorf(tensor, format string, args ...any) *Error {
	return &Error{Tensor: tensor, Problem: fmt.Sprintf(format, args...)}
}

// convert is the line that converts a file.
const convert = `python -c 'import sys, torch; f = sys.argv[1]; torch.save(torch.load(f, map_location="cpu", weights_only=True), f)' FILE`
