// Package access decides who may use the servers of this program: anyone on this
// machine, or with the token.
package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Local reports whether a request's Host names this machine. A web page whose own name
// resolves to this machine (DNS rebinding) sends its own name instead.
func Local(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.IsLoopback()
}

// Bearer reports whether a request carries the token: Authorization: Bearer TOKEN, the
// scheme in any case.
func Bearer(r *http.Request, token string) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return Equal(given, token) && strings.EqualFold(scheme, "bearer")
}

// Equal compares secrets in constant time.
func Equal(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
