package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/train/rundir"
)

// ForeignError means that a checkpoint belongs to another run than its folder.
type ForeignError struct {
	Path, Run string
	// Owner is the run that the folder belongs to; empty: unknown.
	Owner string
}

func (e *ForeignError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("%s belongs to run %s, and others next to it to other runs: move away those that do not belong here", e.Path, short(e.Run))
	}
	return fmt.Sprintf("%s belongs to run %s, the folder to run %s: move it away", e.Path, short(e.Run), short(e.Owner))
}

// short is the beginning of an identity, enough for people.
func short(id string) string { return id[:min(8, len(id))] }

// runsOf are the runs that checkpoints name as theirs.
func runsOf(list []Entry) []string {
	var ids []string
	for _, e := range list {
		if e.Manifest != nil && e.Manifest.Run != "" && !slices.Contains(ids, e.Manifest.Run) {
			ids = append(ids, e.Manifest.Run)
		}
	}
	return ids
}

// ownerOf is the run that a folder with these checkpoints belongs to: theirs,
// or, of several, the one that was in it last; empty if that is not known.
func ownerOf(list []Entry, last string) string {
	ids := runsOf(list)
	switch {
	case len(ids) == 1:
		return ids[0]
	case slices.Contains(ids, last):
		return last
	}
	return ""
}

// OwnerOf is the run that a folder with these checkpoints, as List gives them,
// belongs to; empty if that is not known.
func OwnerOf(list []Entry) string {
	for _, e := range list {
		if other := (*ForeignError)(nil); errors.As(e.Problem, &other) {
			return other.Owner
		}
	}
	return ownerOf(list, "")
}

// tellApart marks the checkpoints that belong to another run than the folder,
// whose lock names the run that was in it last. Those without an identity are
// of an older version and taken for the folder's own.
func tellApart(list []Entry, last string) {
	owner := ownerOf(list, last)
	for i := range list {
		e := &list[i]
		if e.Manifest != nil && e.Manifest.Run != "" && e.Manifest.Run != owner {
			e.Problem = &ForeignError{e.Path, e.Manifest.Run, owner}
		}
	}
}

// Run is the run folder, which the store has locked.
func (s *Store) Run() *rundir.Dir { return s.home }

// Dir is the folder of the checkpoints.
func (s *Store) Dir() string { return s.home.Join(Folder) }

// takeFolder opens the folder of checkpoints, making it if need be, and finds
// out which run it belongs to.
func (s *Store) takeFolder(fsys fsys) (err error) {
	dir := s.Dir()
	if st, err := s.home.Root().Lstat(Folder); err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return fmt.Errorf("%s is a symbolic link, and another run may have its checkpoints where it leads: put a folder in its place, or make the run folder itself the link", dir)
	}
	if err := mkdirAll(fsys, dir); err != nil {
		return err
	}
	if s.root, err = s.home.Root().OpenRoot(Folder); err != nil {
		return durable.Named(s.home.Root(), err)
	}
	if s.self, err = s.root.Stat("."); err != nil {
		return err
	}
	s.names = []string{dir}
	if s.fsys == nil {
		s.fsys = handleFS{s.root, func() []string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.names
		}}
	}
	if err := s.clean(); err != nil {
		return err
	}
	list, err := List(dir)
	if err != nil {
		return err
	}
	id := ownerOf(list, s.home.ID())
	switch {
	case id == "":
		id = rundir.NewID()
	case s.home.StartedOver(id): // the run that did so has saved nothing yet
		return nil
	}
	return s.home.Begin(id)
}

// wasMoved is called when the run folder has another path.
func (s *Store) wasMoved(to string) {
	s.mu.Lock()
	s.names = append(slices.Clip(s.names), filepath.Join(to, Folder))
	s.mu.Unlock()
	s.opts.OnEvent(Event{Kind: Moved, Path: to})
}

// Check reports whether the run folder and its checkpoints are still there and this
// process's: nil, or a *rundir.GoneError, after which nothing is written.
func (s *Store) Check() error {
	if err := s.home.Check(); err != nil {
		return err
	}
	dir := s.Dir()
	st, err := os.Stat(dir)
	switch {
	case err == nil && os.SameFile(st, s.self), err != nil && !errors.Is(err, fs.ErrNotExist), s.home.Blind():
		return nil
	}
	if err == nil {
		return &rundir.GoneError{Path: s.home.Path(), What: "has other checkpoints: the folder " + dir + " was replaced"}
	}
	return &rundir.GoneError{Path: s.home.Path(), What: "has lost its checkpoints: the folder " + dir + " was removed or moved away"}
}

// StartOver makes the folder that of a new run. The checkpoints that are there
// belong to an abandoned run; they are deleted, but only once a new one has been
// saved.
func (s *Store) StartOver() error {
	list, err := List(s.Dir())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.retained = retained{}
	s.mu.Unlock()
	s.ContinuedFrom(0)
	return s.home.StartOver(runsOf(list)...)
}

// ours reports whether a checkpoint may be removed or replaced by this run.
func (s *Store) ours(m *Manifest) bool {
	return m.Run == "" || m.Run == s.home.ID() || s.home.StartedOver(m.Run)
}

// mayWrite makes sure that the checkpoint of an update does not replace another run's.
func (s *Store) mayWrite(update int64) error {
	if err := s.Check(); err != nil {
		return err
	}
	path := filepath.Join(s.Dir(), stepName(update))
	if m, err := ReadManifest(path); err == nil && !s.ours(m) {
		return &ForeignError{path, m.Run, s.home.ID()}
	}
	return nil
}

// release unlocks the run folder.
func (s *Store) release() error {
	var err error
	if s.root != nil {
		err = s.root.Close()
	}
	return errors.Join(err, s.staging.release(), s.home.Close())
}

// InPhases reports whether dir has a run in phases, each of which is a run in a folder
// of its own below it. Where the lock does not say so, as before it had an identity, the
// folder tells: a configuration, and checkpoints in the folders below it alone.
func InPhases(dir string) bool {
	if rundir.InPhases(dir) {
		return true
	}
	if _, err := os.Lstat(filepath.Join(dir, ConfigFile)); err != nil || hasSteps(dir) {
		return false
	}
	below, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(below, func(e fs.DirEntry) bool { return e.IsDir() && hasSteps(filepath.Join(dir, e.Name())) })
}

// hasSteps reports whether a run folder has a checkpoint, whatever its state.
func hasSteps(dir string) bool {
	list, err := os.ReadDir(filepath.Join(dir, Folder))
	return err == nil && slices.ContainsFunc(list, func(e fs.DirEntry) bool { _, ok := ParseName(e.Name()); return ok })
}

// InPhasesError means that a folder has a run in phases, where one run was to be.
type InPhasesError struct{ Path string }

func (e *InPhasesError) Error() string {
	return fmt.Sprintf("%s has a run in phases, each in a folder of its own below it: name another folder, or that of a phase", e.Path)
}
