package data

import (
	"context"
	"errors"
	"io"
	"iter"
)

// Pass yields the items of a loader until its stream ends, at most limit items (0: all),
// and closes it. An error, the context's among them, comes last.
func Pass[U any](ctx context.Context, l interface {
	Next() (U, error)
	Close()
}, limit int) iter.Seq2[U, error] {
	return func(yield func(U, error) bool) {
		defer l.Close()
		for n := 0; limit == 0 || n < limit; n++ {
			u, err := l.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil {
				err = ctx.Err()
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}
