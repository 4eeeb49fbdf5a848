package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// Fault is one thing that is wrong with a checkpoint.
type Fault struct {
	Path    string // of the file
	Tensor  string // if it is known
	Problem string
}

func (f *Fault) Error() string {
	if f.Tensor != "" {
		return fmt.Sprintf("%s: tensor %q: %s", f.Path, f.Tensor, f.Problem)
	}
	return f.Path + ": " + f.Problem
}

// DamagedError lists all faults of a checkpoint.
type DamagedError struct {
	Path   string
	Faults []*Fault
}

func (e *DamagedError) Error() string {
	lines := make([]string, 0, 4)
	for i, f := range e.Faults {
		if i == 3 {
			lines = append(lines, fmt.Sprintf("and %d more", len(e.Faults)-i))
			break
		}
		lines = append(lines, f.Error())
	}
	return "checkpoint is damaged: " + strings.Join(lines, "; ")
}

// Report is the result of a Verify.
type Report struct {
	Path     string
	Manifest *Manifest // nil if it cannot be read
	Faults   []*Fault  // empty if the checkpoint is intact
	Surplus  []string  // names of files that the manifest does not know; they do no harm
	Bytes    int64     // read and hashed
	// Bad is, for an intact one, a *BadError if its state is not good.
	Bad error
}

// Err is nil for a checkpoint that is intact and good, a *BadError for one that is
// only intact, and a *DamagedError otherwise.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return r.Bad
	}
	return &DamagedError{r.Path, r.Faults}
}

// Verify reads every byte of the checkpoint folder and reports each fault by
// file and, where one can be found, tensor. The error is only for a folder that
// cannot be read at all.
func Verify(path string) (*Report, error) {
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", noFolder(err))
	}
	r := &Report{Path: path}
	m, err := ReadManifest(path)
	if err != nil {
		problem := strings.TrimPrefix(err.Error(), filepath.Join(path, ManifestFile)+" ")
		if errors.Is(err, fs.ErrNotExist) {
			problem = "is missing: this is not a checkpoint, or an incomplete one"
		}
		r.Faults = append(r.Faults, &Fault{Path: filepath.Join(path, ManifestFile), Problem: problem})
		return r, nil
	}
	r.Manifest = m
	if update, _, ok := parseStep(filepath.Base(path)); ok && update != m.Update {
		r.Faults = append(r.Faults, &Fault{Path: filepath.Join(path, ManifestFile), Problem: fmt.Sprintf("has update %d: the folder was renamed", m.Update)})
	}
	for _, f := range m.Files {
		faults, n := verifyFile(path, f)
		r.Faults = append(r.Faults, faults...)
		r.Bytes += n
	}
	for _, e := range list {
		if e.Name() != ManifestFile && m.File(e.Name()) == nil {
			r.Surplus = append(r.Surplus, e.Name())
		}
	}
	if len(r.Faults) == 0 {
		r.Bad = Good(path)
	}
	return r, nil
}

// statFile compares a file's kind and size with the manifest.
func statFile(dir string, f FileSum) (fault *Fault, plain bool) {
	path := filepath.Join(dir, f.Name)
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Fault{Path: path, Problem: "is missing"}, false
	case err != nil:
		return &Fault{Path: path, Problem: err.Error()}, false
	case !st.Mode().IsRegular():
		return &Fault{Path: path, Problem: "is not a regular file"}, false
	case st.Size() < f.Size:
		return &Fault{Path: path, Problem: fmt.Sprintf("is truncated: %d of %d bytes", st.Size(), f.Size)}, true
	case st.Size() > f.Size:
		return &Fault{Path: path, Problem: fmt.Sprintf("has grown: %d bytes instead of %d", st.Size(), f.Size)}, true
	}
	return nil, true
}

// verifyFile checks size, hash and, if the hash differs, the parts.
func verifyFile(dir string, sum FileSum) (faults []*Fault, read int64) {
	path := filepath.Join(dir, sum.Name)
	fault, plain := statFile(dir, sum)
	if !plain {
		return []*Fault{fault}, 0
	}
	f, err := regular.Open(path)
	if err != nil {
		return []*Fault{{Path: path, Problem: err.Error()}}, 0
	}
	defer f.Close()
	if fault == nil {
		h := sha256.New()
		n, err := io.CopyBuffer(h, onlyReader{f}, readBuffer(sum.Size))
		if err != nil {
			return []*Fault{{Path: path, Problem: err.Error()}}, n
		}
		if hex.EncodeToString(h.Sum(nil)) == sum.SHA256 {
			if err := parses(path, sum); err != nil {
				return []*Fault{{Path: path, Problem: err.Error()}}, n
			}
			return nil, n
		}
		fault = &Fault{Path: path, Problem: "its SHA-256 is not the one in the manifest"}
		read = n
	}
	if isTensorFile(sum.Name) {
		faults = damagedTensors(f, path, sum)
	}
	if len(faults) == 0 {
		faults = []*Fault{fault}
	}
	return faults, read
}

func readBuffer(size int64) []byte { return make([]byte, max(1, min(size, pieceBytes))) }

// onlyReader hides the file's other methods, so that CopyBuffer uses its buffer.
type onlyReader struct{ io.Reader }

func isTensorFile(name string) bool { return name == WeightsFile || name == OptimizerFile }

// parses guards against a right hash of wrong content, which only a bug or a
// forger can make.
func parses(path string, sum FileSum) error {
	switch sum.Name {
	case StateFile:
		return readJSON(path, &State{})
	case MetadataFile:
		return readJSON(path, &Metadata{})
	case WeightsFile, OptimizerFile:
		f, err := safetensors.Open(path)
		if err != nil {
			return err
		}
		err = sameTensors(f.Tensors(), sum.Tensors)
		return errors.Join(err, f.Close())
	}
	return nil
}

func sameTensors(infos []safetensors.Info, sums []TensorSum) error {
	byName := make(map[string]safetensors.Info, len(infos))
	for _, t := range infos {
		byName[t.Name] = t
	}
	for _, s := range sums {
		t, ok := byName[s.Name]
		if !ok {
			return fmt.Errorf("tensor %q of the manifest is not in the file", s.Name)
		}
		if t.DType.String() != s.DType || !slices.Equal(t.Shape, s.Shape) {
			return fmt.Errorf("tensor %q is %s %v in the file and %s %v in the manifest", s.Name, t.DType, t.Shape, s.DType, s.Shape)
		}
	}
	if len(infos) != len(sums) {
		return fmt.Errorf("the file has %d tensors, the manifest %d", len(infos), len(sums))
	}
	return nil
}

// damagedTensors finds the tensors whose bytes are not those of the manifest.
// The header is read as if the file had its right size, so that a truncated
// file can be searched too.
func damagedTensors(f *os.File, path string, sum FileSum) []*Fault {
	infos, _, err := safetensors.ReadHeader(f, sum.Size)
	if err != nil {
		return []*Fault{{Path: path, Problem: "its header is damaged: " + err.Error()}}
	}
	if err := sameTensors(infos, sum.Tensors); err != nil {
		return []*Fault{{Path: path, Problem: "its header is damaged: " + err.Error()}}
	}
	want := make(map[string]uint32, len(sum.Tensors))
	for _, s := range sum.Tensors {
		want[s.Name] = s.CRC32C
	}
	start := sum.Size
	if n := len(infos); n > 0 {
		start -= infos[n-1].Offset + infos[n-1].Size
	}
	var faults []*Fault
	buf := readBuffer(sum.Size)
	for _, t := range infos {
		crc := crc32.New(castagnoli)
		n, err := io.CopyBuffer(crc, onlyReader{io.NewSectionReader(f, start+t.Offset, t.Size)}, buf)
		switch {
		case err != nil:
			faults = append(faults, &Fault{path, t.Name, err.Error()})
		case n < t.Size:
			faults = append(faults, &Fault{path, t.Name, fmt.Sprintf("is cut off after %d of %d bytes", n, t.Size)})
		case crc.Sum32() != want[t.Name]:
			faults = append(faults, &Fault{path, t.Name, "its bytes were changed (CRC-32C differs)"})
		}
	}
	return faults
}

// readJSON reads a file of this package strictly.
func readJSON(path string, v any) error {
	text, err := regular.Read(path, regular.Text)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("does not have the form this snug writes: %w", strictjson.Explain(err))
	}
	return nil
}
