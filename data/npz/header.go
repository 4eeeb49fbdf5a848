package npz

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	magic = "\x93NUMPY"
	// maxHeader bounds a header. NumPy itself refuses more than 10,000
	// characters by default.
	maxHeader = 64 << 10
	// maxRank is NumPy's own limit.
	maxRank = 64
)

// Header describes an array.
type Header struct {
	DType   DType
	Shape   []int
	Fortran bool // on disk the first index runs fastest

	bigEndian bool
}

// Len is the number of elements.
func (h *Header) Len() int {
	n := 1
	for _, d := range h.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the elements on disk.
func (h *Header) Bytes() int64 { return int64(h.Len()) * int64(h.DType.Size()) }

// readHeader reads magic, version and the header's dictionary.
func readHeader(r *bufio.Reader) (Header, error) {
	var pre [8]byte
	if _, err := io.ReadFull(r, pre[:]); err != nil {
		return Header{}, fmt.Errorf("no .npy header: %w", err)
	}
	if string(pre[:6]) != magic {
		return Header{}, fmt.Errorf("not an .npy array: it starts with %q", pre[:6])
	}
	var size int
	switch pre[6] {
	case 1:
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return Header{}, fmt.Errorf("header cut off: %w", err)
		}
		size = int(binary.LittleEndian.Uint16(b[:]))
	case 2, 3:
		var b [4]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return Header{}, fmt.Errorf("header cut off: %w", err)
		}
		n := binary.LittleEndian.Uint32(b[:])
		if n > maxHeader {
			return Header{}, fmt.Errorf("header claims %d bytes, more than %d", n, maxHeader)
		}
		size = int(n)
	default:
		return Header{}, fmt.Errorf(".npy version %d.%d, known are 1, 2 and 3", pre[6], pre[7])
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		return Header{}, fmt.Errorf("header cut off: %w", err)
	}
	if !utf8.Valid(text) {
		return Header{}, fmt.Errorf("header is not UTF-8")
	}
	h, err := parseHeader(string(text))
	if err != nil {
		return Header{}, fmt.Errorf("header %.80q: %w", strings.TrimRight(string(text), " \n"), err)
	}
	return h, nil
}

// parseHeader reads a header, which is a Python dictionary such as {'descr': '<i4',
// 'fortran_order': False, 'shape': (3, 4), }.
func parseHeader(text string) (Header, error) {
	p := parser{rest: text}
	var h Header
	seen := map[string]bool{}
	if err := p.want("{"); err != nil {
		return h, err
	}
	for !p.skip("}") {
		key, err := p.quoted()
		if err != nil {
			return h, err
		}
		if seen[key] {
			return h, fmt.Errorf("key %q twice", key)
		}
		seen[key] = true
		if err := p.want(":"); err != nil {
			return h, err
		}
		switch key {
		case "descr":
			descr, err := p.quoted()
			if err != nil {
				return h, fmt.Errorf("descr: %w (structured types are not supported)", err)
			}
			if h.DType, h.bigEndian, err = parseDType(descr); err != nil {
				return h, err
			}
		case "fortran_order":
			switch {
			case p.skip("True"):
				h.Fortran = true
			case !p.skip("False"):
				return h, fmt.Errorf("fortran_order is neither True nor False")
			}
		case "shape":
			if h.Shape, err = p.shape(); err != nil {
				return h, err
			}
		default:
			return h, fmt.Errorf("unknown key %q", key)
		}
		if !p.skip(",") {
			if err := p.want("}"); err != nil {
				return h, err
			}
			break
		}
	}
	if p.space(); p.rest != "" {
		return h, fmt.Errorf("%.20q after the dictionary", p.rest)
	}
	if len(seen) != 3 {
		return h, fmt.Errorf("want the keys descr, fortran_order and shape, found %d of them", len(seen))
	}
	return h, checkShape(h)
}

// checkShape makes sure that no product of dimensions overflows later.
func checkShape(h Header) error {
	// A dimension of zero makes the array empty, whatever the others claim.
	size := float64(h.DType.Size())
	for _, d := range h.Shape {
		size *= float64(max(1, d))
	}
	if size > math.MaxInt/2 {
		return fmt.Errorf("shape %v is larger than any memory", h.Shape)
	}
	return nil
}

// parser walks through the text of a header.
type parser struct{ rest string }

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

func (p *parser) skip(token string) bool {
	p.space()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) want(token string) error {
	if !p.skip(token) {
		return fmt.Errorf("want %q before %.20q", token, p.rest)
	}
	return nil
}

// quoted reads a string without escapes, which no valid header has.
func (p *parser) quoted() (string, error) {
	p.space()
	if p.rest == "" || p.rest[0] != '\'' && p.rest[0] != '"' {
		return "", fmt.Errorf("want a string before %.20q", p.rest)
	}
	s, rest, ok := strings.Cut(p.rest[1:], p.rest[:1])
	if !ok {
		return "", fmt.Errorf("string without an end: %.20q", p.rest)
	}
	p.rest = rest
	return s, nil
}

// shape reads a tuple of sizes.
func (p *parser) shape() ([]int, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	shape := []int{}
	for !p.skip(")") {
		p.space()
		digits := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789"))
		d, err := strconv.Atoi(p.rest[:digits])
		if err != nil {
			return nil, fmt.Errorf("shape: want a size before %.20q", p.rest)
		}
		p.rest = strings.TrimPrefix(p.rest[digits:], "L") // Python 2 wrote 3L
		if shape = append(shape, d); len(shape) > maxRank {
			return nil, fmt.Errorf("shape of more than %d dimensions", maxRank)
		}
		if !p.skip(",") {
			if err := p.want(")"); err != nil {
				return nil, err
			}
			break
		}
	}
	return shape, nil
}
