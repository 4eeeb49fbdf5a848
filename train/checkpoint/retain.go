package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// retained is what a store knows about the checkpoints in its folder. It is
// touched under the store's mutex.
type retained struct {
	written map[string]bool // names saved by this store
	whole   map[string]bool // names known to be intact (true) or damaged (false)
	after   int64           // the run was continued from this update ...
	rewound bool            // ... and later ones of another life are obsolete
}

func (r *retained) wrote(path string) {
	if r.written == nil {
		r.written, r.whole = map[string]bool{}, map[string]bool{}
	}
	name := filepath.Base(path)
	r.written[name], r.whole[name] = true, true
}

// ContinuedFrom tells the store that training continues from the given update.
// Checkpoints with larger numbers belong to a future that this run has abandoned;
// they are deleted, but only once a new one has been saved.
func (s *Store) ContinuedFrom(update int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retained.after, s.retained.rewound = update, true
}

// clean finishes what an interrupted process left: a checkpoint that was set aside
// for one that did not arrive returns, unfinished and half-deleted ones are
// removed.
func (s *Store) clean() error {
	dir := s.Dir()
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		update, suffix, ok := parseStep(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		switch suffix {
		case oldSuffix:
			final := filepath.Join(dir, stepName(update))
			if _, err := os.Lstat(final); errors.Is(err, fs.ErrNotExist) {
				if err := s.fsys.Rename(path, final); err != nil {
					return err
				}
				continue
			}
			if err := trash(s.fsys, path); err != nil {
				return err
			}
		case tmpSuffix, delSuffix, oldSuffix + delSuffix:
			if err := removeTree(s.fsys, path); err != nil {
				return err
			}
		}
	}
	return s.fsys.SyncDir(dir)
}

// retain deletes the checkpoints that choose picks, except the one just saved
// and those that are being read. Problems are reported as Warning and do not affect
// training.
func (s *Store) retain(just string, choose func(list []Entry, just string) []Entry) {
	dir := s.Dir()
	list, err := List(dir)
	if err != nil {
		s.opts.OnEvent(Event{Kind: Warning, Path: dir, Err: err})
		return
	}
	for _, e := range choose(list, just) {
		if filepath.Base(e.Path) == filepath.Base(just) || e.Manifest == nil || !s.ours(e.Manifest) { // what is not ours is never touched
			continue
		}
		pinned, err := unlessPinned(e.Path, func() error { return trash(s.fsys, e.Path) })
		switch {
		case err != nil:
			s.opts.OnEvent(Event{Kind: Warning, Update: e.Update, Path: e.Path, Err: fmt.Errorf("delete old checkpoint: %w", err)})
		case !pinned: // a pinned one is looked at again after the next save
			s.opts.OnEvent(Event{Kind: Removed, Update: e.Update, Path: e.Path})
		}
	}
}

// left picks the checkpoints of a future that the run has abandoned.
func (s *Store) left(list []Entry, _ string) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &s.retained
	var drop []Entry
	for _, e := range list {
		if r.rewound && e.Update > r.after && !r.written[filepath.Base(e.Path)] {
			drop = append(drop, e)
		}
	}
	return drop
}

// surplus picks, of a list with the newest first, what is neither among the
// last nor among the best. Only intact and good ones count; a damaged one goes
// once it is older than all that are kept, a bad one once another was saved.
func (s *Store) surplus(list []Entry, just string) []Entry {
	var drop, whole, damaged []Entry
	for _, e := range list {
		if s.isWhole(e) {
			whole = append(whole, e)
		} else {
			damaged = append(damaged, e)
		}
	}
	keep := map[string]bool{filepath.Join(s.Dir(), filepath.Base(just)): true}
	for _, e := range whole[:min(len(whole), s.opts.KeepLast)] {
		keep[e.Path] = true
	}
	for _, e := range best(whole, s.opts.KeepBest) {
		keep[e.Path] = true
	}
	oldest := int64(-1)
	for _, e := range whole {
		if !keep[e.Path] {
			drop = append(drop, e)
		} else {
			oldest = e.Update // the list falls
		}
	}
	for _, e := range damaged {
		if e.Update < oldest || e.Update != list[0].Update && e.bad() {
			drop = append(drop, e)
		}
	}
	return drop
}

// isWhole verifies once in the life of the store that a checkpoint is intact and good.
func (s *Store) isWhole(e Entry) bool {
	if e.Problem != nil {
		return false
	}
	name := filepath.Base(e.Path)
	s.mu.Lock()
	whole, known := s.retained.whole[name]
	s.mu.Unlock()
	if known {
		return whole
	}
	report, err := Verify(e.Path)
	whole = err == nil && report.Err() == nil
	s.mu.Lock()
	s.retained.whole[name] = whole
	s.mu.Unlock()
	return whole
}

// best ranks by the metric of the newest checkpoint that has one; figures of
// another name are not comparable.
func best(list []Entry, n int) []Entry {
	var ranked []Entry
	for _, e := range list {
		m := e.Manifest.Metric
		if m == nil || len(ranked) > 0 && ranked[0].Manifest.Metric.Name != m.Name {
			continue
		}
		ranked = append(ranked, e)
	}
	slices.SortStableFunc(ranked, func(a, b Entry) int {
		x, y := a.Manifest.Metric, b.Manifest.Metric
		switch {
		case x.Better(*y):
			return -1
		case y.Better(*x):
			return 1
		}
		return cmp.Compare(b.Update, a.Update)
	})
	return ranked[:min(len(ranked), max(n, 0))]
}
