package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"time"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// maxFile bounds what is packed.
const maxFile = 1 << 30

// writeArchive packs files under their last names; snug is a program.
func writeArchive(path string, at time.Time, files ...string) error {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	for _, name := range files {
		content, err := regular.Read(name, maxFile)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.Base(name), Mode: 0o644, Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX}
		if h.Name == program {
			h.Mode = 0o755
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(content); err != nil {
			return err
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return durable.Replace(path, out.Bytes())
}

// writeSums writes the checksums of files as sha256sum does.
func writeSums(path string, files []string) error {
	var out bytes.Buffer
	for _, name := range files {
		content, err := regular.Read(name, maxFile)
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(content), filepath.Base(name))
	}
	return durable.Replace(path, out.Bytes())
}
