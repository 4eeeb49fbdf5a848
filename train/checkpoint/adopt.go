package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// Accepts reports whether a checkpoint of a run may be brought into the folder: an
// error names the other run that it belongs to.
func (s *Store) Accepts(run string) error {
	list, err := List(s.Dir())
	if err != nil {
		return err
	}
	if ids := runsOf(list); run == "" || len(ids) == 0 || OwnerOf(list) == run {
		return nil
	}
	return fmt.Errorf("run folder %s has checkpoints of run %s, this one belongs to run %s: use another folder", s.home.Path(), short(s.home.ID()), short(run))
}

// Bring opens a folder in which a checkpoint is brought under its name with a
// suffix (step-00000042.pull), making it if need be.
func (s *Store) Bring(name string) (*os.Root, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if st, err := s.root.Lstat(name); err == nil && !st.IsDir() {
		return nil, fmt.Errorf("%s is not a folder: remove it", filepath.Join(s.Dir(), name))
	}
	if err := s.root.Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, durable.Named(s.root, err)
	}
	root, err := s.root.OpenRoot(name)
	return root, durable.Named(s.root, err)
}

// Adopt puts a complete checkpoint that was brought into the folder of
// checkpoints under its name with a suffix (step-00000042.pull) in its place:
// it verifies it, makes it durable and renames it. A damaged or bad one there is
// replaced; a good one is not, and a bad one is not moved in.
func (s *Store) Adopt(name string) (path string, err error) {
	dir := filepath.Join(s.Dir(), name)
	path = strings.TrimSuffix(dir, filepath.Ext(dir))
	update, ok := ParseName(filepath.Base(path))
	if !ok || path == dir || name != filepath.Base(name) {
		return "", fmt.Errorf("checkpoint: %s is not named like a checkpoint with a suffix", dir)
	}
	report, err := Verify(dir)
	if err != nil {
		return "", err
	}
	if err := report.Err(); err != nil {
		return "", err
	}
	if err := s.mayWrite(update); err != nil {
		return "", err
	}
	if there(path) {
		return "", fmt.Errorf("checkpoint: %s already exists and is intact", path)
	}
	for _, f := range append(report.Manifest.Files, FileSum{Name: ManifestFile}) {
		if err := syncFile(s.root, filepath.Join(name, f.Name)); err != nil {
			return "", durable.Named(s.root, err)
		}
	}
	if err := s.fsys.SyncDir(dir); err != nil {
		return "", err
	}
	if err := replace(s.fsys, dir, path); err != nil {
		return "", err
	}
	if run := report.Manifest.Run; run != "" { // the folder is its run's from now on
		return path, s.home.Begin(run)
	}
	return path, nil
}

func syncFile(root *os.Root, name string) error {
	f, err := regular.OpenIn(root, name, os.O_RDWR)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
