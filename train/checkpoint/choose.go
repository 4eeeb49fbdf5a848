package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// What may be requested besides the name or number of a checkpoint.
const (
	Best = "best"
	Last = "last"
)

// Chosen is the checkpoint that [Choose] took.
type Chosen struct {
	Path   string `json:"checkpoint"`
	Update int64  `json:"update"`
	// Why is the reason for the choice.
	Why string `json:"chosen"`
	// Rejected are those that came first and are damaged.
	Rejected []Rejected `json:"-"`
}

// String names the checkpoint and why it is this one.
func (c *Chosen) String() string { return fmt.Sprintf("%s (%s)", c.Path, c.Why) }

// A WantError is a request that no checkpoint can satisfy.
type WantError struct{ Want, Problem string }

func (e *WantError) Error() string { return fmt.Sprintf("checkpoint %q: %s", e.Want, e.Problem) }

// Choose is the one rule for which checkpoint a path means. A checkpoint folder
// means itself. In a run folder, or a folder of checkpoints, want selects one: [Best] is
// the intact and good one with the best metric, or the last where none has one; [Last]
// is the newest intact and good one; step-N or N is that of an update. Empty is Best.
// want may also be the folder of a checkpoint.
func Choose(path, want string) (*Chosen, error) {
	switch {
	case isCheckpoint(path) && want != "":
		return nil, &WantError{want, fmt.Sprintf("%s is a checkpoint already; give the run's folder to choose another", path)}
	case isCheckpoint(path):
		return named(path)
	case isCheckpoint(want):
		return named(want)
	}
	list, err := List(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no folder %s", ErrNone, path)
		}
		return nil, fmt.Errorf("%w in %s", ErrNone, path)
	}
	if err != nil {
		return nil, err
	}
	switch want {
	case "", Best:
		return chooseBest(path, list)
	case Last:
		return chooseLast(path, list, "the last", nil)
	}
	update, err := strconv.ParseInt(strings.TrimPrefix(want, stepPrefix), 10, 64)
	if err != nil || update < 0 {
		return nil, &WantError{want, "want best, last, step-N or the folder of a checkpoint"}
	}
	for _, e := range list {
		if e.Update == update {
			return named(e.Path)
		}
	}
	return nil, &WantError{want, fmt.Sprintf("%s has no checkpoint of update %d, only %s", path, update, strings.Join(names(list), ", "))}
}

// isCheckpoint reports whether path is to be read as a checkpoint, intact or not.
func isCheckpoint(path string) bool {
	if path == "" {
		return false
	}
	if _, err := os.Lstat(filepath.Join(path, ManifestFile)); err == nil {
		return true
	}
	st, err := os.Stat(path)
	_, ok := ParseName(filepath.Base(filepath.Clean(path)))
	return err == nil && st.IsDir() && ok
}

// named is the checkpoint that was named, which must be intact.
func named(path string) (*Chosen, error) {
	m, err := whole(Entry{Path: path})
	if err != nil {
		return nil, err
	}
	return &Chosen{Path: path, Update: m.Update, Why: "as named"}, nil
}

// whole verifies a checkpoint that is to be used.
func whole(e Entry) (*Manifest, error) {
	if e.Problem != nil {
		return nil, e.Problem
	}
	r, err := Verify(e.Path)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return nil, err
	}
	return r.Manifest, nil
}

// Foremost returns the checkpoint that [Choose] takes for Best if it is intact, without
// reading it; empty if there is none.
func Foremost(path string) string {
	list, err := List(path)
	if err != nil {
		return ""
	}
	list = slices.DeleteFunc(list, func(e Entry) bool { return e.Problem != nil || e.bad() })
	if ranked := best(list, 1); len(ranked) > 0 {
		return ranked[0].Path
	}
	if len(list) > 0 {
		return list[0].Path
	}
	return ""
}

func chooseBest(path string, list []Entry) (*Chosen, error) {
	var usable []Entry
	var rejected []Rejected
	for _, e := range list {
		if e.Problem != nil {
			rejected = append(rejected, Rejected{e.Path, e.Problem})
		} else {
			usable = append(usable, e)
		}
	}
	for _, e := range best(usable, len(usable)) {
		if _, err := whole(e); err != nil {
			rejected = append(rejected, Rejected{e.Path, err})
			continue
		}
		m := e.Manifest.Metric
		why := fmt.Sprintf("the best, %s %.4g", m.Name, float64(m.Value))
		if top, at := remembered(usable[0].Path); top != nil && at != e.Update && top.Better(*m) {
			why = fmt.Sprintf("the best that is left, %s %.4g; update %d had %.4g", m.Name, float64(m.Value), at, float64(top.Value))
		}
		return &Chosen{e.Path, e.Update, why, rejected}, nil
	}
	why := "the last, none was evaluated"
	if len(usable) > 0 {
		if top, at := remembered(usable[0].Path); top != nil {
			why = fmt.Sprintf("the last; the best, of update %d, is gone", at)
		}
	}
	// What was already rejected is not looked at again.
	rest := slices.DeleteFunc(slices.Clone(list), func(e Entry) bool {
		return slices.ContainsFunc(rejected, func(r Rejected) bool { return r.Path == e.Path })
	})
	return chooseLast(path, rest, why, rejected)
}

// remembered is the best metric of the run up to a checkpoint, kept or not, and
// its update.
func remembered(path string) (*Metric, int64) {
	c, err := Inspect(path)
	if err != nil {
		return nil, 0
	}
	return c.State.Best, c.State.BestAt
}

func chooseLast(path string, list []Entry, why string, rejected []Rejected) (*Chosen, error) {
	for _, e := range list {
		if _, err := whole(e); err != nil {
			rejected = append(rejected, Rejected{e.Path, err})
			continue
		}
		return &Chosen{e.Path, e.Update, why, rejected}, nil
	}
	if len(rejected) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNone, path)
	}
	return nil, fmt.Errorf("%w in %s: %d found, none is intact and good: %w", ErrNone, path, len(rejected), rejected[0].Err)
}

// names are the folder names of checkpoints, the oldest first.
func names(list []Entry) (out []string) {
	for _, e := range slices.Backward(list) {
		out = append(out, filepath.Base(e.Path))
	}
	if out == nil {
		out = []string{"no checkpoint at all"}
	}
	return out
}
