package data

import (
	"fmt"
	"io"
)

// recordLimit bounds the bytes that a decoder may read for one record, so that
// a quote or bracket that never closes costs no more than that.
type recordLimit struct {
	r     io.Reader
	limit int64
	left  int64
}

func newRecordLimit(r io.Reader, limit int64) *recordLimit {
	return &recordLimit{r: r, limit: limit, left: limit}
}

// maxColumns bounds the fields of a row: each takes far more memory than the
// separator that makes it.
const maxColumns = 1 << 16

var errTooWide = fmt.Errorf("more than %d columns: is the separator right?", maxColumns)

// columnLimit bounds the separators outside quotes in a line of the CSV read through it.
type columnLimit struct {
	r      io.Reader
	comma  byte // the last byte of the separator
	quoted bool
	seen   int // separators in this line
}

// Read implements io.Reader; it returns errTooWide beyond the limit.
func (c *columnLimit) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for _, b := range p[:n] {
		switch {
		case b == '"':
			c.quoted = !c.quoted
		case c.quoted:
		case b == '\n':
			c.seen = 0
		case b == c.comma:
			if c.seen++; c.seen >= maxColumns {
				return 0, errTooWide
			}
		}
	}
	return n, err
}

// next begins another record.
func (l *recordLimit) next() { l.left = l.limit }

// Read implements io.Reader; it returns errTooLong beyond the limit.
func (l *recordLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooLong
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}
