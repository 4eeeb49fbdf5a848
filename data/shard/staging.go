package shard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
)

// staging is a folder built next to its final place.
type staging struct {
	dir string // final place
	tmp string // while it is built
}

// newStaging makes an empty folder next to dir. dir must be absent, empty or a
// prepared folder. What an interrupted preparation of dir left is removed.
func newStaging(dir string) (*staging, error) {
	dir = filepath.Clean(dir)
	if err := replaceable(dir); err != nil {
		return nil, err
	}
	if base := filepath.Base(dir); base == "." || base == ".." || base == string(filepath.Separator) {
		return nil, fmt.Errorf("shard: %s: name the folder to create", dir)
	}
	tmp, err := durable.Stage(dir)
	if err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	return &staging{dir: dir, tmp: tmp}, nil
}

// replaceable refuses to write over anything but prepared data.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	for _, e := range entries {
		if n := e.Name(); e.IsDir() || n != manifestName && n != reportName && !strings.HasSuffix(n, ".tokens") {
			return fmt.Errorf("shard: %s contains %s, which is not prepared data; name another folder", dir, n)
		}
	}
	return nil
}

// commit puts the folder in its place. Mappings of the old files stay valid.
func (s *staging) commit() error {
	if err := durable.Swap(s.tmp, s.dir); err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	return nil
}

// discard removes an unfinished folder; after commit there is none.
func (s *staging) discard() { _ = os.RemoveAll(s.tmp) }
