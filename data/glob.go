package data

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
)

// Glob expands patterns to a sorted list of regular files without repeats.
//
// A pattern is a file, a folder (every file below it) or a glob in which *
// and ? stay within a path element, [a-z] is a class and ** stands for any
// number of folders, none included. Names that start with a dot match only a
// pattern element that starts with one. Links to files are followed, links to
// folders only as the folder that a pattern names or begins with, so there are
// no cycles. A pattern that matches no file is an error. Run directories are
// left out: what a run writes is not what it learns from.
func Glob(patterns ...string) ([]string, error) {
	g := &globber{}
	return g.files(patterns)
}

// globber expands patterns.
type globber struct {
	own []string // folders to leave out besides run directories
	// left are the folders that were left out.
	left []string
}

func (g *globber) files(patterns []string) ([]string, error) {
	var files []string
	for _, p := range patterns {
		found, err := g.expand(p)
		if err != nil {
			return nil, err
		}
		if st, err := os.Stat(p); len(found) == 0 && err == nil && st.IsDir() {
			return nil, fmt.Errorf("data: the folder %s has no files (names that start with a dot do not count)", p)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("data: no file matches %q; check the path, and quote the pattern so that the shell does not expand it", p)
		}
		files = append(files, found...)
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

func (g *globber) expand(pattern string) ([]string, error) {
	if pattern == "" {
		return nil, fmt.Errorf("data: empty file pattern")
	}
	// A name that exists is taken literally, even if it contains a bracket.
	if st, err := os.Stat(pattern); err == nil {
		if st.Mode().IsRegular() {
			return []string{filepath.Clean(pattern)}, nil
		}
		if st.IsDir() {
			return g.walk(filepath.Clean(pattern), []string{"**", "*"})
		}
		return nil, fmt.Errorf("data: %s is neither a file nor a folder (%s)", pattern, st.Mode().Type())
	}
	elems := strings.Split(filepath.ToSlash(filepath.Clean(pattern)), "/")
	if !slices.ContainsFunc(elems, hasMeta) {
		_, err := os.Stat(pattern)
		return nil, fmt.Errorf("data: %w", err)
	}
	for _, e := range elems {
		if strings.Contains(e, "**") && e != "**" {
			return nil, fmt.Errorf("data: pattern %q: ** must stand alone between slashes", pattern)
		}
		if _, err := path.Match(e, "x"); err != nil {
			return nil, fmt.Errorf("data: pattern %q: element %q: %w", pattern, e, err)
		}
	}
	fixed := slices.IndexFunc(elems, hasMeta)
	root := strings.Join(elems[:fixed], "/")
	switch {
	case fixed == 0:
		root = "."
	case root == "":
		root = "/"
	}
	if _, err := os.Stat(filepath.FromSlash(root)); err != nil {
		return nil, fmt.Errorf("data: pattern %q: %w", pattern, err)
	}
	return g.walk(filepath.FromSlash(root), elems[fixed:])
}

func hasMeta(elem string) bool { return strings.ContainsAny(elem, `*?[`) }

// walk lists the regular files below root whose relative path matches elems.
func (g *globber) walk(root string, elems []string) ([]string, error) {
	if inRun(root) {
		return nil, fmt.Errorf("data: %s is a run directory or its checkpoints, and what a run writes there is no data: keep data elsewhere (or choose another --out), or name its files one by one", root)
	}
	if g.isOwn(root) {
		return nil, fmt.Errorf("data: %s is also the folder for prepared data, which would be read as data: choose another folder for it (data.cache_dir; --out of `snug data prepare`), or name the data's files one by one", root)
	}
	var files []string
	top := root + string(filepath.Separator) // the folder itself, where root is a link to it
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == top {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		parts := strings.Split(filepath.ToSlash(rel), "/")
		if d.IsDir() {
			if !matchPrefix(elems, parts) {
				return fs.SkipDir
			}
			if g.isOwn(p) || isRun(p) {
				g.left = append(g.left, p)
				return fs.SkipDir
			}
			return nil
		}
		if !matchElems(elems, parts) {
			return nil
		}
		if d.Type()&fs.ModeSymlink != 0 && linksToRun(p) {
			g.left = append(g.left, p)
			return nil
		}
		if st, err := os.Stat(p); err != nil {
			return err
		} else if st.Mode().IsRegular() {
			files = append(files, p)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return files, nil
}

// isOwn reports whether a folder is one of those to leave out.
func (g *globber) isOwn(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && slices.ContainsFunc(g.own, func(own string) bool {
		of, err := os.Stat(own)
		return err == nil && os.SameFile(st, of)
	})
}

// runLock is the file by which a run directory is recognized: its lock (package rundir).
// A run that has not begun yet has one too, so that it is refused like one that is resumed.
const runLock = ".lock"

// checkpoints is the folder of a run's checkpoints.
const checkpoints = "checkpoints"

// isRun reports whether a folder is a run directory.
func isRun(dir string) bool {
	text, err := regular.Read(filepath.Join(dir, runLock), 4096)
	var owner struct {
		PID int `json:"pid"`
	}
	return err == nil && json.Unmarshal(text, &owner) == nil && owner.PID > 0
}

// inRun reports whether a folder is a run directory or in its checkpoints.
func inRun(dir string) bool {
	abs, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if abs, err = filepath.Abs(abs); err != nil {
		return false
	}
	if isRun(abs) {
		return true
	}
	for up := filepath.Dir(abs); up != abs; abs, up = up, filepath.Dir(up) {
		if filepath.Base(abs) == checkpoints && isRun(up) {
			return true
		}
	}
	return false
}

// linksToRun reports whether a link leads to a file somewhere in a run directory.
func linksToRun(link string) bool {
	to, err := filepath.EvalSymlinks(link)
	if err != nil {
		return false
	}
	if to, err = filepath.Abs(to); err != nil {
		return false
	}
	for up := filepath.Dir(to); up != to; to, up = up, filepath.Dir(up) {
		if isRun(up) {
			return true
		}
	}
	return false
}

func matchElem(pat, name string) bool {
	if strings.HasPrefix(name, ".") && !strings.HasPrefix(pat, ".") {
		return false
	}
	ok, err := path.Match(pat, name)
	return err == nil && ok
}

// matchElems reports whether the whole of parts matches elems.
func matchElems(elems, parts []string) bool {
	if len(elems) == 0 {
		return len(parts) == 0
	}
	if elems[0] != "**" {
		return len(parts) > 0 && matchElem(elems[0], parts[0]) && matchElems(elems[1:], parts[1:])
	}
	if matchElems(elems[1:], parts) {
		return true
	}
	return len(parts) > 0 && matchElem("*", parts[0]) && matchElems(elems, parts[1:])
}

// matchPrefix reports whether a file below the folder parts could match.
func matchPrefix(elems, parts []string) bool {
	if len(parts) == 0 {
		return true
	}
	if len(elems) == 0 {
		return false
	}
	if elems[0] != "**" {
		return matchElem(elems[0], parts[0]) && matchPrefix(elems[1:], parts[1:])
	}
	return matchPrefix(elems[1:], parts) || (matchElem("*", parts[0]) && matchPrefix(elems, parts[1:]))
}
