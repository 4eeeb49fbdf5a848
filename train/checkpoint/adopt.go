package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Adopt puts a complete checkpoint that was brought into the folder of
// checkpoints under its name with a suffix (step-00000042.pull) in its place:
// it verifies it, makes it durable and renames it. A damaged or bad one that has
// the place gives way; a good one does not, and a bad one is not put there.
func Adopt(dir string) (path string, err error) {
	path = strings.TrimSuffix(dir, filepath.Ext(dir))
	if _, ok := ParseName(filepath.Base(path)); !ok || path == dir {
		return "", fmt.Errorf("checkpoint: %s is not named like a checkpoint with a suffix", dir)
	}
	report, err := Verify(dir)
	if err != nil {
		return "", err
	}
	if err := report.Err(); err != nil {
		return "", err
	}
	if there(path) {
		return "", fmt.Errorf("checkpoint: %s is there already and whole", path)
	}
	for _, f := range append(report.Manifest.Files, FileSum{Name: ManifestFile}) {
		if err := syncFile(filepath.Join(dir, f.Name)); err != nil {
			return "", err
		}
	}
	fsys := osFS{}
	if err := fsys.SyncDir(dir); err != nil {
		return "", err
	}
	return path, replace(fsys, dir, path)
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
