package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
)

// PushOptions configure Push and the Uploader.
type PushOptions struct {
	Pack     bool             // compress weights and optimizer state
	Scratch  string           // folder for packed files in transit; default: next to the checkpoint
	Attempts int              // for each object; 0 means 8
	Patience time.Duration    // with an object that makes no progress; 0 means only Attempts counts
	Sessions Sessions         // see PutOptions; default: forgotten when the process ends
	Run      string           // refuse a checkpoint of another run than this one; empty: any
	Progress func(Progress)   // may be nil
	Retry    func(RetryEvent) // may be nil
	Rejected func(Entry)      // receives the newer ones that Pull skips; may be nil

	sleep func(time.Duration) <-chan time.Time
	now   func() time.Time
}

// Progress says how far an upload or download has come.
type Progress struct {
	Checkpoint string // step-00000042
	File       string // object in transfer
	Done, Size int64  // its bytes
}

// RetryEvent is a failed attempt.
type RetryEvent struct {
	Object  string
	Attempt int
	Wait    time.Duration
	Err     error
}

func (o *PushOptions) defaults() {
	if o.Attempts == 0 {
		o.Attempts = 8
	}
	if o.Sessions == nil {
		o.Sessions = memorySessions{}
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Retry == nil {
		o.Retry = func(RetryEvent) {}
	}
	if o.Rejected == nil {
		o.Rejected = func(Entry) {}
	}
	if o.sleep == nil {
		o.sleep = time.After
	}
	if o.now == nil {
		o.now = time.Now
	}
}

func (o *PushOptions) retrier(object string) *retrier {
	return &retrier{o.Attempts, o.Patience, o.now, o.sleep, func(attempt int, wait time.Duration, err error) {
		o.Retry(RetryEvent{object, attempt, wait, err})
	}}
}

// Push uploads the checkpoint folder dir, which must be intact, and returns the upload.
// One that already exists is only checked.
func Push(ctx context.Context, r Remote, dir string, opts PushOptions) (*Upload, error) {
	opts.defaults()
	release, err := checkpoint.Pin(dir)
	if err != nil {
		return nil, &PermanentError{fmt.Errorf("push: %w", err), "there is no checkpoint (any more)"}
	}
	defer release()
	report, err := checkpoint.Verify(dir)
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		return nil, &PermanentError{fmt.Errorf("push: %w", err), "a damaged or bad checkpoint is not uploaded"}
	}
	m := report.Manifest
	if opts.Run != "" && m.Run != "" && m.Run != opts.Run {
		return nil, &PermanentError{fmt.Errorf("push: %w", &checkpoint.ForeignError{Path: dir, Run: m.Run, Owner: opts.Run}), "it is not uploaded"}
	}
	p := &pusher{r: r, dir: dir, name: checkpoint.Name(m.Update), opts: opts}
	if p.ontoItself() {
		return nil, &PermanentError{fmt.Errorf("push: %s would be copied onto itself at %v", dir, r), "name another place"}
	}
	u := &Upload{Format: uploadFormat, Version: uploadVersion, Update: m.Update, Run: m.Run, Created: m.Created, Metric: m.Metric}
	own, err := p.ownManifest()
	if err != nil {
		return nil, err
	}
	files := append([]checkpoint.FileSum{own}, m.Files...)
	done, err := p.present(ctx, own, m.Run)
	if done != nil || err != nil {
		return done, err
	}
	for _, f := range files {
		stored, err := p.file(ctx, f)
		if err != nil {
			return nil, err
		}
		u.Files = append(u.Files, stored)
	}
	text, err := u.encode()
	if err != nil {
		return nil, err
	}
	key := path.Join(p.name, UploadFile)
	return u, opts.retrier(key).do(ctx, func() error { return putBytes(ctx, r, key, text) })
}

type pusher struct {
	r    Remote
	dir  string
	name string
	opts PushOptions
}

// ontoItself reports whether the place of the upload is the checkpoint's own folder.
func (p *pusher) ontoItself() bool {
	r, ok := p.r.(*fileRemote)
	if !ok {
		return false
	}
	from, err := os.Stat(p.dir)
	if err != nil {
		return false
	}
	to, err := os.Stat(filepath.Join(r.root, p.name))
	return err == nil && os.SameFile(from, to)
}

// ownManifest describes manifest.json, which is treated like the other files here.
func (p *pusher) ownManifest() (checkpoint.FileSum, error) {
	text, err := regular.Read(filepath.Join(p.dir, checkpoint.ManifestFile), regular.Text)
	if err != nil {
		return checkpoint.FileSum{}, fmt.Errorf("push: %w", err)
	}
	sum := sha256.Sum256(text)
	return checkpoint.FileSum{Name: checkpoint.ManifestFile, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}, nil
}

// present determines whether this very checkpoint already exists. The upload.json of
// another one with the same number is removed before its objects are replaced, unless it
// is another run's.
func (p *pusher) present(ctx context.Context, own checkpoint.FileSum, run string) (u *Upload, err error) {
	key := path.Join(p.name, UploadFile)
	err = p.opts.retrier(key).do(ctx, func() error {
		u, err = readUpload(ctx, p.r, p.name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && run != "" && u.Run != "" && u.Run != run {
			return &PermanentError{fmt.Errorf("%s has %s of another run (%s)", p.r, p.name, u.Run), "give each run its own place"}
		}
		if err == nil && u.manifestSum() == own.SHA256 {
			if err = u.check(ctx, p.r, p.name); err == nil {
				return nil
			}
		}
		if err != nil && !isDamaged(err) {
			return err
		}
		u = nil
		return p.r.Remove(ctx, key)
	})
	return u, err
}

func (u *Upload) manifestSum() string {
	for _, f := range u.Files {
		if f.Name == checkpoint.ManifestFile {
			return f.SHA256
		}
	}
	return ""
}

// file uploads one file.
func (p *pusher) file(ctx context.Context, f checkpoint.FileSum) (UploadedFile, error) {
	stored := UploadedFile{Name: f.Name, Size: f.Size, SHA256: f.SHA256, Stored: f.Size, Sum: f.SHA256}
	src, err := regular.Open(filepath.Join(p.dir, f.Name))
	if err != nil {
		return stored, fmt.Errorf("push: %w", err)
	}
	defer src.Close()
	from := src
	if p.opts.Pack && len(f.Tensors) > 0 {
		var packed *scratch
		err := p.opts.retrier(f.Name).do(ctx, func() (err error) { // the disk may be full for a while
			packed, err = p.pack(src, f)
			return err
		})
		if err != nil {
			return stored, fmt.Errorf("push: pack %s: %w", f.Name, err)
		}
		defer packed.Close()
		from = packed.File
		stored.Packed = true
		if stored.Stored, stored.Sum, err = hashReader(ctx, packed.File); err != nil {
			return stored, fmt.Errorf("push: pack %s: %w", f.Name, err)
		}
	}
	key := path.Join(p.name, stored.object())
	put := PutOptions{Sessions: p.opts.Sessions, Progress: func(sent int64) {
		p.opts.Progress(Progress{p.name, stored.object(), sent, stored.Stored})
	}}
	return stored, p.opts.retrier(key).do(ctx, func() error {
		return p.r.Put(ctx, key, from, stored.Stored, stored.Sum, put)
	})
}

// pack writes the packed form of a file to the scratch folder. The name is
// always the same, so that leftovers do not accumulate.
func (p *pusher) pack(src *os.File, f checkpoint.FileSum) (_ *scratch, err error) {
	tensors, _, err := safetensors.ReadHeader(src, f.Size)
	if err != nil {
		return nil, err
	}
	dir := p.opts.Scratch
	if dir == "" {
		dir = filepath.Dir(p.dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	file, err := durable.CreateIn(root, "."+p.name+"-"+f.Name+PackSuffix)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	out := &scratch{file, root}
	err = pack(file, io.NewSectionReader(src, 0, f.Size), regions(tensors, f.Size))
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// scratch is a file in transit, which is removed when it is closed.
type scratch struct {
	*os.File
	root *os.Root // its folder
}

// Close removes the file; the next Push removes leftovers.
func (s *scratch) Close() {
	_ = s.File.Close()
	_ = s.root.Remove(filepath.Base(s.Name()))
	_ = s.root.Close()
}
