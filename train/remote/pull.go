package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Entry is a checkpoint on the far side.
type Entry struct {
	Name    string // step-00000042
	Update  int64
	Upload  *Upload // nil if it is unfinished or damaged
	Bytes   int64   // of all its objects
	Problem error   // why it cannot be pulled, as far as is visible without reading it
}

// List lists the checkpoints on the far side, newest first by number.
func List(ctx context.Context, r Remote) ([]Entry, error) {
	objects, err := r.List(ctx, "")
	if err != nil {
		return nil, err
	}
	byName := map[string]*Entry{}
	complete := map[string]bool{}
	for _, o := range objects {
		name, file, ok := strings.Cut(o.Key, "/")
		update, isStep := checkpoint.ParseName(name)
		if !ok || !isStep {
			continue
		}
		if byName[name] == nil {
			byName[name] = &Entry{Name: name, Update: update}
		}
		byName[name].Bytes += o.Size
		complete[name] = complete[name] || file == UploadFile
	}
	var list []Entry
	for name, e := range byName {
		if complete[name] {
			if e.Upload, err = readUpload(ctx, r, name); err != nil && !isDamaged(err) {
				return nil, err
			}
			e.Problem = err
		} else {
			e.Problem = errors.New("the upload is not finished")
		}
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(b.Update, a.Update) })
	return list, nil
}

// Latest finds the newest checkpoint, by number, whose upload.json is intact
// and whose objects are all there. Newer ones that are not are returned with
// the reason. If there is none the error is checkpoint.ErrNone.
func Latest(ctx context.Context, r Remote) (latest *Entry, rejected []Entry, err error) {
	list, err := List(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		if e.Problem == nil {
			err := e.Upload.check(ctx, r, e.Name)
			if err == nil {
				return &e, rejected, nil
			}
			if !isDamaged(err) {
				return nil, rejected, err
			}
			e.Problem = err
		}
		rejected = append(rejected, e)
	}
	return nil, rejected, fmt.Errorf("%w in %s", checkpoint.ErrNone, r)
}

// pullSuffix marks a folder that is being downloaded; what has arrived in it is
// used by the next Pull.
const pullSuffix = ".pull"

// Pull downloads a checkpoint ("latest" or a name as List gives it) into the
// run folder runDir, verifies it and puts it in its place, whose path it
// returns. One that is there already and whole is left as it is.
func Pull(ctx context.Context, r Remote, name, runDir string, opts PushOptions) (string, error) {
	opts.defaults()
	var u *Upload
	err := opts.retrier(name).do(ctx, func() error {
		if name == "latest" {
			e, _, err := Latest(ctx, r)
			if errors.Is(err, checkpoint.ErrNone) {
				return &PermanentError{err, "nothing has been uploaded there completely"}
			}
			if err != nil {
				return err
			}
			name, u = e.Name, e.Upload
			return nil
		}
		if _, ok := checkpoint.ParseName(name); !ok {
			return &PermanentError{fmt.Errorf("%q is not the name of a checkpoint", name), "want latest or a name such as " + checkpoint.Name(42)}
		}
		var err error
		u, err = readUpload(ctx, r, name)
		if errors.Is(err, fs.ErrNotExist) {
			return &PermanentError{fmt.Errorf("%s has no finished checkpoint %s: %w", r, name, err), "list what there is"}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	folder := filepath.Join(runDir, checkpoint.Folder)
	final := filepath.Join(folder, name)
	if whole(final) {
		return final, nil
	}
	tmp := final + pullSuffix
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		return "", fmt.Errorf("pull: %w", err)
	}
	p := &puller{r, name, tmp, opts}
	for _, f := range u.Files {
		if err := p.file(ctx, f); err != nil {
			return "", fmt.Errorf("pull %s from %s: %w", path.Join(name, f.Name), r, err)
		}
	}
	return checkpoint.Adopt(tmp)
}

func whole(dir string) bool {
	report, err := checkpoint.Verify(dir)
	return err == nil && report.Err() == nil
}

type puller struct {
	r    Remote
	name string
	tmp  string
	opts PushOptions
}

// file makes one file of the checkpoint: the object is fetched into NAME.part,
// checked, and unpacked or renamed.
func (p *puller) file(ctx context.Context, f UploadedFile) error {
	full := filepath.Join(p.tmp, f.Name)
	if size, sum, err := hashFile(ctx, full); err == nil && size == f.Size && sum == f.SHA256 {
		return nil // by an earlier Pull
	}
	part := full + partSuffix
	key := path.Join(p.name, f.object())
	err := p.opts.retrier(key).do(ctx, func() error {
		err := p.fetch(ctx, key, part, f)
		if errors.Is(err, fs.ErrNotExist) {
			return &PermanentError{err, "the upload is damaged; pull an older one, or push this one again"}
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.Packed {
		if err := unpackFile(part, full, f.Size); err != nil {
			return errors.Join(err, os.Remove(part))
		}
		if err := os.Remove(part); err != nil {
			return err
		}
	} else if err := os.Rename(part, full); err != nil {
		return err
	}
	size, sum, err := hashFile(ctx, full)
	if err != nil {
		return err
	}
	if size != f.Size || sum != f.SHA256 {
		return &PermanentError{&MismatchError{key, describe(f.Size, f.SHA256), describe(size, sum)}, "it was packed wrongly; pull an older one"}
	}
	return nil
}

// fetch downloads an object, going on from what has already arrived.
func (p *puller) fetch(ctx context.Context, key, part string, f UploadedFile) error {
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	have, err := out.Seek(0, io.SeekEnd)
	if err == nil && have > f.Stored {
		have, err = 0, out.Truncate(0)
	}
	if err == nil && have < f.Stored {
		err = p.copy(ctx, key, out, have, f)
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	size, sum, err := hashFile(ctx, part)
	if err != nil {
		return err
	}
	if size != f.Stored || sum != f.Sum {
		// What went wrong may have been the old beginning: start anew.
		return errors.Join(&MismatchError{key, describe(f.Stored, f.Sum), describe(size, sum)}, os.Remove(part))
	}
	return nil
}

func (p *puller) copy(ctx context.Context, key string, out io.Writer, have int64, f UploadedFile) error {
	body, err := p.r.Get(ctx, key, have)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for err == nil && have < f.Stored {
		if err = ctx.Err(); err != nil {
			break
		}
		var n int
		n, err = body.Read(buf[:min(int64(len(buf)), f.Stored-have)])
		if n > 0 {
			if _, werr := out.Write(buf[:n]); werr != nil {
				err = werr
				break
			}
			have += int64(n)
			p.opts.Progress(Progress{p.name, f.object(), have, f.Stored})
		}
	}
	if err == io.EOF {
		err = nil
		if have < f.Stored {
			err = io.ErrUnexpectedEOF
		}
	}
	return errors.Join(err, body.Close())
}

func unpackFile(from, to string, size int64) error {
	in, err := regular.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(unpack(out, in, size), out.Close())
}

func hashFile(ctx context.Context, path string) (int64, string, error) {
	f, err := regular.Open(path)
	if err != nil {
		return 0, "", err
	}
	size, sum, err := hashReader(ctx, f)
	return size, sum, errors.Join(err, f.Close())
}
