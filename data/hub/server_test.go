package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	theCommit = "0123456789abcdef0123456789abcdef01234567"
	theToken  = "hf_secret"
)

// file is a file of a repository; large ones are served by another host.
type file struct {
	content []byte
	large   bool
}

func (f file) tag() string {
	if f.large {
		sum := sha256.Sum256(f.content)
		return hex.EncodeToString(sum[:])
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(f.content), f.content))
	return hex.EncodeToString(sum[:])
}

// server is a hub and its content network, with faults.
type server struct {
	hub, cdn *httptest.Server
	mu       sync.Mutex
	files    map[string]file
	// hubFault and cdnFault answer a request instead of the server if they return
	// true. They are not called at the same time.
	hubFault, cdnFault func(w http.ResponseWriter, r *http.Request) bool
	// requests are "METHOD path range" of both, in order; a cdn's path begins
	// with /cdn.
	requests []string
	leaked   []string // requests that brought the token where it must not be
	unsigned []string // requests to the hub without it
}

func newServer(t *testing.T, files map[string]file) *server {
	t.Helper()
	s := &server{files: files}
	s.cdn = httptest.NewServer(http.HandlerFunc(s.serveContent))
	t.Cleanup(s.cdn.Close)
	s.hub = httptest.NewServer(http.HandlerFunc(s.serveHub))
	t.Cleanup(s.hub.Close)
	return s
}

func (s *server) note(r *http.Request) {
	s.requests = append(s.requests, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Range")))
}

func (s *server) serveHub(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(r)
	if r.Header.Get("Authorization") != "Bearer "+theToken {
		s.unsigned = append(s.unsigned, r.URL.Path)
	}
	if s.hubFault != nil && s.hubFault(w, r) {
		return
	}
	rest := strings.TrimPrefix(r.URL.Path, "/")
	if after, ok := strings.CutPrefix(rest, "api/"); ok {
		kind, rest, _ := strings.Cut(after, "/")
		if rest != "owner/name/revision/main" || kind != "models" && kind != "datasets" {
			s.refuse(w)
			return
		}
		type sibling struct {
			Name string `json:"rfilename"`
			Size int    `json:"size"`
		}
		var list []sibling
		for name, f := range s.files {
			list = append(list, sibling{name, len(f.content)})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"sha": theCommit, "siblings": list, "id": "owner/name"})
		return
	}
	rest = strings.TrimPrefix(rest, "datasets/")
	w.Header().Set("X-Repo-Commit", theCommit)
	rest = strings.Replace(rest, "/resolve/main/", "/resolve/"+theCommit+"/", 1)
	name, ok := strings.CutPrefix(rest, "owner/name/resolve/"+theCommit+"/")
	f, there := s.files[name]
	if !ok || !there {
		s.refuse(w)
		return
	}
	if f.large {
		w.Header().Set("X-Linked-Etag", `"`+f.tag()+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(f.content)))
		w.Header().Set("ETag", `"of-the-pointer"`)
		http.Redirect(w, r, s.cdn.URL+"/cdn/"+url.PathEscape(name)+"?signature=x", http.StatusFound)
		return
	}
	w.Header().Set("ETag", `W/"`+f.tag()+`"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(f.content)))
}

func (s *server) refuse(w http.ResponseWriter) {
	w.Header().Set("X-Error-Code", "EntryNotFound")
	w.Header().Set("X-Error-Message", "Entry not found")
	w.WriteHeader(http.StatusNotFound)
}

func (s *server) serveContent(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(r)
	if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
		s.leaked = append(s.leaked, r.URL.Path)
	}
	if s.cdnFault != nil && s.cdnFault(w, r) {
		return
	}
	w.Header().Set("ETag", `"of-the-network"`)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(s.content(r))))
}

// content returns what a request to the content network asks for.
func (s *server) content(r *http.Request) []byte {
	return s.files[strings.TrimPrefix(r.URL.Path, "/cdn/")].content
}

// breakAfter sends n bytes of what was requested, then cuts the connection.
func (s *server) breakAfter(w http.ResponseWriter, r *http.Request, n int) {
	from, content := 0, s.content(r)
	status := http.StatusOK
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)-from))
	w.WriteHeader(status)
	_, _ = w.Write(content[from:min(from+n, len(content))])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// client has a cache of its own and short timeouts.
func (s *server) client(t *testing.T) *Client {
	t.Helper()
	return &Client{
		Endpoint: s.hub.URL, Token: theToken, Cache: t.TempDir(), Pause: time.Millisecond,
		Log: func(format string, args ...any) { t.Logf(format, args...) },
	}
}

func (s *server) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.requests
	s.requests = nil
	return list
}

// bytes of a fixed stream, different for each seed.
func bytesOf(n int, seed byte) []byte {
	out := make([]byte, 0, n+32)
	block := sha256.Sum256([]byte{seed})
	for len(out) < n {
		out = append(out, block[:]...)
		block = sha256.Sum256(block[:])
	}
	return out[:n]
}

func standard() map[string]file {
	return map[string]file{
		"config.json":             {content: []byte(`{"model_type": "gpt2"}`)},
		"model.safetensors":       {content: bytesOf(300_000, 1), large: true},
		"data/a b%.txt":           {content: []byte("spaces and signs in a name")},
		"data/deep/part.parquet":  {content: bytesOf(70_000, 2), large: true},
		"data/deep/empty":         {},
		"data/other/part.parquet": {content: bytesOf(10, 3), large: true},
	}
}

// expect compares a snapshot's files with the server's.
func expect(t *testing.T, s *server, snap *Snapshot) {
	t.Helper()
	for i, path := range snap.Paths() {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if !slices.Equal(got, s.files[snap.Files[i]].content) {
			t.Errorf("%s holds %d bytes that are not the hub's", snap.Files[i], len(got))
		}
	}
}

// leftovers returns the files below dir that match a pattern.
func leftovers(t *testing.T, dir, pattern string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if ok, _ := filepath.Match(pattern, d.Name()); ok && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
