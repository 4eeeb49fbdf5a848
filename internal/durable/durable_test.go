package durable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/internal/regular"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, want := range []string{"a long first text", "short"} {
		if err := Replace(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("%v %v, want the file alone", list, err)
	}
	if err := Replace(filepath.Join(dir, "nowhere", "file"), nil); !os.IsNotExist(err) {
		t.Errorf("in a folder that does not exist: %v", err)
	}
}

// TestReplaceNothingElse: a new file takes the place of a file or of a link to one, never that of a folder or a
// device. Root could replace /dev/null.
func TestReplaceNothingElse(t *testing.T) {
	dir := t.TempDir()
	file, folder, link, device := filepath.Join(dir, "file"), filepath.Join(dir, "folder"), filepath.Join(dir, "link"), filepath.Join(dir, "device")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o666), os.Mkdir(folder, 0o777), os.Symlink(file, link), os.Symlink(os.DevNull, device)); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{folder: "a folder", device: "a device", os.DevNull: "a device"} {
		if err := Replace(path, []byte("new")); !errors.Is(err, regular.ErrKind) || !strings.Contains(err.Error(), kind) {
			t.Errorf("%s: %v, want a refusal", path, err)
		}
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Fatalf("%s was replaced: %v", os.DevNull, err)
	}
	if err := Replace(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "old" {
		t.Errorf("the target of the link has %q, %v", text, err)
	}
}
