package shard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/internal/regular"
)

const (
	manifestName = "manifest.json"
	reportName   = "report.json"
	// maxManifest bounds the size of a manifest or report that is read.
	maxManifest = 64 << 20
)

// Manifest describes a prepared folder. It is written last.
type Manifest struct {
	Version int `json:"version"`
	// Fingerprint of the source, the tokenizer and the options: when it is the
	// same, preparing again would write the same files.
	Fingerprint string     `json:"fingerprint"`
	Tokenizer   string     `json:"tokenizer"`
	VocabSize   int        `json:"vocab_size"`
	EOS         int32      `json:"eos"`
	Seed        uint64     `json:"seed"`
	HeldOut     float64    `json:"held_out"` // configured share
	TrainFiles  []FileInfo `json:"train_files"`
	HeldFiles   []FileInfo `json:"heldout_files"`
}

// FileInfo describes one shard.
type FileInfo struct {
	Name      string `json:"name"`
	Size      int64  `json:"size"`
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"` // EOS included
	TextBytes int64  `json:"text_bytes"`
	Checksum  string `json:"checksum"` // of the header, which holds the others
}

func (m *Manifest) files(s Split) []FileInfo {
	if s == HeldOut {
		return m.HeldFiles
	}
	return m.TrainFiles
}

// ReadManifest reads the manifest of a prepared folder.
func ReadManifest(dir string) (*Manifest, error) {
	var m Manifest
	if err := readJSON(filepath.Join(dir, manifestName), &m); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("shard: %s has no prepared data (%w); create it with `snug data prepare`", dir, err)
		}
		return nil, fmt.Errorf("shard: %w; delete %s and prepare the data again", err, dir)
	}
	if m.Version != version {
		return nil, fmt.Errorf("shard: %s: version %d, this program reads %d; prepare the data again", filepath.Join(dir, manifestName), m.Version, version)
	}
	for _, s := range []Split{Train, HeldOut} {
		for _, f := range m.files(s) {
			if f.Name == "" || f.Name != filepath.Base(f.Name) || !filepath.IsLocal(f.Name) {
				return nil, fmt.Errorf("shard: %s: file name %q leads out of the folder", filepath.Join(dir, manifestName), f.Name)
			}
		}
	}
	return &m, nil
}

// readJSON decodes a bounded file strictly.
func readJSON(name string, v any) error {
	raw, err := regular.Read(name, maxManifest)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// writeJSON writes and syncs a new file.
func writeJSON(name string, v any) (err error) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if _, err := f.Write(append(raw, '\n')); err != nil {
		return err
	}
	return f.Sync()
}
