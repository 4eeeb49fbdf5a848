package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/data/safetensors"
)

// Health is whether a checkpoint is good: its weights and its optimizer's
// state are finite, and its evaluation, if it has one, is a number. A bad one is
// kept for diagnosis, but it is never used, does not replace a good one and does
// not count where old ones are removed.
type Health struct {
	// Problem is what is wrong; empty: nothing.
	Problem string `json:"problem,omitempty"`
	// Tensor is the first one that is not finite, empty if all are.
	Tensor string `json:"tensor,omitempty"`
}

// BadError is returned for a checkpoint that is intact but not good.
type BadError struct {
	Path string // of the checkpoint; empty if it was not written
	Health
}

func (e *BadError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return fmt.Sprintf("%s is not good: %s; take an earlier one (`snug ckpt list` shows all)", e.Path, e.Problem)
}

// err is nil for a good checkpoint.
func (h *Health) err(path string) error {
	if h == nil || h.Problem == "" {
		return nil
	}
	return &BadError{path, *h}
}

// examine judges the numbers of a job, which were looked at while they were written.
func (j *job) examine() {
	if j.manifest.Health.Tensor != "" {
		return // at the attempt before
	}
	for _, part := range j.parts() {
		for _, e := range part.tensors {
			if e.bad.Count > 0 {
				h := notFinite(part.file, e.Name, e.Shape, e.bad)
				if also := j.manifest.Health.Problem; also != "" {
					h.Problem += "; " + also
				}
				*j.manifest.Health = h
				return
			}
		}
	}
}

// look looks at the next part of a tensor, that begins at an element.
func (t *jobTensor) look(data []byte, first int) {
	bad, found := safetensors.NonFinite(t.DType, data)
	if !found {
		return
	}
	if t.bad.Count == 0 {
		t.bad.First, t.bad.Value = first+bad.First, bad.Value
	}
	t.bad.Count += bad.Count
}

// notFinite is the health of a state with such a tensor.
func notFinite(file, tensor string, shape []int, bad safetensors.Bad) Health {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return Health{
		Problem: fmt.Sprintf("tensor %q of %s has %d of %d values that are NaN or infinite, the first is %v at index %v", tensor, file, bad.Count, n, bad.Value, place(shape, bad.First)),
		Tensor:  tensor,
	}
}

// place is the index of element i, one number a dimension.
func place(shape []int, i int) []int {
	at := make([]int, len(shape))
	for d, n := range slices.Backward(shape) {
		at[d], i = i%n, i/n
	}
	return at
}

// Good returns a *BadError for the checkpoint folder dir if its state is not
// good: by its manifest, or by its numbers where that has no record, as in older
// versions. It does not check whether the files are intact.
func Good(dir string) error {
	m, err := ReadManifest(dir)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if m.Health != nil {
		return m.Health.err(dir)
	}
	for _, name := range []string{WeightsFile, OptimizerFile} {
		if m.File(name) == nil {
			continue
		}
		f, err := safetensors.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		h, err := scan(f, name)
		if err := errors.Join(err, f.Close(), h.err(dir)); err != nil {
			return err
		}
	}
	return nil
}

// scan looks at the numbers of a file.
func scan(f *safetensors.File, name string) (*Health, error) {
	for _, info := range f.Tensors() {
		t, err := f.Tensor(info.Name)
		if err != nil {
			return nil, err
		}
		bad, found := safetensors.NonFinite(t.DType, t.Data)
		t.Release()
		if found {
			h := notFinite(name, info.Name, info.Shape, bad)
			return &h, nil
		}
	}
	return nil, nil
}
