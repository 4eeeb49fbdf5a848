// Package sources reads the Go files of this repository, for tests that enforce a
// rule in all of them.
package sources

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A File is a source file that is not a test.
type File struct {
	Path string // for opening it
	Name string // in the repository, with slashes
}

// Files returns all files of the repository that contains the working directory, which is
// a package's.
func Files() (list []File, err error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return nil, fmt.Errorf("no folder above the working directory holds a go.mod")
		}
		root = parent
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		name, err := filepath.Rel(root, path)
		list = append(list, File{path, filepath.ToSlash(name)})
		return err
	})
	return list, err
}
