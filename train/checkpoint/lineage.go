package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/train/rundir"
)

// Lineage is where a phase of a run in phases comes from.
type Lineage struct {
	// Whole is the identity of the run in phases.
	Whole string `json:"whole"`
	// From are the checkpoints of other phases whose weights the phase uses.
	From []Origin `json:"from,omitempty"`
}

// Origin is the checkpoint of another phase, whose folder is next to that of the phase
// that uses its weights.
type Origin struct {
	Phase  string `json:"phase"`
	Run    string `json:"run,omitempty"`
	Update int64  `json:"update"`
	// Weights is the SHA-256 of the file of weights. It decides: the rest is for people.
	Weights string `json:"weights"`
}

func (o Origin) String() string {
	text := fmt.Sprintf("%s, update %d", o.Phase, o.Update)
	if o.Run != "" {
		text += " of run " + short(o.Run)
	}
	return text
}

// OriginOf is a checkpoint of a phase as the origin of others.
func OriginOf(phase string, c *Chosen) (o Origin, err error) {
	m, err := ReadManifest(c.Path)
	if err != nil {
		return o, err
	}
	return Origin{phase, m.Run, m.Update, m.File(WeightsFile).SHA256}, nil
}

// Same reports whether two origins have the same weights of the same phase.
func (o Origin) Same(as Origin) bool { return o.Phase == as.Phase && o.Weights == as.Weights }

// Find is the origin's checkpoint below the folder of the run in phases.
func (o Origin) Find(whole string) (path string, err error) {
	path = At(filepath.Join(whole, o.Phase), o.Update)
	m, err := ReadManifest(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it is gone")
	case err == nil && m.File(WeightsFile).SHA256 != o.Weights:
		err = fmt.Errorf("%s has other weights", path)
	}
	if err != nil {
		return "", fmt.Errorf("what is used here was made of the checkpoint of %v: %w; `snug train --resume --out %s --phase all` trains again what follows %s", o, err, shell.Path(whole), o.Phase)
	}
	return path, nil
}

// FromOf are the origins of the checkpoint at path; none where it belongs to no run in
// phases, or to one of an older version.
func FromOf(path string) ([]Origin, error) {
	m, err := ReadManifest(path)
	if err != nil || m.Lineage == nil {
		return nil, err
	}
	return m.Lineage.From, nil
}

// check is that of a manifest.
func (l *Lineage) check() error {
	if l == nil {
		return nil
	}
	if l.Whole == "" || !rundir.ValidID(l.Whole) {
		return fmt.Errorf("says that it belongs to the run in phases %q, which is not a run's identity", l.Whole)
	}
	for _, o := range l.From {
		if err := plainName(o.Phase); err != nil {
			return fmt.Errorf("says that it comes from the phase %q, which is no folder's name", o.Phase)
		}
		if !rundir.ValidID(o.Run) || o.Update < 0 {
			return fmt.Errorf("says that it comes from update %d of the run %q", o.Update, o.Run)
		}
	}
	return nil
}
