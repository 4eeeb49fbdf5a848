package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"testing"
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
	if len(files) != 2*len(groups)+4 {
		t.Errorf("%d files written, want %d", len(files), 2*len(groups)+4)
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
