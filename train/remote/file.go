package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// fileRemote is a folder, such as a mounted disk. Hashes are computed by reading back
// what was written.
type fileRemote struct{ root string } // clean

const partSuffix = ".part"

func (r *fileRemote) String() string { return "file://" + filepath.ToSlash(r.root) }

// path refuses a key that leads out of the folder.
func (r *fileRemote) path(key string) (string, error) {
	name := filepath.FromSlash(key)
	if !filepath.IsLocal(name) {
		return "", &PermanentError{fmt.Errorf("key %q leads out of %s", key, r.root), ""}
	}
	return filepath.Join(r.root, name), nil
}

func (r *fileRemote) Put(ctx context.Context, key string, src io.ReaderAt, size int64, sum string, how PutOptions) error {
	path, err := r.path(key)
	if err != nil {
		return err
	}
	if have, err := r.Stat(ctx, key); err == nil && have.Size == size && have.SHA256 == sum {
		how.progress(size)
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return permissions(err)
	}
	if err := durable.Write(path, func(f *os.File) error {
		return copied(ctx, f, io.NewSectionReader(src, 0, size), how)
	}); err != nil {
		return permissions(err)
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) { // the folders may be new, too
		if err := durable.SyncDir(dir); err != nil {
			return permissions(err)
		}
		if dir == r.root || dir == filepath.Dir(dir) {
			break
		}
	}
	have, err := r.Stat(ctx, key)
	if err != nil {
		return err
	}
	if have.Size != size || have.SHA256 != sum {
		return &MismatchError{key, size, sum, have.Size, have.SHA256}
	}
	return nil
}

// copied writes src to f until ctx ends.
func copied(ctx context.Context, f io.Writer, src io.Reader, how PutOptions) error {
	buf := make([]byte, 1<<20)
	for sent := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := f.Write(buf[:n]); err != nil {
				return err
			}
			sent += int64(n)
			how.progress(sent)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// permissions marks errors that need the user.
func permissions(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return &PermanentError{err, "name a folder"}
	}
	if errors.Is(err, fs.ErrPermission) {
		return &PermanentError{err, "the folder must be writable"}
	}
	return err
}

func (r *fileRemote) Get(_ context.Context, key string, offset int64) (io.ReadCloser, error) {
	path, err := r.path(key)
	if err != nil {
		return nil, err
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, r.noFolder(err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (r *fileRemote) Stat(ctx context.Context, key string) (Object, error) {
	f, err := r.Get(ctx, key, 0)
	if err != nil {
		return Object{}, err
	}
	size, sum, err := hashReader(ctx, f)
	return Object{key, size, sum}, errors.Join(err, f.Close())
}

// hashReader reads r to its end.
func hashReader(ctx context.Context, r io.Reader) (size int64, sum string, err error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		n, err := r.Read(buf)
		h.Write(buf[:n])
		size += int64(n)
		if err == io.EOF {
			return size, hex.EncodeToString(h.Sum(nil)), nil
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return size, "", err
		}
	}
}

func (r *fileRemote) List(_ context.Context, prefix string) ([]Object, error) {
	var list []Object
	err := fs.WalkDir(os.DirFS(r.root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasPrefix(path, prefix) || durable.IsTemporary(path) || strings.HasSuffix(path, partSuffix) {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		list = append(list, Object{Key: path, Size: info.Size()})
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing has been stored yet
	}
	return list, r.noFolder(err)
}

// noFolder marks errors of a place that is a file, or in one.
func (r *fileRemote) noFolder(err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, regular.ErrKind) {
		return &PermanentError{fmt.Errorf("%s: %w", r.root, err), "checkpoints are kept in regular files below a folder"}
	}
	return err
}

func (r *fileRemote) Remove(_ context.Context, key string) error {
	path, err := r.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return permissions(err)
	}
	return nil
}

// putBytes stores a small object.
func putBytes(ctx context.Context, r Remote, key string, data []byte) error {
	sum := sha256.Sum256(data)
	return r.Put(ctx, key, bytes.NewReader(data), int64(len(data)), hex.EncodeToString(sum[:]), PutOptions{})
}
