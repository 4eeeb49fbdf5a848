package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/snug-ml/snug/tools/asm/sets"
)

// TestCommitted checks that the files in internal/simd are what this program
// writes.
func TestCommitted(t *testing.T) {
	dir := t.TempDir()
	if err := generate(dir, ""); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(sets.Ports)*(len(groups)+2) + 3; len(files) != want {
		t.Errorf("%d files written, want %d", len(files), want)
	}
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../../internal/simd", f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run go generate ./internal/simd", f.Name())
		}
	}
}

// TestMinimax uses that the best polynomial of degree n-1 for x^n on [-1, 1]
// leaves the Chebyshev polynomial T_n / 2^(n-1).
func TestMinimax(t *testing.T) {
	one := func(float64) float64 { return 1 }
	for n := 2; n <= 8; n++ {
		c, worst := minimax(func(x float64) float64 { return math.Pow(x, float64(n)) }, one, -1, 1, n-1)
		if want := math.Pow(2, float64(1-n)); math.Abs(worst-want) > 1e-3*want {
			t.Errorf("degree %d: error %g, want %g (coefficients %v)", n-1, worst, want, c)
		}
	}
}

// TestOperationsKnowNoSet checks that another set of instructions touches no operation: what
// a set has is asked for only where operations are made of instructions.
func TestOperationsKnowNoSet(t *testing.T) {
	asking := []string{"asm.go", "ops.go", "memory.go", "emit.go", "dispatch.go", "kernels.go", "main_test.go"}
	has := map[string]bool{}
	for f := range reflect.TypeFor[sets.Set]().Fields() {
		has[f.Name] = f.Type.Kind() == reflect.Bool || f.Name == "Level" || f.Name == "Extends"
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range files {
		if slices.Contains(asking, name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && has[s.Sel.Name] {
				t.Errorf("%s asks whether a set has %s: give what depends on that a name in ops.go", name, s.Sel.Name)
			}
			if s, ok := n.(*ast.Ident); ok && s.Name == "sets" {
				t.Errorf("%s names a set", name)
			}
			return true
		})
	}
	if checked < len(groups) {
		t.Errorf("only %d files were read", checked)
	}
}
