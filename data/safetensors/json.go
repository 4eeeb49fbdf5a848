package safetensors

import (
	"encoding/json"
	"fmt"
	"math"
)

// scanner reads the small part of JSON that a header consists of: objects, arrays,
// strings and non-negative integers. It exists because encoding/json hides duplicate
// keys, accepts 1e3 where a size belongs, and allocates a value for each token of what
// may be a 100 MB text.
type scanner struct {
	s   []byte
	pos int
}

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("header byte %d: %s", s.pos, fmt.Sprintf(format, args...))
}

func (s *scanner) space() {
	for s.pos < len(s.s) {
		switch s.s[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// found describes the next byte for an error message.
func (s *scanner) found() string {
	if s.pos >= len(s.s) {
		return "the end of the header"
	}
	return fmt.Sprintf("%q", s.s[s.pos])
}

func (s *scanner) expect(c byte) error {
	s.space()
	if s.pos >= len(s.s) || s.s[s.pos] != c {
		return s.errorf("want %q, found %s", c, s.found())
	}
	s.pos++
	return nil
}

// str reads a string. Its bytes are found by a plain scan; only one with
// escapes goes through encoding/json.
func (s *scanner) str() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	start, escaped := s.pos, false
	for s.pos < len(s.s) {
		switch c := s.s[s.pos]; {
		case c == '"':
			raw := s.s[start:s.pos]
			s.pos++
			if !escaped {
				return string(raw), nil
			}
			var out string
			if err := json.Unmarshal(s.s[start-1:s.pos], &out); err != nil {
				return "", s.errorf("string %s: %v", s.s[start-1:s.pos], err)
			}
			return out, nil
		case c == '\\':
			escaped = true
			s.pos += 2
		case c < 0x20:
			return "", s.errorf("control character %#02x inside a string", c)
		default:
			s.pos++
		}
	}
	return "", s.errorf("string is not closed")
}

// integer reads a non-negative integer that fits int.
func (s *scanner) integer() (int, error) {
	s.space()
	start := s.pos
	n := uint64(0)
	for s.pos < len(s.s) && s.s[s.pos] >= '0' && s.s[s.pos] <= '9' {
		d := uint64(s.s[s.pos] - '0')
		if n > (math.MaxInt-d)/10 {
			return 0, s.errorf("number is larger than %d", math.MaxInt)
		}
		n = n*10 + d
		s.pos++
	}
	if s.pos == start {
		return 0, s.errorf("want a non-negative integer, found %s", s.found())
	}
	if s.s[start] == '0' && s.pos > start+1 {
		return 0, s.errorf("number has a leading zero")
	}
	return int(n), nil
}

// integers reads an array of integers.
func (s *scanner) integers() ([]int, error) {
	if err := s.expect('['); err != nil {
		return nil, err
	}
	list := []int{}
	for first := true; ; first = false {
		s.space()
		if s.pos < len(s.s) && s.s[s.pos] == ']' && first {
			s.pos++
			return list, nil
		}
		n, err := s.integer()
		if err != nil {
			return nil, err
		}
		list = append(list, n)
		s.space()
		if s.pos < len(s.s) && s.s[s.pos] == ']' {
			s.pos++
			return list, nil
		}
		if err := s.expect(','); err != nil {
			return nil, err
		}
	}
}

// object reads an object, calling member with the scanner before each value.
func (s *scanner) object(member func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	for first := true; ; first = false {
		s.space()
		if s.pos < len(s.s) && s.s[s.pos] == '}' && first {
			s.pos++
			return nil
		}
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		s.space()
		if s.pos < len(s.s) && s.s[s.pos] == '}' {
			s.pos++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}
