package hub

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/internal/size"
)

// maxSpoiled is how often a complete file may arrive with the wrong content.
const maxSpoiled = 3

// download is one file being fetched into the cache.
type download struct {
	c     *Client
	url   *url.URL
	about about
	f     *os.File
	// have bytes of f are there, and hashed by sum (nil: nothing to check).
	have int64
	sum  hash.Hash
	// arrived, when set, is called with the number of bytes that came or (negative) were
	// dropped.
	arrived func(n int64)
	spoiled int
}

// run completes the file, continuing after what is already there.
func (d *download) run(ctx context.Context) error {
	if err := d.recall(); err != nil {
		return err
	}
	return d.c.retry(ctx, "fetch "+bare(d.url), func() (bool, error) {
		before := d.have
		if d.about.size < 0 || d.have < d.about.size {
			if err := d.more(ctx); err != nil {
				return d.have > before, err
			}
		}
		err := d.about.verify(d.sum, d.have)
		if err == nil {
			return true, nil
		}
		d.spoiled++
		if d.spoiled == maxSpoiled {
			return false, fmt.Errorf("%w, %s", err, size.Of(d.spoiled, "time"))
		}
		return false, d.again(err)
	})
}

// recall picks up what an earlier run left.
func (d *download) recall() error {
	d.sum = d.about.digest()
	st, err := d.f.Stat()
	if err != nil {
		return err
	}
	if st.Size() == 0 || d.about.size >= 0 && st.Size() > d.about.size {
		return d.restart()
	}
	if d.sum != nil {
		if _, err := io.Copy(d.sum, d.f); err != nil {
			return err
		}
	}
	if d.have, err = d.f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	d.c.log("fetch %s: continuing after %d bytes", bare(d.url), d.have)
	d.tell(d.have)
	return nil
}

// restart drops everything.
func (d *download) restart() error {
	d.tell(-d.have)
	d.have, d.sum = 0, d.about.digest()
	if _, err := d.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return d.f.Truncate(0)
}

// again drops everything because of err, for another try.
func (d *download) again(err error) error {
	if e := d.restart(); e != nil {
		return errors.Join(err, e)
	}
	return &temporary{err: err}
}

func (d *download) tell(n int64) {
	if d.arrived != nil && n != 0 {
		d.arrived(n)
	}
}

// more makes one request for the missing part.
func (d *download) more(ctx context.Context) error {
	header := http.Header{}
	if d.have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
	}
	resp, err := d.c.send(ctx, http.MethodGet, d.url, header)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // was read to its end, or is abandoned
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return d.again(errors.New("the server does not have that range"))
	}
	if err := d.c.check(resp); err != nil {
		return err
	}
	if resp.etag != "" && resp.etag != d.about.etag {
		return fmt.Errorf("the file changed while it was fetched, from %s to %s", d.about.etag, resp.etag)
	}
	switch resp.StatusCode {
	case http.StatusOK: // from the beginning, whether requested or not
		if d.have > 0 {
			if err := d.restart(); err != nil {
				return err
			}
		}
	case http.StatusPartialContent:
		if err := d.continues(resp.Header.Get("Content-Range")); err != nil {
			return d.again(err)
		}
	default:
		return fmt.Errorf("%s: unexpected status %d", bare(resp.Request.URL), resp.StatusCode)
	}
	return d.receive(ctx, resp.Body)
}

// continues checks that a part begins where the file ends.
func (d *download) continues(span string) error {
	rest, ok := strings.CutPrefix(span, "bytes ")
	from, _, ok2 := strings.Cut(rest, "-")
	_, total, ok3 := strings.Cut(rest, "/")
	at, err := strconv.ParseInt(from, 10, 64)
	if !ok || !ok2 || !ok3 || err != nil || at != d.have {
		return fmt.Errorf("asked for bytes from %d, got %q", d.have, span)
	}
	if n, err := strconv.ParseInt(total, 10, 64); err == nil && d.about.size >= 0 && n != d.about.size {
		return fmt.Errorf("the server says the file has %d bytes, the hub %d", n, d.about.size)
	}
	return nil
}

// receive appends a body to the file, but no more than the file's announced size.
func (d *download) receive(ctx context.Context, body io.Reader) error {
	buf := make([]byte, 128<<10)
	for {
		if ctx.Err() != nil { // even if everything is already buffered
			return context.Cause(ctx)
		}
		n, err := body.Read(buf)
		if d.about.size >= 0 && int64(n) > d.about.size-d.have {
			return d.again(fmt.Errorf("more than the %d bytes that the hub announced", d.about.size))
		}
		if n > 0 {
			if _, err := d.f.Write(buf[:n]); err != nil {
				return err
			}
			if d.sum != nil {
				_, _ = d.sum.Write(buf[:n]) // a hash's Write cannot fail
			}
			d.have += int64(n)
			d.tell(int64(n))
		}
		switch {
		case err == io.EOF && d.about.size >= 0 && d.have < d.about.size:
			return &temporary{err: fmt.Errorf("the connection ended after %d of %d bytes", d.have, d.about.size)}
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
