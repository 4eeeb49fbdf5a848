package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/snug-ml/snug/internal/strictjson"
)

// maxInfo bounds the description of a repository that is read, in bytes.
const maxInfo = 128 << 20

// info is the hub's description of a repository.
type info struct {
	Commit string `json:"sha"`
	Files  []struct {
		Name string `json:"rfilename"`
		// Size is present if it was requested and the hub knows it.
		Size int64 `json:"size"`
	} `json:"siblings"`
}

// info asks the hub for the files of a repository.
func (c *Client) info(ctx context.Context, r Ref) (*info, error) {
	u, err := c.address("api", string(r.Kind), r.ID, "revision", r.Revision)
	if err != nil {
		return nil, err
	}
	u.RawQuery = "blobs=true"
	in := &info{}
	err = c.retry(ctx, "ask for "+r.String(), func() (bool, error) {
		resp, err := c.send(ctx, http.MethodGet, u, nil)
		if err != nil {
			return false, err
		}
		defer func() { _ = resp.Body.Close() }() // was read to its end, or is given up
		if err := c.check(resp); err != nil {
			return false, err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxInfo+1))
		if err != nil {
			return false, err
		}
		if len(text) > maxInfo {
			return false, fmt.Errorf("the list of files has more than %d bytes", maxInfo)
		}
		*in = info{}
		if err := json.Unmarshal(text, in); err != nil {
			return false, fmt.Errorf("%s is not a hub: it does not answer like the hub's API: %w", c.Endpoint, strictjson.Explain(err))
		}
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	if !commit.MatchString(in.Commit) {
		return nil, fmt.Errorf("%s: the hub gives %q as its commit", r, in.Commit)
	}
	return in, nil
}

// address is a URL below the endpoint. A part's slashes are kept, except in a revision,
// which the hub requires escaped.
func (c *Client) address(parts ...string) (*url.URL, error) {
	u, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	var escaped []string
	for i, p := range parts {
		if i > 0 && (parts[i-1] == "revision" || parts[i-1] == "resolve") {
			escaped = append(escaped, url.PathEscape(p))
			continue
		}
		for s := range strings.SplitSeq(p, "/") {
			escaped = append(escaped, url.PathEscape(s))
		}
	}
	return u.Parse(strings.TrimSuffix(u.EscapedPath(), "/") + "/" + strings.Join(escaped, "/"))
}

// fileAddress is where a file of a repository is fetched.
func (c *Client) fileAddress(r Ref, commit, name string) (*url.URL, error) {
	if r.Kind == Dataset {
		return c.address(string(r.Kind), r.ID, "resolve", commit, name)
	}
	return c.address(r.ID, "resolve", commit, name)
}

// about is the hub's description of one file.
type about struct {
	etag string
	size int64 // -1 for unknown
}

var errNoTag = errors.New("the hub sent no ETag, the name of a file's content in the cache")

// about asks the hub for the hash and the size of a file.
func (c *Client) about(ctx context.Context, u *url.URL) (a about, err error) {
	err = c.retry(ctx, "ask for "+bare(u), func() (bool, error) {
		resp, err := c.send(ctx, http.MethodHead, u, nil)
		if err != nil {
			return false, err
		}
		if err := errors.Join(c.check(resp), resp.Body.Close()); err != nil {
			return false, err
		}
		a = about{resp.etag, resp.size}
		if a.etag == "" {
			return false, errNoTag
		}
		return false, nil
	})
	return a, err
}
