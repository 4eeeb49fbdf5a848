package regular

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/internal/sources"
)

// Everything that reads a file by its name does so through this package; exceptions
// are listed here with the reason.
var allowed = map[string]string{
	"internal/durable/syncdir_unix.go": "opens folders",
	"device/":                          "reads /proc and /sys, whose files are the system's",
	"dist/process_linux.go":            "reads /proc, whose files are the system's",
	"engine/conformance/golden.go":     "reads files of the repository, in tests",
}

// opening lists the functions that wait at a pipe or read a device without end.
var opening = map[string][]string{
	"os":     {"Open", "ReadFile"},
	"zip":    {"OpenReader"},
	"ioutil": {"ReadFile"},
}

func TestEverythingIsOpenedHere(t *testing.T) {
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
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if !ok || !slices.Contains(opening[pkg.Name], sel.Sel.Name) {
				return true
			}
			for prefix := range allowed {
				if strings.HasPrefix(f.Name, prefix) {
					used[prefix] = true
					return true
				}
			}
			t.Errorf("%s: %s.%s: a pipe or device of this name would hang or never end; use regular.Open or regular.Read, or say in this test why not", set.Position(sel.Pos()), pkg.Name, sel.Sel.Name)
			return true
		})
	}
	for prefix, why := range allowed {
		if !used[prefix] {
			t.Errorf("%s (%s) opens nothing any more: take it off the list", prefix, why)
		}
	}
}
