package regular

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files that an index names are looked for in its folder and nowhere else.
func TestFolder(t *testing.T) {
	work := t.TempDir()
	put := func(name string) string {
		t.Helper()
		path := filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to, name string) {
		t.Helper()
		path := filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
			t.Skip(err)
		}
	}
	secret := put("secret")
	put("data/a.png")
	put("data/deep/b.png")
	put("data-beside/c.png")
	link("a.png", "data/inside.png")
	link("../a.png", "data/deep/up.png")
	link(secret, "data/out.png")
	link("../secret", "data/relative.png")
	link(work, "data/folder")
	link("../data-beside", "data/beside")
	link("out.png", "data/twice.png")
	link("nowhere", "data/dangling.png")
	link("data", "alias")
	for _, dir := range []string{"data", "alias"} {
		f, err := NewFolder(filepath.Join(work, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a.png", "deep/b.png", "inside.png", "deep/up.png", "deep/../a.png"} {
			if path, err := f.Path(name); err != nil || path != filepath.Join(work, dir, filepath.FromSlash(name)) {
				t.Errorf("%s: %s, %v", name, path, err)
			}
		}
		for _, name := range []string{
			"../secret", secret, "", ".", "..", "deep/../../secret", "a\x00.png", "out.png", "relative.png", "folder/secret", "beside/c.png", "twice.png",
		} {
			if path, err := f.Path(name); !errors.Is(err, ErrOutside) || !strings.Contains(err.Error(), filepath.Join(work, dir)) {
				t.Errorf("%q: %s, %v", name, path, err)
			}
		}
		for _, name := range []string{"none.png", "dangling.png"} {
			if _, err := f.Path(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// In the cache of the hub every file is a link to a blob of its repository.
	snapshot := "cache/datasets--x/snapshots/0123456789012345678901234567890123456789/images"
	put("cache/datasets--x/blobs/1")
	put("cache/datasets--y/blobs/2")
	link("../../../blobs/1", snapshot+"/own.png")
	link("../../../../datasets--y/blobs/2", snapshot+"/other.png")
	f, err := NewFolder(filepath.Join(work, snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Path("own.png"); err != nil {
		t.Error(err)
	}
	if _, err := f.Path("other.png"); !errors.Is(err, ErrOutside) {
		t.Errorf("of another repository: %v", err)
	}
	if _, err := NewFolder(filepath.Join(work, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
