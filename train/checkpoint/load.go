package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/regular"
)

// Checkpoint is a checkpoint opened for reading.
type Checkpoint struct {
	Path     string
	Manifest *Manifest
	State    State
	Metadata Metadata
	// Weights and Optimizer are memory maps after Load and nil after Inspect;
	// Optimizer is nil too if the checkpoint has none.
	Weights   *safetensors.File
	Optimizer *safetensors.File
	release   func()
}

// Load verifies a checkpoint folder, every byte of it, and opens it. Damage is
// a *DamagedError, a state that is not good a *BadError. Close it when its tensors are
// no longer needed; until then it is pinned.
func Load(path string) (*Checkpoint, error) { return pinned(path, false) }

// pinned is Load; bad: also of a checkpoint whose state is not good.
func pinned(path string, bad bool) (*Checkpoint, error) {
	release, err := Pin(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, regular.ErrKind) {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if err != nil {
		release = func() {} // Verify reports what is wrong
	}
	c, err := load(path, bad)
	if err != nil {
		release()
		return nil, err
	}
	c.release = release
	return c, nil
}

func load(path string, bad bool) (*Checkpoint, error) {
	report, err := Verify(path)
	if err != nil {
		return nil, err
	}
	if err := report.Err(); err != nil && (err != report.Bad || !bad) {
		return nil, err
	}
	c, err := Inspect(path)
	if err != nil {
		return nil, err
	}
	if c.Weights, err = safetensors.Open(filepath.Join(path, WeightsFile)); err != nil {
		return nil, err
	}
	if c.Manifest.File(OptimizerFile) != nil {
		if c.Optimizer, err = safetensors.Open(filepath.Join(path, OptimizerFile)); err != nil {
			return nil, errors.Join(err, c.Weights.Close())
		}
	}
	return c, nil
}

// Inspect reads manifest, state and metadata without hashing anything: enough
// to show a checkpoint, not to trust it.
func Inspect(path string) (*Checkpoint, error) {
	m, err := ReadManifest(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	c := &Checkpoint{Path: path, Manifest: m}
	for name, v := range map[string]any{StateFile: &c.State, MetadataFile: &c.Metadata} {
		if err := readJSON(filepath.Join(path, name), v); err != nil {
			return nil, fmt.Errorf("checkpoint: %s: %w", filepath.Join(path, name), err)
		}
	}
	return c, nil
}

// File reads a file that was passed through, such as config.yaml.
func (c *Checkpoint) File(name string) ([]byte, error) {
	if c.Manifest.File(name) == nil {
		return nil, fmt.Errorf("checkpoint %s has no file %q: %w", c.Path, name, os.ErrNotExist)
	}
	return regular.Read(filepath.Join(c.Path, name), regular.Text)
}

// Close unmaps the tensors and ends the pin.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range []*safetensors.File{c.Weights, c.Optimizer} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if c.release != nil {
		c.release()
	}
	return errors.Join(errs...)
}
