package npz

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/npz/npztest"
)

func TestFloats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := npztest.NewWriter(f)
	for name, data := range map[string]any{
		"u1": []uint8{0, 1, 255, 7}, "i8": []int64{-3, 1 << 20, 0, 5}, "f8": []float64{0.5, -1e9, 3, math.Inf(1)},
		"f2": []uint16{0x3c00, 0xc000, 0x0001, 0x7bff}, "f4": []float32{1, 2, 3, 4},
	} {
		if err := w.Write(name, []int{2, 2}, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	z, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for name, want := range map[string][]float32{
		"u1": {0, 1, 255, 7}, "i8": {-3, 1 << 20, 0, 5}, "f8": {0.5, -1e9, 3, float32(math.Inf(1))},
		"f2": {1, -2, 0x1p-24, 65504}, "f4": {1, 2, 3, 4},
	} {
		s, err := z.Floats(name)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, 4)
		if err := errors.Join(s.Next(got[:1]), s.Next(got[1:])); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
		if err := s.Next(got); err != io.EOF {
			t.Errorf("%s: after the last: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s, err := z.Floats("f4")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Next(make([]float32, 5)); err == nil || !strings.Contains(err.Error(), "4 elements are left") {
		t.Errorf("asking for too many: %v", err)
	}
}
