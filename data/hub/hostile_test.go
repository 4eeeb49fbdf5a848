package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Whatever a hostile hub calls its files, its commit and their contents, nothing happens
// outside the repository's folder in the cache.
func TestHostileNames(t *testing.T) {
	names := []string{
		"../x", "a/../../x", "/x", "//x", `a\..\x`, "a/./x", "a//x", "x/", "", ".", "..", "a\x00b", "a\nb",
		strings.Repeat("n", 300), strings.Repeat("d/", 600) + "x",
	}
	for _, name := range names {
		s := newServer(t, map[string]file{})
		s.hubFault = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/api/") {
				_ = json.NewEncoder(w).Encode(map[string]any{"sha": theCommit, "siblings": []map[string]string{{"rfilename": name}}})
				return true
			}
			w.Header().Set("ETag", `"abc"`)
			_, _ = w.Write([]byte("evil"))
			return true
		}
		c := s.client(t)
		if _, err := c.Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "the file name ") {
			t.Errorf("%q: %v", name, err)
		}
		if found := leftovers(t, c.Cache, "*"); len(found) > 0 {
			t.Errorf("%q left %v", name, found)
		}
	}
	for _, commit := range []string{"", "../../../x", "main", strings.ToUpper(theCommit), theCommit + "/.."} {
		s := newServer(t, nil)
		s.hubFault = func(w http.ResponseWriter, _ *http.Request) bool {
			_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": []map[string]string{{"rfilename": "x"}}})
			return true
		}
		if _, err := s.client(t).Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "as its commit") {
			t.Errorf("commit %q: %v", commit, err)
		}
	}
	for _, tag := range []string{"../../evil", "/etc/passwd", "..", ".hidden", strings.Repeat("x", 4000), "a b"} {
		s := newServer(t, map[string]file{"x": {content: []byte("x")}})
		s.hubFault = func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/api/") {
				return false
			}
			w.Header().Set("X-Linked-Etag", `"`+tag+`"`)
			_, _ = w.Write([]byte("x"))
			return true
		}
		c := s.client(t)
		snap, err := c.Fetch(context.Background(), theRef, Options{})
		if err != nil {
			t.Errorf("tag %q: %v", tag, err)
			continue
		}
		expect(t, s, snap)
		blobs, err := os.ReadDir(filepath.Join(c.Cache, "models--owner--name", "blobs"))
		if err != nil || len(blobs) != 1 || !sha256Tag.MatchString(blobs[0].Name()) {
			t.Errorf("tag %q: blobs are %v (%v)", tag, blobs, err)
		}
	}
}

// A link that someone put into the cache does not lead out of it either.
func TestPlantedLinks(t *testing.T) {
	for _, link := range []string{"snapshots", "blobs", "refs", "snapshots/" + theCommit} {
		s := newServer(t, standard())
		c := s.client(t)
		outside := t.TempDir()
		at := filepath.Join(c.Cache, "models--owner--name", filepath.FromSlash(link))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, at); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Fetch(context.Background(), theRef, Options{}); err == nil {
			t.Errorf("%s: fetched through a link out of the cache", link)
		}
		if found := leftovers(t, outside, "*"); len(found) > 0 {
			t.Errorf("%s: outside there is %v", link, found)
		}
	}
}

// A list so long that the hub may have cut it is not taken to be complete.
func TestLongLists(t *testing.T) {
	files := map[string]file{}
	for i := range completeList {
		files[fmt.Sprintf("data/%d.txt", i)] = file{content: []byte("x")}
	}
	s := newServer(t, files)
	if _, err := s.client(t).Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "may not list all of them") {
		t.Errorf("all of it: %v", err)
	}
	r := theRef
	r.Path = "data/77.txt"
	if snap, err := s.client(t).Fetch(context.Background(), r, Options{}); err != nil || len(snap.Files) != 1 {
		t.Errorf("one file: %v, %v", snap, err)
	}
}

// Answers that are not a hub's, or too large.
func TestOddAnswers(t *testing.T) {
	for _, c := range []struct{ name, answer, want string }{
		{"a page", "<html>", "is not a hub"},
		{"a list", "[1]", "is not a hub"},
		{"nothing", "", "is not a hub"},
		{"another object", "{}", "as its commit"},
		{"numbers for names", `{"sha": 1}`, "is not a hub"},
	} {
		s := newServer(t, nil)
		s.hubFault = func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(c.answer))
			return true
		}
		_, err := s.client(t).Fetch(context.Background(), theRef, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	s := newServer(t, map[string]file{"x": {content: []byte("x")}})
	s.hubFault = func(_ http.ResponseWriter, r *http.Request) bool {
		return !strings.HasPrefix(r.URL.Path, "/api/") // no ETag, no content
	}
	if _, err := s.client(t).Fetch(context.Background(), theRef, Options{}); err == nil || !strings.Contains(err.Error(), "sent no ETag") {
		t.Errorf("without a tag: %v", err)
	}
}

func TestParseURL(t *testing.T) {
	for url, want := range map[string]Ref{
		"hf://gpt2":                           {Model, "gpt2", "main", ""},
		"hf://owner/name":                     {Model, "owner/name", "main", ""},
		"hf://models/owner/name/":             {Model, "owner/name", "main", ""},
		"hf://owner/name/config.json":         {Model, "owner/name", "main", "config.json"},
		"hf://gpt2@main/config.json":          {Model, "gpt2", "main", "config.json"},
		"hf://datasets/owner/name@v1.0/a/b":   {Dataset, "owner/name", "v1.0", "a/b"},
		"hf://datasets/o/n@refs/pr/12/x":      {Dataset, "o/n", "refs/pr/12", "x"},
		"hf://datasets/o/n@refs/convert/p":    {Dataset, "o/n", "refs/convert/p", ""},
		"hf://o/n@feature%2Fnew/x":            {Model, "o/n", "feature/new", "x"},
		"hf://datasets/o/n/**/*.parquet":      {Dataset, "o/n", "main", "**/*.parquet"},
		"hf://datasets/o/n/data/train-*.json": {Dataset, "o/n", "main", "data/train-*.json"},
	} {
		got, err := ParseURL(url)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", url, got, err, want)
			continue
		}
		if again, err := ParseURL(got.String()); err != nil || again != got {
			t.Errorf("%s is written %s, which is %+v, %v", url, got, again, err)
		}
	}
	for _, url := range []string{
		"", "hf://", "http://x/y", "hf:/o/n", "hf://o/n@", "hf://o/n@..", "hf://o/n@a%2F..%2Fb", "hf://o/n@%zz", "hf://../n", "hf://o/..",
		"hf://o--p/n", "hf://o/n.git", "hf://o/n/../../x", "hf://o/n//x", "hf://o/n/[", "hf://o/n/a\\b", "hf://spaces/o/n", "hf://o/a b",
		"hf://datasets/", "hf://a/b/c@main", "hf://-o/n", "hf://.o/n",
	} {
		if got, err := ParseURL(url); err == nil {
			t.Errorf("%q: got %+v, want an error", url, got)
		}
	}
}

func TestFromEnv(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env                    map[string]string
		endpoint, token, cache string
		offline                bool
	}{
		{map[string]string{"HOME": "/h"}, DefaultEndpoint, "", "/h/.cache/huggingface/hub", false},
		{map[string]string{"HOME": "/h", "XDG_CACHE_HOME": "/c"}, DefaultEndpoint, "", "/c/huggingface/hub", false},
		{map[string]string{"HF_HOME": home}, DefaultEndpoint, "hf_file", home + "/hub", false},
		{map[string]string{"HF_HOME": home, "HF_TOKEN": " hf_env\n", "HF_HUB_CACHE": "/c"}, DefaultEndpoint, "hf_env", "/c", false},
		{map[string]string{"HF_HOME": home, "HF_TOKEN_PATH": home + "/none", "HF_HUB_OFFLINE": "1"}, DefaultEndpoint, "", home + "/hub", true},
		{map[string]string{"HF_HOME": "/h", "HF_ENDPOINT": "http://localhost:1/hub/", "HF_HUB_OFFLINE": "true"}, "http://localhost:1/hub/", "", "/h/hub", true},
		{map[string]string{"HF_HOME": "/h", "HF_HUB_OFFLINE": "0"}, DefaultEndpoint, "", "/h/hub", false},
	} {
		got, err := FromEnv(func(name string) string { return c.env[name] })
		if err != nil {
			t.Errorf("%v: %v", c.env, err)
			continue
		}
		if got.Endpoint != c.endpoint || got.Token != c.token || filepath.ToSlash(got.Cache) != filepath.ToSlash(c.cache) || got.Offline != c.offline {
			t.Errorf("%v: got %+v", c.env, got)
		}
	}
	for _, env := range []map[string]string{
		{"HF_HOME": "/h", "HF_ENDPOINT": "huggingface.co"}, {"HF_HOME": "/h", "HF_ENDPOINT": "ftp://x"},
		{"HF_HOME": "/h", "HF_ENDPOINT": "https://user@x"}, {"HF_HOME": "/h", "HF_TOKEN": "a\nb"},
	} {
		if got, err := FromEnv(func(name string) string { return env[name] }); err == nil {
			t.Errorf("%v: got %+v, want an error", env, got)
		}
	}
}

// A hub below a path, and a revision with a slash.
func TestAddress(t *testing.T) {
	c := &Client{Endpoint: "https://host/below/"}
	u, err := c.address("api", "datasets", "o/n", "revision", "refs/pr/1")
	if err != nil || u.String() != "https://host/below/api/datasets/o/n/revision/refs%2Fpr%2F1" {
		t.Errorf("got %v, %v", u, err)
	}
	u, err = c.fileAddress(Ref{Kind: Dataset, ID: "o/n"}, theCommit, "a b/100%?#.txt")
	if err != nil || u.String() != "https://host/below/datasets/o/n/resolve/"+theCommit+"/a%20b/100%25%3F%23.txt" {
		t.Errorf("got %v, %v", u, err)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, url := range []string{"hf://gpt2", "hf://datasets/o/n@refs/pr/1/a/**/b?.txt", "hf://o/n@a%2Fb/x"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		r, err := ParseURL(url)
		if err != nil {
			return
		}
		again, err := ParseURL(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %+v, written %q, which is %+v (%v)", url, r, r.String(), again, err)
		}
		for _, p := range []string{r.folder(), r.Revision, r.Path} {
			if slices.Contains(strings.Split(filepath.ToSlash(p), "/"), "..") {
				t.Fatalf("%q leads out by %q", url, p)
			}
		}
	})
}
