package data

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
)

// GoTree is a Source: the commented source of a Go installation, one document per file.
// It needs no download, since every machine with Go has it.
//
// Folders named testdata or vendor, files marked as generated (by the convention of `go
// help generate`) and tables of numbers are left out; tests and commands are included
// only on request.
type GoTree struct {
	root string // .../src
	opt  GoTreeOptions
}

// GoTreeOptions widen a GoTree.
type GoTreeOptions struct {
	// Root is the Go installation; empty means $GOROOT, then `go env GOROOT`.
	Root string
	// Tests adds the _test.go files.
	Tests bool
	// Commands adds src/cmd, the compiler, linker and tools.
	Commands bool
}

// OpenGoTree finds the source tree.
func OpenGoTree(opt GoTreeOptions) (*GoTree, error) {
	root := opt.Root
	if root == "" {
		root = os.Getenv("GOROOT")
	}
	if root == "" {
		out, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("data: cannot find the Go source tree: `go env GOROOT`: %w; set GOROOT, or name files with data.files", err)
		}
		root = strings.TrimSpace(string(out))
	}
	src := filepath.Join(root, "src")
	st, err := os.Stat(src)
	if err != nil {
		return nil, fmt.Errorf("data: no Go source tree: %w; set GOROOT, or name files with data.files", err)
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("data: no Go source tree: %s is not a folder", src)
	}
	return &GoTree{root: src, opt: opt}, nil
}

// files lists slash-separated paths below root in lexical order.
func (g *GoTree) files() ([]string, error) {
	var files []string
	err := filepath.WalkDir(g.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(g.root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); name == "testdata" || name == "vendor" || rel == "cmd" && !g.opt.Commands {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() && strings.HasSuffix(rel, ".go") &&
			(g.opt.Tests || !strings.HasSuffix(rel, "_test.go")) {
			files = append(files, rel)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("data: Go source tree: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("data: Go source tree: no .go file below %s; is the Go installation complete?", g.root)
	}
	return files, nil
}

// Fingerprint implements Source.
func (g *GoTree) Fingerprint() (string, error) {
	files, err := g.files()
	if err != nil {
		return "", err
	}
	for i, f := range files {
		files[i] = filepath.Join(g.root, filepath.FromSlash(f))
	}
	return fingerprint(fmt.Sprintf("go tree 2 tests=%t commands=%t", g.opt.Tests, g.opt.Commands), files)
}

// generated is the convention of https://go.dev/s/generatedcode.
var (
	generated     = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	packageClause = regexp.MustCompile(`(?m)^package `)
)

// Documents implements Source.
func (g *GoTree) Documents() iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		files, err := g.files()
		if err != nil {
			yield(Document{}, err)
			return
		}
		for _, rel := range files {
			text, err := regular.Read(filepath.Join(g.root, filepath.FromSlash(rel)), regular.Text)
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					err = fmt.Errorf("%w (the tree changed while it was read)", err)
				}
				yield(Document{}, fmt.Errorf("data: Go source tree: %w", err))
				return
			}
			if isGenerated(text) || isTable(text) {
				continue
			}
			doc := Document{ID: rel, Group: rel, Text: text}
			if err := checkUTF8(&doc, false); err != nil {
				yield(Document{}, err)
				return
			}
			if !yield(doc, nil) {
				return
			}
		}
	}
}

// isTable distinguishes data from code: more than a fifth of the text is digits. One
// such file (the points of an elliptic curve, half a megabyte) would outweigh
// the packages around it.
func isTable(text []byte) bool {
	digits := 0
	for _, c := range text {
		if '0' <= c && c <= '9' {
			digits++
		}
	}
	return digits*5 > len(text)
}

// isGenerated looks for the marker above the package clause, where it must be.
func isGenerated(text []byte) bool {
	clause := packageClause.FindIndex(text)
	return clause != nil && generated.Match(text[:clause[0]])
}
