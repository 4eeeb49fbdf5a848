package cloudbase

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestFlightsClaim: a flight is rejected before memory is allocated if its frames claim more than a record
// may take, or if it claims more frames than times.
func TestFlightsClaim(t *testing.T) {
	for shape, want := range map[string]string{
		"(2, 60000, 60000)":     "raise data.max_record",
		"(1000000000000, 8, 8)": "[1000000000000]: one for each of frames",
		"(1, 1, 1000000000000)": "raise data.max_record",
	} {
		path := filepath.Join(t.TempDir(), "a.npz")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(f)
		for name, shape := range map[string]string{"frames": shape, "time": "(1,)", "sza": "(1,)", "saa": "(1,)"} {
			w, err := z.Create(name + ".npy")
			if err != nil {
				t.Fatal(err)
			}
			dict := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape)
			if _, err := fmt.Fprintf(w, "\x93NUMPY\x01\x00%c\x00%s\x00\x00\x00\x00", len(dict), dict); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(z.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = npzFlight(path, 64<<20)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", shape, err, want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s: %d bytes allocated", shape, n)
		}
	}
}
