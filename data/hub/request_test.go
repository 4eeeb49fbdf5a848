package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Temporary errors are waited out, as long as the server asks.
func TestRetryAfter(t *testing.T) {
	for name, header := range map[string][2]string{
		"seconds": {"Retry-After", "1"}, "a window": {"RateLimit", `"resolvers";r=0;t=1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, standard())
			refusals := 0
			s.hubFault = func(w http.ResponseWriter, _ *http.Request) bool {
				if refusals++; refusals > 1 {
					return false
				}
				w.Header().Set(header[0], header[1])
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
			r := theRef
			r.Path = "config.json"
			began := time.Now()
			if _, err := s.client(t).Fetch(context.Background(), r, Options{}); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < time.Second {
				t.Errorf("came back after %v, the server asked for 1 s", took)
			}
		})
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		after, rate string
		want        time.Duration
	}{
		{"", "", 0}, {"7", "", 7 * time.Second}, {"-7", "", 0}, {"soon", "", 0}, {"1e9", "", 0},
		{"Fri, 02 Jan 2026 03:05:05 GMT", "", time.Minute}, {"Fri, 02 Jan 2026 03:03:05 GMT", "", 0},
		{"", `"api";r=0;t=55`, 55 * time.Second}, {"3", `"api";r=0;t=55`, 3 * time.Second}, {"", `"api";r=0;t=99999999999`, 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("RateLimit", c.rate)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("Retry-After %q, RateLimit %q: %v, want %v", c.after, c.rate, got, c.want)
		}
	}
}

// Permanent errors are reported at once, with what to do.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name     string
		status   int
		header   [2]string
		token    string
		want     string
		attempts int
	}{
		{"missing", http.StatusNotFound, [2]string{"X-Error-Message", "Repository not found"}, theToken, "404 Not Found: Repository not found: check the spelling", 1},
		{"private", http.StatusUnauthorized, [2]string{}, "", "does not exist, or is private: set HF_TOKEN", 1},
		{"bad token", http.StatusUnauthorized, [2]string{}, theToken, "the token does not allow it: check HF_TOKEN", 1},
		{"gated", http.StatusForbidden, [2]string{"X-Error-Code", "GatedRepo"}, theToken, "accept the repository's terms", 1},
		{"long wait", http.StatusTooManyRequests, [2]string{"Retry-After", "3600"}, theToken, "the server asks to wait 1h0m0s", 1},
		{"broken", http.StatusBadGateway, [2]string{}, theToken, "given up after 4 attempts", 4},
	} {
		s := newServer(t, standard())
		s.hubFault = func(w http.ResponseWriter, _ *http.Request) bool {
			if c.header[0] != "" {
				w.Header().Set(c.header[0], c.header[1])
			}
			w.WriteHeader(c.status)
			return true
		}
		cl := s.client(t)
		cl.Token, cl.Attempts = c.token, 4
		_, err := cl.Fetch(context.Background(), theRef, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
		if strings.Contains(fmt.Sprint(err), theToken) {
			t.Errorf("%s: the error tells the token: %v", c.name, err)
		}
		var status *StatusError
		if !errors.As(err, &status) || status.Status != c.status {
			t.Errorf("%s: the error does not hold the status", c.name)
		}
		if n := len(s.take()); n != c.attempts {
			t.Errorf("%s: %d attempts, want %d", c.name, n, c.attempts)
		}
	}
}

// Redirects within the hub (a renamed repository) keep the token, those to another host
// or port do not, and none goes on forever.
func TestRedirects(t *testing.T) {
	s := newServer(t, standard())
	c := s.client(t)
	s.hubFault = func(w http.ResponseWriter, r *http.Request) bool {
		if to := strings.Replace(r.URL.EscapedPath(), "old/", "owner/", 1); to != r.URL.EscapedPath() {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return true
		}
		return false
	}
	old := theRef
	old.ID = "old/name"
	snap, err := c.Fetch(context.Background(), old, Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s, snap)
	if len(s.unsigned) > 0 || len(s.leaked) > 0 {
		t.Errorf("the token is missing in %v and leaked in %v", s.unsigned, s.leaked)
	}
	s.hubFault = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, r.URL.Path+"/", http.StatusFound)
		return true
	}
	if _, err := c.Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "more than 8 redirects") {
		t.Errorf("redirects without end: %v", err)
	}
	s.hubFault = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		return true
	}
	if _, err := c.Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "redirect: redirects from") {
		t.Errorf("a redirect to a file: %v", err)
	}
}

// HTTPS never redirects to plain HTTP, and an invalid certificate is not accepted
// on a second try either.
func TestHTTPS(t *testing.T) {
	plain := newServer(t, standard())
	asked := 0
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, plain.hub.URL+r.URL.Path, http.StatusFound)
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // it is to refuse
	secure.StartTLS()
	t.Cleanup(secure.Close)
	c := plain.client(t)
	c.Endpoint, c.Transport = secure.URL, secure.Client().Transport
	if _, err := c.Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "redirects from HTTPS to another scheme") {
		t.Errorf("a redirect to HTTP: %v", err)
	}
	if len(plain.take()) > 0 || asked != 1 {
		t.Errorf("the plain server was asked, or the secure one %d times", asked)
	}
	c.Transport = nil
	_, err := c.Fetch(context.Background(), theRef, Options{})
	var forged *tls.CertificateVerificationError
	if !errors.As(err, &forged) || strings.Contains(err.Error(), "attempts") {
		t.Errorf("a false certificate: %v", err)
	}
}

// The parts of a signed address that grant access appear in no message.
func TestSignaturesAreNotTold(t *testing.T) {
	u, err := url.Parse("https://user:pass@host/a%2Fb?X-Amz-Signature=abc#d")
	if err != nil {
		t.Fatal(err)
	}
	if got := bare(u); got != "https://host/a%2Fb" {
		t.Errorf("got %s", got)
	}
}
