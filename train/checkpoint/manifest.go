package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/rundir"
)

// Format and Version mark a manifest of this package.
const (
	Format  = "snug-checkpoint"
	Version = 1
)

// maxManifest bounds the manifest that is read into memory: about a million
// tensors.
const maxManifest = 128 << 20

// Manifest lists what a checkpoint consists of. It is written last; a folder
// without one is not a checkpoint.
type Manifest struct {
	Format       string    `json:"format"`
	Version      int       `json:"version"`
	Update       int64     `json:"update"`
	Run          string    `json:"run,omitempty"` // identity of the run; those of older versions have none
	Created      string    `json:"created"`       // RFC 3339, information only
	ConfigSHA256 string    `json:"config_sha256,omitempty"`
	PlanHash     string    `json:"plan_hash,omitempty"`
	Metric       *Metric   `json:"metric,omitempty"`
	Arithmetic   string    `json:"arithmetic,omitempty"` // Snapshot.Arithmetic
	Health       *Health   `json:"health,omitempty"`     // nil in those of older versions
	Lineage      *Lineage  `json:"lineage,omitempty"`    // of a phase of a run in phases
	Files        []FileSum `json:"files"`                // by name
	// SHA256 is the hash of this manifest's own text with this field empty.
	SHA256 string `json:"sha256"`
}

// FileSum is a file's size and hash, and for safetensors its tensors.
type FileSum struct {
	Name    string      `json:"name"`
	Size    int64       `json:"size"`
	SHA256  string      `json:"sha256"`
	Tensors []TensorSum `json:"tensors,omitempty"` // by name
}

// TensorSum identifies the damaged tensor when a file's hash differs.
type TensorSum struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	CRC32C uint32 `json:"crc32c"`
}

// Bytes is the sum of the sizes of the files, without the manifest.
func (m *Manifest) Bytes() int64 {
	n := int64(0)
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// File finds a file by name; nil if there is none.
func (m *Manifest) File(name string) *FileSum {
	for i := range m.Files {
		if m.Files[i].Name == name {
			return &m.Files[i]
		}
	}
	return nil
}

// Encode seals the manifest and gives its text.
func (m *Manifest) Encode() ([]byte, error) {
	m.SHA256 = ""
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	m.SHA256 = hex.EncodeToString(sum[:])
	return m.text()
}

func (m *Manifest) text() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return b.Bytes(), nil
}

// ParseManifest reads a manifest and checks it: its own hash, byte for byte,
// then that file names are plain, unique and sorted and that nothing is missing.
func ParseManifest(text []byte) (*Manifest, error) {
	var mark struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(text, &mark); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if mark.Format != Format {
		return nil, fmt.Errorf("has format %q, want %q: snug did not write it", mark.Format, Format)
	}
	if mark.Version != Version {
		return nil, fmt.Errorf("has version %d, this snug reads %d: use the snug that wrote it", mark.Version, Version)
	}
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("does not have the fields of version %d: %w", Version, err)
	}
	claimed := m.SHA256
	canonical, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if claimed != m.SHA256 || !bytes.Equal(canonical, text) {
		return nil, fmt.Errorf("does not have the SHA-256 it claims: it was changed after it was written")
	}
	return &m, m.check()
}

// check applies even to a manifest with a right hash, which anyone can make.
func (m *Manifest) check() error {
	if m.Update < 0 {
		return fmt.Errorf("has the update %d", m.Update)
	}
	if !rundir.ValidID(m.Run) {
		return fmt.Errorf("says that it belongs to the run %q, which is not a run's identity", m.Run)
	}
	if err := m.Lineage.check(); err != nil {
		return err
	}
	for i, f := range m.Files {
		if err := plainName(f.Name); err != nil {
			return err
		}
		if f.Name == ManifestFile {
			return fmt.Errorf("lists itself")
		}
		if i > 0 && m.Files[i-1].Name >= f.Name {
			return fmt.Errorf("lists %q after %q: want each file once, sorted", f.Name, m.Files[i-1].Name)
		}
		if f.Size < 0 {
			return fmt.Errorf("file %q has the size %d", f.Name, f.Size)
		}
		for j, t := range f.Tensors {
			if j > 0 && f.Tensors[j-1].Name >= t.Name {
				return fmt.Errorf("file %q lists tensor %q after %q: want each once, sorted", f.Name, t.Name, f.Tensors[j-1].Name)
			}
			if _, err := safetensors.ParseDType(t.DType); err != nil {
				return fmt.Errorf("file %q, tensor %q: %w", f.Name, t.Name, err)
			}
		}
	}
	for _, name := range []string{WeightsFile, StateFile, MetadataFile} {
		if m.File(name) == nil {
			return fmt.Errorf("does not list %s", name)
		}
	}
	return nil
}

// plainName refuses a file name that could leave the checkpoint's folder.
func plainName(name string) error {
	if name == "" || name == "." || !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
		return fmt.Errorf("file name %q is not a plain name inside the checkpoint", name)
	}
	return nil
}

// ReadManifest reads and checks the manifest of the checkpoint folder dir.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ManifestFile)
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if st.Size() > maxManifest {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are allowed", path, st.Size(), maxManifest)
	}
	text, err := regular.Read(path, maxManifest)
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return m, nil
}

// sortSums puts the list in the order that check demands.
func sortSums(files []FileSum) {
	slices.SortFunc(files, func(a, b FileSum) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range files {
		slices.SortFunc(f.Tensors, func(a, b TensorSum) int { return strings.Compare(a.Name, b.Name) })
	}
}
