package hub

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/regular"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// Client fetches from one hub into one cache. Its fields are not changed while
// it is used; its methods may be called from several goroutines.
type Client struct {
	// Endpoint is the hub's address.
	Endpoint string
	// Token, when set, is sent to the endpoint (and nowhere else).
	Token string
	// Cache is the folder that repositories are kept in.
	Cache string
	// Offline allows no requests: only what is in the cache is found.
	Offline bool
	// Log, when set, gets a line for everything that is being done.
	Log func(format string, args ...any)
	// Progress, when set, is called for every piece that arrives: bytes there so
	// far and in all of the files being fetched. Calls do not overlap.
	Progress func(done, total int64)

	// Attempts bounds the tries of a request without progress; 0 is 6.
	Attempts int
	// Pause is the first pause between them, which doubles; 0 is half a second.
	Pause time.Duration
	// Patience is how long a server may be silent, and the longest pause that it may
	// request; 0 means one and five minutes.
	Silence, Patience time.Duration
	// Transport carries the requests; nil is one with sensible time limits.
	Transport http.RoundTripper
}

// FromEnv returns a client as the environment describes it; getenv is os.Getenv.
func FromEnv(getenv func(string) string) (*Client, error) {
	c := &Client{Endpoint: DefaultEndpoint}
	if e := getenv("HF_ENDPOINT"); e != "" {
		c.Endpoint = e
	}
	if _, err := c.endpoint(); err != nil {
		return nil, fmt.Errorf("HF_ENDPOINT: %w", err)
	}
	home := getenv("HF_HOME")
	if home == "" {
		cache := getenv("XDG_CACHE_HOME")
		if cache == "" {
			user := getenv("HOME")
			if user == "" {
				var err error
				if user, err = os.UserHomeDir(); err != nil {
					return nil, fmt.Errorf("there is no home folder for the cache: set HF_HOME: %w", err)
				}
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	c.Cache = getenv("HF_HUB_CACHE")
	if c.Cache == "" {
		c.Cache = filepath.Join(home, "hub")
	}
	c.Offline = slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(getenv("HF_HUB_OFFLINE")))
	c.Token = strings.TrimSpace(getenv("HF_TOKEN"))
	if c.Token == "" {
		file := getenv("HF_TOKEN_PATH")
		if file == "" {
			file = filepath.Join(home, "token")
		}
		text, err := regular.Read(file, regular.Text)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("the token of the hub: %w", err)
		}
		c.Token = strings.TrimSpace(string(text))
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token of the hub has invalid characters: check HF_TOKEN")
	}
	return c, nil
}

// endpoint is the parsed address of the hub.
func (c *Client) endpoint() (*url.URL, error) {
	u, err := url.Parse(strings.TrimSuffix(c.Endpoint, "/"))
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the address of a hub: want one like %s", c.Endpoint, DefaultEndpoint)
	}
	return u, nil
}

func (c *Client) attempts() int           { return or(c.Attempts, 6) }
func (c *Client) pause() time.Duration    { return or(c.Pause, time.Second/2) }
func (c *Client) silence() time.Duration  { return or(c.Silence, time.Minute) }
func (c *Client) patience() time.Duration { return or(c.Patience, 5*time.Minute) }
func (c *Client) log(f string, args ...any) {
	if c.Log != nil {
		c.Log(f, args...)
	}
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// transport does not request compression: sizes and ranges are the file's.
func (c *Client) transport() http.RoundTripper {
	if c.Transport != nil {
		return c.Transport
	}
	return shared
}

var shared = &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
	TLSHandshakeTimeout:   15 * time.Second,
	ResponseHeaderTimeout: time.Minute,
	IdleConnTimeout:       time.Minute,
	MaxIdleConnsPerHost:   parallel,
	DisableCompression:    true,
	ForceAttemptHTTP2:     true,
}
