package remote

import (
	"bytes"
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

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Entry is an uploaded checkpoint.
type Entry struct {
	Name    string // step-00000042
	Update  int64
	Run     string  // the run it belongs to; empty if unknown
	Upload  *Upload // nil if it is unfinished or damaged
	Bytes   int64   // of all its objects
	Problem error   // why it cannot be pulled, by name of the object
}

// List lists the uploaded checkpoints, newest first by number, each verified by the
// sizes and hashes that the remote reports. Failures are retried as in a Push.
func List(ctx context.Context, r Remote, opts PushOptions) ([]Entry, error) {
	opts.defaults()
	r = &asking{r, r.String(), &opts}
	list, err := glance(ctx, r)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if err := list[i].verify(ctx, r); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// asking is a remote whose small requests are retried like an upload. A missing object is
// an answer, not a failure.
type asking struct {
	Remote
	what string // the requested thing, for RetryEvent
	opts *PushOptions
}

func (a *asking) ask(ctx context.Context, question func() error) error {
	var missing error
	err := a.opts.retrier(a.what).do(ctx, func() error {
		err := question()
		if errors.Is(err, fs.ErrNotExist) {
			missing, err = err, nil
		}
		return err
	})
	return cmp.Or(err, missing)
}

// List implements Remote.
func (a *asking) List(ctx context.Context, prefix string) (list []Object, err error) {
	err = a.ask(ctx, func() (err error) {
		list, err = a.Remote.List(ctx, prefix)
		return err
	})
	return list, err
}

// Stat implements Remote.
func (a *asking) Stat(ctx context.Context, key string) (o Object, err error) {
	err = a.ask(ctx, func() (err error) {
		o, err = a.Remote.Stat(ctx, key)
		return err
	})
	return o, err
}

// Get reads an upload.json, which is small, at once.
func (a *asking) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	var text []byte
	err := a.ask(ctx, func() error {
		body, err := a.Remote.Get(ctx, key, offset)
		if err != nil {
			return err
		}
		text, err = io.ReadAll(io.LimitReader(body, maxUpload+1))
		return errors.Join(err, body.Close())
	})
	return io.NopCloser(bytes.NewReader(text)), err
}

// glance is List without checking the objects themselves.
func glance(ctx context.Context, r Remote) ([]Entry, error) {
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
			e.Problem = fmt.Errorf("the upload is not finished: object %s is missing", path.Join(name, UploadFile))
		}
		if e.Upload != nil {
			e.Run = e.Upload.Run
		}
		list = append(list, *e)
	}
	slices.SortFunc(list, func(a, b Entry) int { return cmp.Compare(b.Update, a.Update) })
	return list, nil
}

// verify checks every object of an entry and records what is wrong with it. The error is
// for a remote that cannot be reached.
func (e *Entry) verify(ctx context.Context, r Remote) error {
	if e.Problem != nil {
		return nil
	}
	err := e.Upload.check(ctx, r, e.Name)
	if isDamaged(err) {
		e.Problem = err
		return nil
	}
	return err
}

// Latest finds the newest checkpoint, by number, whose upload.json is intact and whose
// objects all exist, for a run unless that is empty. Newer ones that fail this are
// returned with the reason. If there is none the error is checkpoint.ErrNone.
func Latest(ctx context.Context, r Remote, run string) (latest *Entry, rejected []Entry, err error) {
	list, err := glance(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	if err := oneRun(list, r, run); err != nil {
		return nil, nil, err
	}
	var why []string
	for _, e := range list {
		if run != "" && e.Run != "" && e.Run != run {
			continue
		}
		if err := e.verify(ctx, r); err != nil {
			return nil, rejected, err
		}
		if e.Problem == nil {
			return &e, rejected, nil
		}
		rejected = append(rejected, e)
		why = append(why, fmt.Sprintf("%s: %v", e.Name, e.Problem))
	}
	if why == nil && len(list) > 0 {
		return nil, nil, fmt.Errorf("%w in %s for run %s: %s belongs to run %s; use another folder for it", checkpoint.ErrNone, r, short(run), list[0].Name, short(list[0].Run))
	}
	if why == nil {
		return nil, nil, fmt.Errorf("%w in %s: nothing has been uploaded there", checkpoint.ErrNone, r)
	}
	return nil, rejected, fmt.Errorf("%w in %s: %s", checkpoint.ErrNone, r, strings.Join(why, "; "))
}

// oneRun refuses to choose the newest checkpoint among several runs.
func oneRun(list []Entry, r Remote, run string) error {
	newest := map[string]string{}
	var said []string
	for _, e := range list {
		if e.Run == "" || run != "" && e.Run == run {
			continue
		}
		if newest[e.Run] == "" {
			newest[e.Run] = e.Name
			said = append(said, fmt.Sprintf("%s of run %s", e.Name, short(e.Run)))
		}
	}
	if run != "" || len(said) < 2 {
		return nil
	}
	return &PermanentError{fmt.Errorf("%s has checkpoints of %d runs: %s", r, len(said), strings.Join(said, ", ")), "name one of them (--checkpoint)"}
}

// short returns the beginning of a run's identity, enough for people.
func short(id string) string { return id[:min(8, len(id))] }

// pullSuffix marks a folder that is being downloaded; the next Pull uses what has arrived
// in it.
const pullSuffix = ".pull"

// find returns the verified upload of a checkpoint: latest or a name from List.
func find(ctx context.Context, r Remote, name, run string, opts PushOptions) (*Entry, error) {
	if _, ok := checkpoint.ParseName(name); !ok && name != "latest" {
		return nil, &PermanentError{fmt.Errorf("%q is not the name of a checkpoint", name), "want latest or a name such as " + checkpoint.Name(42)}
	}
	if name == "latest" {
		e, rejected, err := Latest(ctx, r, run)
		if errors.Is(err, checkpoint.ErrNone) {
			return nil, &PermanentError{err, ""}
		}
		if err == nil {
			for _, x := range rejected {
				opts.Rejected(x)
			}
		}
		return e, err
	}
	u, err := readUpload(ctx, r, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &PermanentError{fmt.Errorf("%s has no finished checkpoint %s: %w", r, name, err), "list the checkpoints there"}
	}
	e := &Entry{Name: name, Upload: u}
	if err == nil {
		e.Update, e.Run = u.Update, u.Run
		err = u.check(ctx, r, name)
	}
	if isDamaged(err) {
		return nil, &PermanentError{fmt.Errorf("%s in %s: %w", name, r, err), "pull another one, or push this one again"}
	}
	return e, err
}

// Pull downloads a checkpoint ("latest" or a name from List) into the run folder runDir,
// which it locks meanwhile, verifies it, moves it into place and returns its path. An
// intact one that already exists is left as it is; a folder with checkpoints of another
// run is refused.
func Pull(ctx context.Context, r Remote, name, runDir string, opts PushOptions) (_ string, err error) {
	opts.defaults()
	list, err := checkpoint.List(runDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	e, err := find(ctx, &asking{r, name, &opts}, name, checkpoint.OwnerOf(list), opts)
	if err != nil {
		return "", err
	}
	store, err := checkpoint.Open(runDir, checkpoint.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Accepts(e.Run); err != nil {
		return "", err
	}
	if final := filepath.Join(store.Dir(), e.Name); whole(final) {
		return final, nil
	}
	tmp, err := store.Bring(e.Name + pullSuffix)
	if err != nil {
		return "", fmt.Errorf("pull: %w", err)
	}
	defer func() { err = errors.Join(err, tmp.Close()) }()
	p := &puller{r, e.Name, tmp, opts}
	for _, f := range e.Upload.Files {
		err := store.Check()
		if err == nil {
			err = p.file(ctx, f)
		}
		if err != nil {
			return "", fmt.Errorf("pull %s from %s: %w", path.Join(e.Name, f.Name), r, durable.Named(tmp, err))
		}
	}
	return store.Adopt(e.Name + pullSuffix)
}

func whole(dir string) bool {
	report, err := checkpoint.Verify(dir)
	return err == nil && report.Err() == nil
}

type puller struct {
	r    Remote
	name string
	tmp  *os.Root
	opts PushOptions
}

// file makes one file of the checkpoint: the object is fetched into NAME.part,
// checked, and unpacked or renamed.
func (p *puller) file(ctx context.Context, f UploadedFile) error {
	if size, sum, err := p.hash(ctx, f.Name); err == nil && size == f.Size && sum == f.SHA256 {
		return nil // by an earlier Pull
	}
	part := f.Name + partSuffix
	key := path.Join(p.name, f.object())
	spoiled := false
	err := p.opts.retrier(key).do(ctx, func() error {
		err := p.fetch(ctx, key, part, f)
		if wrong := (*MismatchError)(nil); errors.As(err, &wrong) {
			// The earlier part may be bad: start over once.
			if spoiled {
				err = &PermanentError{err, "pull another one, or push this one again"}
			}
			spoiled = true
		}
		if errors.Is(err, fs.ErrNotExist) {
			return &PermanentError{err, "the upload is damaged; pull an older one, or push this one again"}
		}
		return err
	})
	if err != nil {
		return err
	}
	if f.Packed {
		if err := p.unpack(part, f.Name, f.Size); err != nil {
			return errors.Join(err, p.tmp.Remove(part))
		}
		if err := p.tmp.Remove(part); err != nil {
			return err
		}
	} else if err := p.tmp.Rename(part, f.Name); err != nil {
		return err
	}
	size, sum, err := p.hash(ctx, f.Name)
	if err != nil {
		return err
	}
	if size != f.Size || sum != f.SHA256 {
		return &PermanentError{&MismatchError{key, f.Size, f.SHA256, size, sum}, "it was packed wrongly; pull an older one"}
	}
	return nil
}

// fetch downloads an object, continuing from what has already arrived.
func (p *puller) fetch(ctx context.Context, key, part string, f UploadedFile) error {
	out, err := regular.OpenIn(p.tmp, part, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
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
	size, sum, err := p.hash(ctx, part)
	if err != nil {
		return err
	}
	if size != f.Stored || sum != f.Sum {
		return errors.Join(&MismatchError{key, f.Stored, f.Sum, size, sum}, p.tmp.Remove(part))
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

func (p *puller) unpack(from, to string, size int64) error {
	in, err := regular.OpenIn(p.tmp, from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := durable.CreateIn(p.tmp, to)
	if err != nil {
		return err
	}
	return errors.Join(unpack(out, in, size), out.Close())
}

// hash reads a file that has arrived.
func (p *puller) hash(ctx context.Context, name string) (int64, string, error) {
	f, err := regular.OpenIn(p.tmp, name, os.O_RDONLY)
	if err != nil {
		return 0, "", err
	}
	size, sum, err := hashReader(ctx, f)
	return size, sum, errors.Join(err, f.Close())
}
