package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/snug-ml/snug/internal/sources"
)

// TestMessagesShowNoStructs: messages name what they show. No format prints a Go struct with its fields,
// except in keys that nobody reads.
func TestMessagesShowNoStructs(t *testing.T) {
	allowed := map[string]string{
		"data/files.go":              "hashed",
		"system/cloudbase/source.go": "hashed",
	}
	used := map[string]bool{}
	files, err := sources.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, f.Path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || !strings.Contains(lit.Value, "%+v") && !strings.Contains(lit.Value, "%#v") {
				return true
			}
			if allowed[f.Name] == "" {
				t.Errorf("%s: %s shows a struct as Go does: name its fields", set.Position(lit.Pos()), lit.Value)
			}
			used[f.Name] = true
			return true
		})
	}
	for rel, why := range allowed {
		if !used[rel] {
			t.Errorf("%s (%s) prints no struct any more: take it off the list", rel, why)
		}
	}
}
