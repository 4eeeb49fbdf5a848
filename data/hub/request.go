package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/size"
)

// maxHops bounds the redirects of one request.
const maxHops = 8

// temporary is an error that may go away.
type temporary struct {
	err error
	// after is how long the server asks us to wait.
	after time.Duration
}

func (t *temporary) Error() string { return t.err.Error() }
func (t *temporary) Unwrap() error { return t.err }

// StatusError is a refusal by a server.
type StatusError struct {
	URL    string
	Status int
	// Code and Message are the hub's own words, if any.
	Code, Message string
	// token says whether one was sent.
	token bool
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("%s: %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		s += ": " + e.Message
	}
	switch {
	case e.Code == "GatedRepo":
		s += ": accept the repository's terms on its page, and set HF_TOKEN"
	case e.Status == http.StatusUnauthorized && !e.token:
		s += ": the repository does not exist, or is private: set HF_TOKEN if it is"
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		s += ": the token does not allow it: check HF_TOKEN"
	case e.Status == http.StatusNotFound:
		s += ": check the spelling of repository, revision and file"
	}
	return s
}

// reply is a response to be read, and the hub's own data about the file.
type reply struct {
	*http.Response
	// etag is the hub's: X-Linked-Etag, otherwise ETag. Empty for none.
	etag string
	// size is the hub's: X-Linked-Size, otherwise the body's; -1 for unknown.
	size int64
}

// origin identifies a server, port and scheme included.
func origin(u *url.URL) string { return u.Scheme + "://" + strings.ToLower(u.Host) }

// send makes a request and follows redirects; the answer to a HEAD request is the hub's
// own, not that of another host. A silent server is abandoned.
func (c *Client) send(ctx context.Context, method string, u *url.URL, header http.Header) (*reply, error) {
	hub, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	ctx, watch := newWatch(ctx, c.silence())
	r := &reply{size: -1}
	for range maxHops {
		atHub := origin(u) == origin(hub)
		req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
		if err != nil {
			watch.stop()
			return nil, err
		}
		for name, values := range header {
			req.Header[name] = values
		}
		req.Header.Set("User-Agent", "snug")
		req.Header.Set("Accept-Encoding", "identity")
		if atHub && c.Token != "" {
			req.Header.Set("Authorization", "Bearer "+c.Token)
		}
		resp, err := c.transport().RoundTrip(req)
		if err != nil {
			watch.stop()
			return nil, watch.explain(fmt.Errorf("%s %s: %w", method, bare(u), err))
		}
		if atHub {
			r.note(resp.Header)
		}
		location := resp.Header.Get("Location")
		if resp.StatusCode < 300 || resp.StatusCode > 399 || location == "" {
			r.Response = resp
			if atHub && r.size < 0 && resp.StatusCode == http.StatusOK {
				r.size = resp.ContentLength
			}
			resp.Body = &watched{resp.Body, watch}
			return r, nil
		}
		next, err := u.Parse(location)
		if err == nil && (next.Scheme != "https" && next.Scheme != "http" || u.Scheme == "https" && next.Scheme != "https" || next.Host == "") {
			err = errors.New("redirects from HTTPS to another scheme")
		}
		if err != nil {
			watch.stop()
			return nil, errors.Join(fmt.Errorf("%s %s: redirect: %w", method, bare(u), err), resp.Body.Close())
		}
		if method == http.MethodHead && origin(next) != origin(hub) {
			r.Response = resp
			resp.Body = &watched{resp.Body, watch}
			return r, nil
		}
		if err := resp.Body.Close(); err != nil {
			watch.stop()
			return nil, err
		}
		u = next
	}
	watch.stop()
	return nil, fmt.Errorf("%s %s: more than %d redirects", method, bare(u), maxHops)
}

// bare returns a URL for messages: the query may contain a signature.
func bare(u *url.URL) string {
	v := *u
	v.RawQuery, v.User, v.Fragment = "", nil, ""
	return v.String()
}

// note records the hub's data about a file.
func (r *reply) note(h http.Header) {
	if tag := cleanTag(h.Get("X-Linked-Etag")); tag != "" {
		r.etag = tag
	} else if tag := cleanTag(h.Get("Etag")); tag != "" && r.etag == "" {
		r.etag = tag
	}
	if n, err := strconv.ParseInt(h.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 {
		r.size = n
	}
}

func cleanTag(tag string) string {
	return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
}

// check turns a refusal into an error, a temporary one if it may go away.
func (c *Client) check(r *reply) error {
	if r.StatusCode < 400 {
		return nil
	}
	e := &StatusError{
		URL: bare(r.Request.URL), Status: r.StatusCode,
		Code: r.Header.Get("X-Error-Code"), Message: r.Header.Get("X-Error-Message"),
		token: r.Request.Header.Get("Authorization") != "",
	}
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &temporary{e, retryAfter(r.Header, time.Now())}
	}
	return e
}

// resetIn finds the seconds to the next window in the hub's RateLimit header.
var resetIn = regexp.MustCompile(`\bt=(\d{1,9})\b`)

// retryAfter returns how long a server asks us to wait: by RFC 9110 section 10.2.3,
// otherwise by the hub's RateLimit header.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseInt(v, 10, 32); err == nil && s >= 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	if m := resetIn.FindStringSubmatch(h.Get("Ratelimit")); m != nil {
		if s, err := strconv.ParseInt(m[1], 10, 32); err == nil {
			return time.Duration(s) * time.Second
		}
	}
	return 0
}

// maxPause bounds the pauses that no server requested.
const maxPause = 30 * time.Second

// retry runs try until it succeeds, fails permanently, or makes no progress too many
// times in a row. try reports whether it made progress.
func (c *Client) retry(ctx context.Context, what string, try func() (further bool, err error)) error {
	failures, pause := 0, c.pause()
	for {
		further, err := try()
		if err == nil {
			return nil
		}
		var t *temporary
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
		if !errors.As(err, &t) {
			return fmt.Errorf("%s: %w", what, err)
		}
		if further {
			failures, pause = 0, c.pause()
		}
		failures++
		if failures >= c.attempts() {
			return fmt.Errorf("%s: given up after %s: %w", what, size.Of(failures, "attempt"), err)
		}
		if t.after > c.patience() {
			return fmt.Errorf("%s: the server asks to wait %v: %w", what, t.after.Round(time.Second), err)
		}
		// Jitter, so that many clients do not come back all at once.
		wait := max(t.after, pause/2+rand.N(pause/2+1))
		c.log("%s: %v; again in %v", what, err, wait.Round(time.Millisecond))
		pause = min(2*pause, maxPause)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// watch cancels a request whose server has been silent for too long.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

var errSilent = errors.New("the server sent nothing")

func newWatch(ctx context.Context, limit time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watch{ctx, cancel, time.AfterFunc(limit, func() { cancel(errSilent) }), limit}
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain returns why a request failed, and whether that may go away: a network failure
// may, a name that does not exist or an invalid certificate does not.
func (w *watch) explain(err error) error {
	if context.Cause(w.ctx) == errSilent {
		return &temporary{err: fmt.Errorf("%w for %v", errSilent, w.limit)}
	}
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &name) && name.IsNotFound || errors.As(err, &certificate) {
		return err
	}
	return &temporary{err: err}
}

// watched is a body whose every read restarts the timer.
type watched struct {
	io.ReadCloser
	watch *watch
}

func (b *watched) Read(p []byte) (int, error) {
	b.watch.timer.Reset(b.watch.limit)
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = b.watch.explain(err)
	}
	return n, err
}

func (b *watched) Close() error {
	b.watch.stop()
	return b.ReadCloser.Close()
}
