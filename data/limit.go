package data

import "io"

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
