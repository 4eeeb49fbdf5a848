package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// repo is the cache's folder of one repository: blobs/TAG hold contents,
// snapshots/COMMIT/NAME point to them, refs/REVISION hold commits. All access is through
// an [os.Root], which confines all paths.
type repo struct {
	root *os.Root
	dir  string
	// locks is where huggingface_hub keeps the locks of the repository's blobs.
	locks string
}

func (r Ref) folder() string {
	return string(r.Kind) + "--" + strings.ReplaceAll(r.ID, "/", "--")
}

// openRepo opens a repository's folder, and creates it if create is set.
func (c *Client) openRepo(r Ref, create bool) (*repo, error) {
	p := &repo{dir: filepath.Join(c.Cache, r.folder()), locks: filepath.Join(c.Cache, ".locks", r.folder())}
	if create {
		if err := errors.Join(os.MkdirAll(p.dir, 0o755), os.MkdirAll(p.locks, 0o755)); err != nil {
			return nil, fmt.Errorf("the cache of the hub: %w", err)
		}
	}
	var err error
	if p.root, err = os.OpenRoot(p.dir); err != nil {
		return nil, fmt.Errorf("the cache of the hub: %w", err)
	}
	return p, nil
}

func (p *repo) Close() error { return p.root.Close() }

// maxRef bounds a file of refs, which holds one commit.
const maxRef = 4 << 10

// commit returns the commit that the cache has for a revision.
func (p *repo) commit(revision string) (string, error) {
	if commit.MatchString(revision) {
		return revision, nil
	}
	text, err := regular.ReadIn(p.root, filepath.Join("refs", filepath.FromSlash(revision)), maxRef)
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(text))
	if !commit.MatchString(id) {
		return "", fmt.Errorf("the cache says that %s is %q, which is not a commit", revision, id)
	}
	return id, nil
}

// setCommit records the commit of a revision.
func (p *repo) setCommit(revision, id string) error {
	if old, err := p.commit(revision); err == nil && old == id {
		return nil
	}
	name := filepath.Join("refs", filepath.FromSlash(revision))
	if err := p.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return durable.ReplaceIn(p.root, name, []byte(id))
}

func snapshotDir(commit string) string { return filepath.Join("snapshots", commit) }

// files returns the files of a snapshot, by their names in the repository.
func (p *repo) files(commit string) ([]string, error) {
	var names []string
	dir := path.Join("snapshots", commit)
	err := fs.WalkDir(p.root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || durable.IsTemporary(name) {
			return err
		}
		if _, err := p.root.Stat(filepath.FromSlash(name)); err != nil {
			return nil // points to a blob that was removed
		}
		names = append(names, strings.TrimPrefix(name, dir+"/"))
		return nil
	})
	slices.Sort(names)
	return names, err
}

// place makes a name in a snapshot point to a blob.
func (p *repo) place(commit, name, blob string) error {
	at := filepath.Join(snapshotDir(commit), filepath.FromSlash(name))
	if err := p.root.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	up := strings.Repeat("../", 2+strings.Count(name, "/"))
	target := filepath.FromSlash(up + "blobs/" + blob)
	if old, err := p.root.Readlink(at); err == nil && old == target {
		return nil
	}
	durable.SweepIn(p.root, filepath.Dir(at))
	temp := durable.Temporary(at)
	if err := p.root.Symlink(target, temp); err != nil {
		// Not every file system has symbolic links.
		if e := p.root.Link(filepath.Join("blobs", blob), temp); e != nil {
			return errors.Join(err, e)
		}
	}
	return p.root.Rename(temp, at)
}

// have reports whether a blob is completely there.
func (p *repo) have(a about) bool {
	st, err := p.root.Stat(filepath.Join("blobs", a.blobName()))
	return err == nil && st.Mode().IsRegular() && (a.size < 0 || st.Size() == a.size)
}

// fill fetches a blob into the cache unless it is there: fetch completes the file that it
// is passed. Only one process at a time does so for a blob.
func (p *repo) fill(ctx context.Context, a about, fetch func(f *os.File) error) (err error) {
	if p.have(a) {
		return nil
	}
	blob := filepath.Join("blobs", a.blobName())
	unlock, err := lock(ctx, filepath.Join(p.locks, a.blobName()+".lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if p.have(a) { // another process was faster
		return nil
	}
	if err := p.root.MkdirAll("blobs", 0o755); err != nil {
		return err
	}
	partial := blob + ".incomplete"
	f, err := p.root.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	got := fetch(f)
	if got == nil {
		got = f.Sync()
	}
	if err := errors.Join(got, f.Close()); err != nil {
		return err
	}
	return p.root.Rename(partial, blob)
}
