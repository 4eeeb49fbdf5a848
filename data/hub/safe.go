package hub

import (
	"errors"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxPath = 1024
	maxPart = 255 // in the file systems in use
)

// safePath reports why a name with slashes cannot be a path below a folder.
func safePath(name string) error {
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > maxPath:
		return errors.New("is too long")
	case !utf8.ValidString(name):
		return errors.New("is not UTF-8")
	case strings.ContainsRune(name, '\\') || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("has characters that are not allowed in a path")
	case !filepath.IsLocal(filepath.FromSlash(name)):
		return errors.New("points outside the repository")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxPart {
			return errors.New("has a part that is not allowed in a path")
		}
	}
	return nil
}
