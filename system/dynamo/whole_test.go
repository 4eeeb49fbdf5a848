package dynamo

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
)

// TestWholeFilesAreBounded: a small file that decompresses to a large one is rejected with the key that
// allows more, and one of exactly the limit is not.
func TestWholeFilesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gz")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(bytes.Repeat([]byte("line\n"), 2000)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		most, record int64
		refused      bool
	}{{9999, 0, true}, {10000, 0, false}, {9999, 10000, false}, {0, 0, false}} {
		f := &files{Data: &config.Data{MaxRecord: config.Bytes(c.record)}, most: c.most}
		_, err := f.lines(path)
		if c.refused != (err != nil) || err != nil && (!strings.Contains(err.Error(), path+": more than 9999 bytes") || !strings.Contains(err.Error(), "data.max_record")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
