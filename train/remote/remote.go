package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/snug-ml/snug/internal/size"
)

// Object is a stored object.
type Object struct {
	Key    string // below the URL's prefix, with slashes
	Size   int64
	SHA256 string // as recorded when it was stored; empty if List cannot know it
}

// Remote is a place for objects. Errors for which a retry is useless are
// *PermanentError; a missing object is fs.ErrNotExist.
type Remote interface {
	// String returns the URL, without secrets.
	String() string
	// Put stores size bytes of src whose SHA-256 is sum. Once it returns nil, the object
	// is complete and verified at the remote. An object that already exists is not sent
	// again.
	Put(ctx context.Context, key string, src io.ReaderAt, size int64, sum string, how PutOptions) error
	// Get reads an object from an offset to its end.
	Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error)
	// Stat describes one object.
	Stat(ctx context.Context, key string) (Object, error)
	// List lists the objects below a prefix, which is empty or ends with a slash.
	List(ctx context.Context, prefix string) ([]Object, error)
	// Remove deletes an object; a missing one is not an error.
	Remove(ctx context.Context, key string) error
}

// PutOptions are further options of a Put.
type PutOptions struct {
	Sessions Sessions         // remembers unfinished uploads; may be nil
	Progress func(sent int64) // receives the number of bytes after each piece; may be nil
}

func (o PutOptions) progress(n int64) {
	if o.Progress != nil {
		o.Progress(n)
	}
}

// Sessions remembers, by key, the identifier of an upload in several parts, so that
// it can continue after a kill.
type Sessions interface {
	Session(key string) string
	SetSession(key, id string) error // an empty id forgets
}

// memorySessions serves uploads that need not survive the process.
type memorySessions map[string]string

func (m memorySessions) Session(key string) string { return m[key] }

func (m memorySessions) SetSession(key, id string) error {
	m[key] = id
	return nil
}

// PermanentError is one that a retry cannot fix.
type PermanentError struct {
	Err  error
	Hint string // what to check
}

func (e *PermanentError) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v: %s", e.Err, e.Hint)
}

func (e *PermanentError) Unwrap() error { return e.Err }

// MismatchError means that the remote does not have exactly what was sent.
type MismatchError struct {
	Key      string
	WantSize int64
	WantSum  string // SHA-256
	Size     int64
	Sum      string // empty if unknown
}

func (e *MismatchError) Error() string {
	switch {
	case e.Size < e.WantSize:
		return fmt.Sprintf("object %s is cut: %d of %d bytes are there", e.Key, e.Size, e.WantSize)
	case e.Size > e.WantSize:
		return fmt.Sprintf("object %s was tampered with: it has %d bytes instead of %d", e.Key, e.Size, e.WantSize)
	}
	return fmt.Sprintf("object %s was tampered with: its SHA-256 is %s instead of %s", e.Key, e.Sum, e.WantSum)
}

// retrier repeats failed attempts with full-jitter exponential pauses (1 s, 2 s, 4 s, ...
// at most a minute, times a random number below 1).
type retrier struct {
	attempts int
	patience time.Duration // 0: only the attempts count
	now      func() time.Time
	sleep    func(time.Duration) <-chan time.Time
	notify   func(attempt int, wait time.Duration, err error)
}

func (r *retrier) do(ctx context.Context, f func() error) error {
	spent := time.Duration(0)
	for attempt := 1; ; attempt++ {
		began := r.now()
		err := f()
		if err == nil {
			return nil
		}
		if permanent := (*PermanentError)(nil); errors.As(err, &permanent) || ctx.Err() != nil {
			return err
		}
		if attempt >= r.attempts {
			return fmt.Errorf("given up after %s: %w", size.Of(attempt, "attempt"), err)
		}
		wait := rand.N(min(time.Second<<min(attempt-1, 6), time.Minute)) + 50*time.Millisecond
		took := r.now().Sub(began)
		if spent += took + wait; r.patience > 0 && took > r.patience {
			spent = wait // an attempt that took so long made progress: a stalled one is cut off earlier
		}
		if r.patience > 0 && spent > r.patience {
			return fmt.Errorf("given up after %s, without progress for %s: %w", size.Of(attempt, "attempt"), r.patience, err)
		}
		r.notify(attempt, wait, err)
		select {
		case <-r.sleep(wait):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
