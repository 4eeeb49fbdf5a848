package remote

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config holds what a URL does not contain. Open fills empty fields from the environment;
// keys never belong in a URL or a configuration file.
type Config struct {
	Endpoint     string // https://host[:port]; http only if stated
	Region       string
	AccessKey    string
	SecretKey    string
	SessionToken string
	PartSize     int64 // bytes sent at a time for large objects; 0 means 16 MiB

	idle time.Duration // 0 means idleLimit
}

// Open opens the location that a URL names. It does not connect.
//
//	file:///absolute/path
//	s3://bucket/prefix     AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
//	                       AWS_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, or
//	                       the shared credentials file of AWS tools
//	gs://bucket/prefix     GS_ACCESS_KEY_ID, GS_SECRET_ACCESS_KEY (HMAC keys)
//
// s3 and gs take ?endpoint=https://host and ?region=name.
func Open(rawURL string, c Config) (Remote, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", withoutURL(err))
	}
	if u.User != nil {
		return nil, fmt.Errorf("remote: %s URL contains a user or password: set keys in the environment", u.Scheme)
	}
	if u.Fragment != "" {
		return nil, fmt.Errorf("remote: %s: the part after # has no meaning", rawURL)
	}
	switch u.Scheme {
	case "file":
		if u.Host != "" || !strings.HasPrefix(u.Path, "/") || u.RawQuery != "" {
			return nil, fmt.Errorf("remote: %s: want file:///absolute/path", rawURL)
		}
		return &fileRemote{filepath.Clean(filepath.FromSlash(u.Path))}, nil
	case "s3", "gs":
	case "":
		return nil, fmt.Errorf("remote: %q has no scheme: want file:///path, s3://bucket/prefix or gs://bucket/prefix", rawURL)
	default:
		return nil, fmt.Errorf("remote: scheme %q is unknown: want file:///path, s3://bucket/prefix or gs://bucket/prefix", u.Scheme)
	}
	if u.Host == "" || u.Port() != "" {
		return nil, fmt.Errorf("remote: %s: want %s://bucket/prefix", rawURL, u.Scheme)
	}
	for key, values := range u.Query() {
		switch {
		case len(values) != 1:
			return nil, fmt.Errorf("remote: %s: %s is given %d times", rawURL, key, len(values))
		case key == "endpoint":
			c.Endpoint = values[0]
		case key == "region":
			c.Region = values[0]
		default:
			return nil, fmt.Errorf("remote: %s: option %q is unknown: want endpoint or region", rawURL, key)
		}
	}
	if u.Scheme == "gs" {
		c.Endpoint = cmp.Or(c.Endpoint, os.Getenv("GS_ENDPOINT_URL"), "https://storage.googleapis.com")
		c.Region = cmp.Or(c.Region, "auto")
		c.AccessKey = cmp.Or(c.AccessKey, os.Getenv("GS_ACCESS_KEY_ID"))
		c.SecretKey = cmp.Or(c.SecretKey, os.Getenv("GS_SECRET_ACCESS_KEY"))
		if c.AccessKey == "" || c.SecretKey == "" {
			return nil, &PermanentError{fmt.Errorf("remote: no keys for %s", rawURL), "set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY to an HMAC key of a service account"}
		}
	} else {
		c.Endpoint = cmp.Or(c.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
		c.Region = cmp.Or(c.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	}
	return newS3(u.Scheme, u.Host, strings.Trim(u.Path, "/"), c)
}

// withoutURL drops the URL from the message of a failed parse: it may contain a secret.
func withoutURL(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// parseEndpoint splits an endpoint URL.
func parseEndpoint(endpoint string) (host string, secure bool, err error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" && u.Path != "/" || u.User != nil {
		return "", false, fmt.Errorf("remote: endpoint %q: want https://host[:port], or http:// for one without encryption", endpoint)
	}
	return u.Host, u.Scheme == "https", nil
}
