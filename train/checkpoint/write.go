package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/durable"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// smallWrites is what is buffered before it is passed to the operating system: anything
// smaller.
const smallWrites = 64 << 10

// job is a snapshot that no longer depends on its caller, but for the tensors that its
// capture holds.
type job struct {
	update    int64
	weights   []*jobTensor
	optimizer []*jobTensor
	files     map[string][]byte // with state.json and metadata.json
	manifest  Manifest          // without the files
	bytes     int64             // of everything, for the check of free space
	capture   *capture
}

// jobTensor is a tensor of a job. Data are its elements where it is not held.
type jobTensor struct {
	safetensors.Entry
	held *held           // of the job's capture; nil: it is not live
	bad  safetensors.Bad // what is not finite in it, once it was written
}

// part is a file of tensors.
type part struct {
	file    string
	tensors []*jobTensor
}

func (j *job) parts() []part {
	return []part{{WeightsFile, j.weights}, {OptimizerFile, j.optimizer}}
}

// headerSlack is what manifest, headers and folder entries may take besides the
// bytes that are counted exactly.
const headerSlack = 1 << 20

// newJob checks and encodes a snapshot, whose live tensors become the capture's.
func newJob(snap *Snapshot, c *capture) (*job, error) {
	j := &job{update: snap.State.Update, files: map[string][]byte{}, bytes: headerSlack, capture: c}
	if j.update < 0 {
		return nil, fmt.Errorf("checkpoint: update %d is negative", j.update)
	}
	if len(snap.Weights) == 0 {
		return nil, errors.New("checkpoint: a snapshot without weights")
	}
	for _, t := range slices.Concat(snap.Weights, snap.Optimizer) {
		if t.Data == nil && snap.Live == nil {
			return nil, fmt.Errorf("checkpoint: tensor %q has neither elements nor a place where they are read", t.Name)
		}
	}
	j.weights, j.optimizer = toTensors(snap.Weights, c), toTensors(snap.Optimizer, c)
	for _, p := range j.parts() {
		size, err := safetensors.FileSize(entries(p.tensors), weightsMetadata)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		j.bytes += size
	}
	for name, data := range snap.Files {
		if err := plainName(name); err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		switch name {
		case WeightsFile, OptimizerFile, StateFile, MetadataFile, ManifestFile:
			return nil, fmt.Errorf("checkpoint: the name %s is reserved for the checkpoint's own file", name)
		}
		j.files[name] = slices.Clone(data)
	}
	meta := snap.Metadata
	meta.Created = time.Now().UTC().Format(time.RFC3339)
	for name, v := range map[string]any{StateFile: snap.State, MetadataFile: meta} {
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: %w", name, err)
		}
		j.files[name] = append(text, '\n')
	}
	for _, data := range j.files {
		j.bytes += int64(len(data))
	}
	j.manifest = Manifest{Format: Format, Version: Version, Update: j.update, Created: meta.Created, PlanHash: snap.PlanHash, Arithmetic: snap.Arithmetic, Lineage: snap.Lineage, Health: &Health{Problem: snap.Problem}}
	if snap.Metric != nil {
		m := *snap.Metric
		j.manifest.Metric = &m
	}
	if config, ok := j.files[ConfigFile]; ok {
		sum := sha256.Sum256(config)
		j.manifest.ConfigSHA256 = hex.EncodeToString(sum[:])
	}
	return j, nil
}

// weightsMetadata is what transformers expects in a file of weights.
var weightsMetadata = map[string]string{"format": "pt"}

// toTensors copies the tensors that have data and captures the others.
func toTensors(tensors []Tensor, c *capture) []*jobTensor {
	list := make([]*jobTensor, len(tensors))
	for i, t := range tensors {
		x := &jobTensor{Entry: safetensors.Entry{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape), Data: bytes.Clone(t.Data)}}
		if t.Data == nil {
			x.held = c.add(t.Name, t.bytes())
			x.Emit = func(io.Writer) error { return nil } // its size is known by its shape
		}
		list[i] = x
	}
	return list
}

func entries(tensors []*jobTensor) []safetensors.Entry {
	list := make([]safetensors.Entry, len(tensors))
	for i, t := range tensors {
		list[i] = t.Entry
	}
	return list
}

// errNoSpace is reported before the first byte is written where the disk
// cannot hold the checkpoint, so that a full disk is not made fuller.
type errNoSpace struct {
	dir        string
	need, free int64
}

func (e *errNoSpace) Error() string {
	return fmt.Sprintf("%s: a checkpoint needs %d MB, %d MB are free", e.dir, e.need>>20, e.free>>20)
}

func (e *errNoSpace) Unwrap() error { return syscall.ENOSPC }

// write makes the checkpoint in the folder parent and returns its path. Each call
// starts from scratch: after a failed fsync the kernel may have dropped the data it
// could not write, so nothing of a failed attempt is used again.
func (j *job) write(fsys fsys, parent string) (path string, err error) {
	path = filepath.Join(parent, stepName(j.update))
	if j.manifest.Health.Problem != "" && there(path) {
		return "", &BadError{Health: *j.manifest.Health}
	}
	tmp := path + tmpSuffix
	if err := removeTree(fsys, tmp); err != nil {
		return "", err
	}
	free, err := fsys.Free(parent)
	if err != nil {
		return "", err
	}
	if free < j.bytes {
		return "", &errNoSpace{parent, j.bytes, free}
	}
	if err := fsys.Mkdir(tmp); err != nil {
		return "", err
	}
	err = j.fill(fsys, tmp)
	if err == nil && j.manifest.Health.Problem != "" && there(path) {
		err = &BadError{Health: *j.manifest.Health} // as was found on the way
	}
	if err != nil {
		// Give the space back at once; what cannot be removed is left to the next Open.
		_ = removeTree(fsys, tmp)
		return "", err
	}
	if err := replace(fsys, tmp, path); err != nil {
		return "", err
	}
	return path, nil
}

// WriteAlone writes a checkpoint that belongs to no run as the folder dir, which must not
// exist or be empty. It appears complete or not at all, and one that is not good does not.
func WriteAlone(dir string, snap *Snapshot) (err error) {
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return fmt.Errorf("%s exists and is not empty: name a new folder", dir)
	}
	j, err := newJob(snap, nil)
	if err != nil {
		return err
	}
	dir = filepath.Clean(dir)
	work, err := durable.Stage(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	if err := j.fill(osFS{}, work); err != nil {
		return err
	}
	if j.manifest.Health.Problem != "" {
		return &BadError{Health: *j.manifest.Health}
	}
	return durable.Place(work, dir)
}

// there reports whether a good checkpoint has the path.
func there(path string) bool {
	report, err := Verify(path)
	return err == nil && report.Err() == nil
}

// fill writes all files into tmp and syncs them and the folder.
func (j *job) fill(fsys fsys, tmp string) error {
	m := j.manifest
	m.Files = nil
	b := bufio.NewWriterSize(nil, smallWrites)
	for _, part := range j.parts() {
		if part.file == OptimizerFile && len(part.tensors) == 0 {
			continue
		}
		sums := make([]TensorSum, len(part.tensors))
		list := entries(part.tensors)
		for i, t := range part.tensors {
			list[i].Emit = func(w io.Writer) error { return j.emit(w, t, &sums[i]) }
		}
		sum, err := writeFile(fsys, b, filepath.Join(tmp, part.file), func(w io.Writer) error {
			_, err := safetensors.Write(w, list, weightsMetadata)
			return err
		})
		if err != nil {
			return err
		}
		sum.Tensors = sums
		m.Files = append(m.Files, sum)
	}
	j.examine()
	for _, name := range slices.Sorted(maps.Keys(j.files)) {
		sum, err := writeFile(fsys, b, filepath.Join(tmp, name), func(w io.Writer) error {
			_, err := w.Write(j.files[name])
			return err
		})
		if err != nil {
			return err
		}
		m.Files = append(m.Files, sum)
	}
	sortSums(m.Files)
	text, err := m.Encode()
	if err != nil {
		return err
	}
	if _, err := writeFile(fsys, b, filepath.Join(tmp, ManifestFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}); err != nil {
		return err
	}
	return fsys.SyncDir(tmp)
}

// emit writes a tensor piece by piece, so that its checksum is taken and its numbers are
// looked at while the bytes are in cache.
func (j *job) emit(w io.Writer, t *jobTensor, sum *TensorSum) error {
	*sum = TensorSum{Name: t.Name, DType: t.DType.String(), Shape: t.Shape}
	t.bad = safetensors.Bad{}
	at := 0
	put := func(data []byte) error {
		sum.CRC32C = crc32.Update(sum.CRC32C, castagnoli, data)
		t.look(data, at*8/t.DType.Bits())
		at += len(data)
		_, err := w.Write(data)
		return err
	}
	if t.held == nil {
		for data := range slices.Chunk(t.Data, pieceBytes) {
			if err := put(data); err != nil {
				return err
			}
		}
		return nil
	}
	for i := range t.held.pieces {
		data, err := j.capture.read(t.held, i)
		if err != nil {
			return fmt.Errorf("the states of update %d could not be copied from the device: %w", j.update, err)
		}
		if err := put(data); err != nil {
			return err
		}
	}
	return nil
}

// writeFile creates, fills, syncs and closes one file. b is its buffer.
func writeFile(fsys fsys, b *bufio.Writer, path string, content func(io.Writer) error) (FileSum, error) {
	f, err := fsys.Create(path)
	if err != nil {
		return FileSum{}, err
	}
	h := sha256.New()
	n := &countWriter{w: io.MultiWriter(fullWriter{f}, h)}
	b.Reset(n)
	err = content(b)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return FileSum{}, fmt.Errorf("write %s: %w", path, err)
	}
	return FileSum{Name: filepath.Base(path), Size: n.n, SHA256: hex.EncodeToString(h.Sum(nil))}, nil
}

// fullWriter turns a short write without an error into one.
type fullWriter struct{ w io.Writer }

func (f fullWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

type countWriter struct {
	w io.Writer
	n int64
}

func (c *countWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// replace renames tmp to path. What was there is renamed first and stays readable
// under its .old name until the new one is durable.
func replace(fsys fsys, tmp, path string) error {
	parent := filepath.Dir(path)
	old := path + oldSuffix
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		if _, err := os.Lstat(filepath.Join(path, ManifestFile)); err != nil {
			return fmt.Errorf("%s exists and is not a checkpoint: move it away", path)
		}
		if err := trash(fsys, old); err != nil {
			return err
		}
		// Whichever of the two renames a crash undoes, one of path and old is
		// intact, so that only the second needs a sync.
		if err := fsys.Rename(path, old); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := fsys.Rename(tmp, path); err != nil {
		return err
	}
	if err := fsys.SyncDir(parent); err != nil {
		return err
	}
	return trash(fsys, old)
}

// trash deletes a checkpoint so that an interruption leaves nothing that looks like
// one. A path that does not exist is fine.
func trash(fsys fsys, path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	del := path + delSuffix
	if err := removeTree(fsys, del); err != nil {
		return err
	}
	if err := fsys.Rename(path, del); err != nil {
		return err
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return removeTree(fsys, del)
}
