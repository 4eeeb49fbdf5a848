package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Messages name what they show: no format prints a Go struct with its fields, but
// for keys that nobody reads.
func TestMessagesShowNoStructs(t *testing.T) {
	allowed := map[string]string{
		"engine/graph/print.go":      "the key of an operation, which is compared",
		"data/files.go":              "hashed",
		"system/cloudbase/source.go": "hashed",
	}
	used := map[string]bool{}
	root := ".."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || !strings.Contains(lit.Value, "%+v") && !strings.Contains(lit.Value, "%#v") {
				return true
			}
			if allowed[rel] == "" {
				t.Errorf("%s: %s shows a struct as Go does: name its fields", set.Position(lit.Pos()), lit.Value)
			}
			used[rel] = true
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for rel, why := range allowed {
		if !used[rel] {
			t.Errorf("%s (%s) prints no struct any more: take it off the list", rel, why)
		}
	}
}
