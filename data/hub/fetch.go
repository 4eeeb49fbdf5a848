package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/snug-ml/snug/internal/few"
)

// parallel is how many files are fetched at a time.
const parallel = 4

// completeList is how many files a list may have to be considered complete:
// the bound that huggingface_hub drew before it read folder by folder.
const completeList = 50_000

// Options narrow down what is fetched.
type Options struct {
	// Only, when set, selects files of the repository by name, among those that the ref's
	// path selects.
	Only func(name string) bool
	// MaxBytes, when set, is the maximum number of bytes to fetch.
	MaxBytes int64
}

// Snapshot is a repository's files in the cache.
type Snapshot struct {
	// Dir is the folder with the files of this commit.
	Dir, Commit string
	// Files are the selected files, below Dir, with slashes.
	Files []string
}

// Paths returns the files as paths of the system.
func (s *Snapshot) Paths() []string {
	var paths []string
	for _, name := range s.Files {
		paths = append(paths, filepath.Join(s.Dir, filepath.FromSlash(name)))
	}
	return paths
}

// Fetch gets the files that r and o select into the cache, and returns their place there.
// Files that are already there are not fetched again. Files of a snapshot must not be
// written to: several snapshots may share one.
func (c *Client) Fetch(ctx context.Context, r Ref, o Options) (s *Snapshot, err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if c.Offline {
		return c.offline(r, o)
	}
	in, err := c.info(ctx, r)
	if err != nil {
		return nil, c.explain(r, o, err)
	}
	s = &Snapshot{Dir: filepath.Join(c.Cache, r.folder(), snapshotDir(in.Commit)), Commit: in.Commit}
	p := &progress{tell: c.Progress}
	for _, f := range in.Files {
		if !r.Match(f.Name) || o.Only != nil && !o.Only(f.Name) {
			continue
		}
		if err := safePath(f.Name); err != nil {
			return nil, fmt.Errorf("%s: the file name %q %w", r, f.Name, err)
		}
		s.Files = append(s.Files, f.Name)
		p.total += max(0, f.Size)
	}
	if len(in.Files) >= completeList && !(len(s.Files) == 1 && s.Files[0] == r.Path) {
		return nil, fmt.Errorf("%s: the repository has so many files that the hub may not list all of them (it lists %d): name one file by its full path", r, len(in.Files))
	}
	if len(s.Files) == 0 {
		var names []string
		for _, f := range in.Files {
			names = append(names, f.Name)
		}
		return nil, fmt.Errorf("%s: none of the repository's files matches; it has %s", r, few.Of(names))
	}
	if o.MaxBytes > 0 && p.total > o.MaxBytes {
		return nil, fmt.Errorf("%s: its %d files have %d bytes, more than the %d allowed: select some of them", r, len(s.Files), p.total, o.MaxBytes)
	}
	slices.Sort(s.Files)
	repo, err := c.openRepo(r, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, name := range s.Files {
		group.Go(func() error { return c.file(ctx, repo, r, in.Commit, name, p) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	// This comes last, so that a branch never leads to missing files.
	if r.Revision != in.Commit {
		if err := repo.setCommit(r.Revision, in.Commit); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// file gets one file into the cache.
func (c *Client) file(ctx context.Context, repo *repo, r Ref, commit, name string, p *progress) error {
	u, err := c.fileAddress(r, commit, name)
	if err != nil {
		return err
	}
	a, err := c.about(ctx, u)
	if err != nil {
		return err
	}
	came := int64(0)
	err = repo.fill(ctx, a, func(f *os.File) error {
		d := &download{c: c, url: u, about: a, f: f, arrived: func(n int64) { came += n; p.add(n) }}
		return d.run(ctx)
	})
	if err != nil {
		return err
	}
	p.add(max(0, a.size-came)) // what was already there
	return repo.place(commit, name, a.blobName())
}

// offline finds earlier fetched files in the cache.
func (c *Client) offline(r Ref, o Options) (_ *Snapshot, err error) {
	missing := func(what string) error {
		return fmt.Errorf("%s: %s is not in the cache %s, and HF_HUB_OFFLINE forbids fetching it", r, what, c.Cache)
	}
	repo, err := c.openRepo(r, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("the repository")
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	id, err := repo.commit(r.Revision)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing("the revision " + r.Revision)
	}
	if err != nil {
		return nil, err
	}
	names, err := repo.files(id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s := &Snapshot{Dir: filepath.Join(repo.dir, snapshotDir(id)), Commit: id}
	for _, name := range names {
		if r.Match(name) && (o.Only == nil || o.Only(name)) {
			s.Files = append(s.Files, name)
		}
	}
	if len(s.Files) == 0 {
		return nil, missing("a requested file")
	}
	return s, nil
}

// explain adds to a failure that the cache has the files.
func (c *Client) explain(r Ref, o Options, err error) error {
	if _, e := c.offline(r, o); e == nil {
		return fmt.Errorf("%w (the cache has files of it from before: HF_HUB_OFFLINE=1 uses those)", err)
	}
	return err
}

// progress sums up what arrives for several files.
type progress struct {
	mu          sync.Mutex
	done, total int64
	tell        func(done, total int64)
}

func (p *progress) add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.total = max(p.total, p.done)
	if p.tell != nil && n != 0 {
		p.tell(p.done, p.total)
	}
}
