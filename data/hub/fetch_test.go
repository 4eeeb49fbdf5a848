package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var theRef = Ref{Kind: Model, ID: "owner/name", Revision: "main"}

// Everything is fetched once, in the layout of huggingface_hub.
func TestFetch(t *testing.T) {
	for _, kind := range []Kind{Model, Dataset} {
		t.Run(string(kind), func(t *testing.T) {
			s := newServer(t, standard())
			c := s.client(t)
			var done, total int64
			c.Progress = func(d, n int64) { done, total = d, n }
			r := Ref{Kind: kind, ID: "owner/name", Revision: "main"}
			snap, err := c.Fetch(context.Background(), r, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"config.json", "data/a b%.txt", "data/deep/empty", "data/deep/part.parquet", "data/other/part.parquet", "model.safetensors"}
			if !slices.Equal(snap.Files, want) || snap.Commit != theCommit {
				t.Errorf("files %v at %s", snap.Files, snap.Commit)
			}
			expect(t, s, snap)
			size := int64(0)
			for _, f := range s.files {
				size += int64(len(f.content))
			}
			if done != size || total != size {
				t.Errorf("progress ended at %d of %d, want %d", done, total, size)
			}
			top := filepath.Join(c.Cache, string(kind)+"--owner--name")
			if text, err := os.ReadFile(filepath.Join(top, "refs", "main")); err != nil || string(text) != theCommit {
				t.Errorf("refs/main is %q (%v)", text, err)
			}
			for _, name := range want {
				f := s.files[name]
				target, err := os.Readlink(filepath.Join(top, "snapshots", theCommit, filepath.FromSlash(name)))
				if up := strings.Repeat("../", 2+strings.Count(name, "/")) + "blobs/"; err != nil || target != up+f.tag() {
					t.Errorf("%s points to %q (%v), want blob %s", name, target, err, f.tag())
				}
			}
			if rest := append(leftovers(t, c.Cache, "*.tmp"), leftovers(t, c.Cache, "*.incomplete")...); len(rest) > 0 {
				t.Errorf("left behind: %v", rest)
			}
			if len(s.leaked) > 0 || len(s.unsigned) > 0 {
				t.Errorf("the token went astray: to the network in %v, not to the hub in %v", s.leaked, s.unsigned)
			}
			s.take()
			again, err := c.Fetch(context.Background(), r, Options{})
			if err != nil || !slices.Equal(again.Files, snap.Files) {
				t.Fatalf("once more: %v, %v", again, err)
			}
			for _, req := range s.take() {
				if !strings.HasPrefix(req, "HEAD ") && !strings.HasPrefix(req, "GET /api/") {
					t.Errorf("fetched twice: %s", req)
				}
			}
		})
	}
}

func TestSelection(t *testing.T) {
	s := newServer(t, standard())
	for _, c := range []struct {
		path string
		only func(string) bool
		want []string
	}{
		{"config.json", nil, []string{"config.json"}},
		{"data/deep", nil, []string{"data/deep/empty", "data/deep/part.parquet"}},
		{"data/*/*.parquet", nil, []string{"data/deep/part.parquet", "data/other/part.parquet"}},
		{"**/*.parquet", nil, []string{"data/deep/part.parquet", "data/other/part.parquet"}},
		{"data/**", func(name string) bool { return !strings.HasSuffix(name, ".parquet") }, []string{"data/a b%.txt", "data/deep/empty"}},
	} {
		r := theRef
		r.Path = c.path
		snap, err := s.client(t).Fetch(context.Background(), r, Options{Only: c.only})
		if err != nil || !slices.Equal(snap.Files, c.want) {
			t.Errorf("%s: got %v, %v; want %v", c.path, snap, err, c.want)
		}
	}
	r := theRef
	r.Path = "*.bin"
	if _, err := s.client(t).Fetch(context.Background(), r, Options{}); err == nil || !strings.Contains(err.Error(), "none of the repository's files matches; it has ") {
		t.Errorf("nothing selected: %v", err)
	}
	if _, err := s.client(t).Fetch(context.Background(), theRef, Options{MaxBytes: 1000}); err == nil || !strings.Contains(err.Error(), "more than the 1000 allowed") {
		t.Errorf("too much selected: %v", err)
	}
}

// However often the connection breaks, each byte is sent once.
func TestBrokenConnections(t *testing.T) {
	s := newServer(t, standard())
	rng := rand.New(rand.NewPCG(1, 2))
	breaks := 0
	s.cdnFault = func(w http.ResponseWriter, r *http.Request) bool {
		if breaks++; breaks <= 25 {
			s.breakAfter(w, r, rng.IntN(12_000)+1)
		}
		return false
	}
	c := s.client(t)
	c.Attempts = 3 // fewer than the breaks: a download that makes progress is not abandoned
	r := theRef
	r.Path = "model.safetensors"
	arrived, last := int64(0), int64(0)
	c.Progress = func(d, _ int64) {
		if d > last {
			arrived += d - last
		}
		last = d
	}
	snap, err := c.Fetch(context.Background(), r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s, snap)
	if arrived != 300_000 {
		t.Errorf("%d bytes arrived for 300000", arrived)
	}
	ranged := 0
	for _, req := range s.take() {
		if strings.HasPrefix(req, "GET /cdn/") && strings.Contains(req, "bytes=") {
			ranged++
		}
	}
	if ranged < 25 {
		t.Errorf("only %d requests went on where the last one broke", ranged)
	}
}

// A second process continues where a first was stopped, whatever state it left.
func TestLeftovers(t *testing.T) {
	model := standard()["model.safetensors"]
	spoiled := slices.Clone(model.content[:100_000])
	spoiled[77]++
	for _, c := range []struct {
		name     string
		left     []byte
		from     string
		requests int
	}{
		{"a part", model.content[:100_000], "bytes=100000-", 1},
		{"everything", model.content, "", 0},
		{"too much", append(slices.Clone(model.content), 1, 2, 3), "", 1},
		{"a spoiled part", spoiled, "bytes=100000-", 2},
		{"nothing", nil, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, standard())
			cl := s.client(t)
			blobs := filepath.Join(cl.Cache, "models--owner--name", "blobs")
			if err := os.MkdirAll(blobs, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(blobs, model.tag()+".incomplete"), c.left, 0o644); err != nil {
				t.Fatal(err)
			}
			r := theRef
			r.Path = "model.safetensors"
			snap, err := cl.Fetch(context.Background(), r, Options{})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, s, snap)
			var gets []string
			for _, req := range s.take() {
				if rest, ok := strings.CutPrefix(req, "GET /cdn/model.safetensors"); ok {
					gets = append(gets, strings.TrimSpace(rest))
				}
			}
			if len(gets) != c.requests || c.requests > 0 && gets[0] != c.from {
				t.Errorf("requests %q, want %d, the first with range %q", gets, c.requests, c.from)
			}
		})
	}
}

// A blob of the wrong size in the cache is fetched again.
func TestTornBlob(t *testing.T) {
	s := newServer(t, standard())
	c := s.client(t)
	r := theRef
	r.Path = "model.safetensors"
	snap, err := c.Fetch(context.Background(), r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(snap.Paths()[0], 5000); err != nil {
		t.Fatal(err)
	}
	if snap, err = c.Fetch(context.Background(), r, Options{}); err != nil {
		t.Fatal(err)
	}
	expect(t, s, snap)
}

// Persistent damage is an error with details; nothing of it gets into the cache.
func TestWrongContent(t *testing.T) {
	write := func(w http.ResponseWriter, x []byte) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(x)))
		_, _ = w.Write(x)
		return true
	}
	for _, c := range []struct {
		name  string
		fault func(s *server, w http.ResponseWriter, r *http.Request) bool
		want  string
	}{
		{"other bytes", func(s *server, w http.ResponseWriter, r *http.Request) bool {
			x := slices.Clone(s.content(r))
			x[123] ^= 1
			return write(w, x)
		}, "the content has the hash "},
		{"too few bytes", func(s *server, w http.ResponseWriter, r *http.Request) bool {
			return write(w, s.content(r)[:1000])
		}, "the connection ended after 1000 of 300000 bytes"},
		{"too many bytes", func(s *server, w http.ResponseWriter, r *http.Request) bool {
			return write(w, append(slices.Clone(s.content(r)), 0))
		}, "more than the 300000 bytes that the hub announced"},
		{"a part of something else", func(_ *server, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Range", "bytes 5-9/300000")
			w.WriteHeader(http.StatusPartialContent)
			return true
		}, `asked for bytes from 0, got "bytes 5-9/300000"`},
		{"a page instead", func(_ *server, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusNoContent)
			return true
		}, "unexpected status 204"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, standard())
			s.cdnFault = func(w http.ResponseWriter, r *http.Request) bool { return c.fault(s, w, r) }
			cl := s.client(t)
			r := theRef
			r.Path = "model.safetensors"
			_, err := cl.Fetch(context.Background(), r, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if n := len(s.take()); n > 2+2*cl.attempts() {
				t.Errorf("%d requests were made", n)
			}
			if found := leftovers(t, cl.Cache, standard()["model.safetensors"].tag()); len(found) > 0 {
				t.Errorf("the cache has %v", found)
			}
			if found := leftovers(t, cl.Cache, "main"); len(found) > 0 {
				t.Errorf("the branch is known though its files are not: %v", found)
			}
		})
	}
	// Small files have git's hash.
	s := newServer(t, standard())
	s.hubFault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "config.json") {
			w.Header().Set("ETag", `"`+s.files["config.json"].tag()+`"`)
			return write(w, []byte(`{"model_type": "gpt3"}`))
		}
		return false
	}
	r := theRef
	r.Path = "config.json"
	if _, err := s.client(t).Fetch(context.Background(), r, Options{}); err == nil || !strings.Contains(err.Error(), "the content has the hash ") {
		t.Errorf("a small file with other bytes: %v", err)
	}
}

// Any mixture of faults ends with the right content.
func TestFaultsMixed(t *testing.T) {
	for seed := range uint64(8) {
		s := newServer(t, standard())
		rng := rand.New(rand.NewPCG(seed, 0))
		status := func(w http.ResponseWriter) bool {
			switch rng.IntN(5) {
			case 0:
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			case 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			case 2:
				panic(http.ErrAbortHandler)
			default:
				return false
			}
			return true
		}
		s.hubFault = func(w http.ResponseWriter, _ *http.Request) bool { return rng.IntN(3) == 0 && status(w) }
		s.cdnFault = func(w http.ResponseWriter, r *http.Request) bool {
			switch content := s.content(r); rng.IntN(6) {
			case 0:
				s.breakAfter(w, r, rng.IntN(len(content)))
			case 1: // ranges are not understood
				_, _ = w.Write(content)
				return true
			case 2:
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			case 3:
				return status(w)
			}
			return false
		}
		c := s.client(t)
		c.Log = nil
		c.Attempts = 30
		snap, err := c.Fetch(context.Background(), theRef, Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		expect(t, s, snap)
		if len(s.leaked) > 0 {
			t.Errorf("seed %d: the token leaked in %v", seed, s.leaked)
		}
	}
}

// Clients that request the same at the same time fetch it once.
func TestTogether(t *testing.T) {
	s := newServer(t, standard())
	one := s.client(t)
	var wg sync.WaitGroup
	for range 3 {
		c := *one
		wg.Go(func() {
			snap, err := c.Fetch(context.Background(), theRef, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			expect(t, s, snap)
		})
	}
	wg.Wait()
	gets := map[string]int{}
	for _, req := range s.take() {
		if strings.HasPrefix(req, "GET /cdn/") {
			gets[req]++
		}
	}
	for req, n := range gets {
		if n > 1 {
			t.Errorf("%s: %d times", req, n)
		}
	}
}

// A canceled download returns at once, and continues later.
func TestCancel(t *testing.T) {
	s := newServer(t, standard())
	c := s.client(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("stopped by the user")
	c.Progress = func(done, _ int64) {
		if done >= 50_000 {
			cancel(stop)
		}
	}
	r := theRef
	r.Path = "model.safetensors"
	if _, err := c.Fetch(ctx, r, Options{}); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	c.Progress = nil
	s.take()
	snap, err := c.Fetch(context.Background(), r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s, snap)
	last := s.take()
	if !strings.Contains(last[len(last)-1], "bytes=") {
		t.Errorf("began anew: %v", last)
	}
}

func TestSilence(t *testing.T) {
	s := newServer(t, standard())
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	stalls := 0
	s.cdnFault = func(w http.ResponseWriter, r *http.Request) bool {
		if stalls++; stalls > 1 {
			return false
		}
		w.Header().Set("Content-Length", "300000")
		_, _ = w.Write(s.content(r)[:5000])
		_ = http.NewResponseController(w).Flush()
		s.mu.Unlock() // the others continue while this one hangs
		defer s.mu.Lock()
		select {
		case <-r.Context().Done():
		case <-gone:
		}
		return true
	}
	c := s.client(t)
	c.Silence = 100 * time.Millisecond
	r := theRef
	r.Path = "model.safetensors"
	began := time.Now()
	snap, err := c.Fetch(context.Background(), r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s, snap)
	if took := time.Since(began); took < c.Silence {
		t.Errorf("took %v with a server silent for good after 5000 bytes", took)
	}
}

func TestOffline(t *testing.T) {
	s := newServer(t, standard())
	c := s.client(t)
	c.Offline = true
	r := theRef
	r.Path = "data/deep"
	missing := func(what string) {
		t.Helper()
		if _, err := c.Fetch(context.Background(), r, Options{}); err == nil || !strings.Contains(err.Error(), what+" is not in the cache") {
			t.Errorf("got %v, want that %s is missing", err, what)
		}
	}
	missing("the repository")
	c.Offline = false
	if _, err := c.Fetch(context.Background(), r, Options{}); err != nil {
		t.Fatal(err)
	}
	s.take()
	c.Offline = true
	snap, err := c.Fetch(context.Background(), r, Options{})
	if err != nil || !slices.Equal(snap.Files, []string{"data/deep/empty", "data/deep/part.parquet"}) {
		t.Fatalf("got %v, %v", snap, err)
	}
	expect(t, s, snap)
	byCommit := r
	byCommit.Revision = theCommit
	if snap, err := c.Fetch(context.Background(), byCommit, Options{}); err != nil || len(snap.Files) != 2 {
		t.Errorf("by commit: %v, %v", snap, err)
	}
	r.Revision = "dev"
	missing("the revision dev")
	r.Revision, r.Path = "main", "config.json"
	missing("a requested file")
	if reqs := s.take(); len(reqs) > 0 {
		t.Errorf("requests while offline: %v", reqs)
	}
	// When the hub is gone, the error says that the cache has the files.
	s.hub.Close()
	c.Offline, c.Attempts, r.Path = false, 2, "data/deep"
	if _, err := c.Fetch(context.Background(), r, Options{}); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE=1 uses those") {
		t.Errorf("without a hub: %v", err)
	}
}
