package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// QueueFolder is the folder with the queue of uploads inside a run folder.
const QueueFolder = "uploads"

// UploaderOptions configure an Uploader.
type UploaderOptions struct {
	Push PushOptions // its Sessions, Scratch and Progress are set by the Uploader
	// MaxPending bounds how many checkpoints wait in addition to the one being uploaded,
	// as each occupies disk space; 0 means 2. The oldest is dropped.
	MaxPending int
	// OnEvent receives the events, from the Uploader's goroutine or Enqueue's.
	OnEvent func(UploadEvent)
}

// UploadKind is the kind of an UploadEvent.
type UploadKind string

// The events of an Uploader.
const (
	Uploaded UploadKind = "uploaded"
	Dropped  UploadKind = "dropped" // pushed out of the queue by a newer one, or deleted before its turn
	Stalled  UploadKind = "stuck"   // given up in this session; it stays queued for the next
)

// UploadEvent is one thing that happened in the background.
type UploadEvent struct {
	Kind       UploadKind
	Checkpoint string
	Upload     *Upload
	Err        error
}

// String returns the event as a readable line.
func (e UploadEvent) String() string {
	switch e.Kind {
	case Uploaded:
		return fmt.Sprintf("checkpoint %s uploaded: %s, verified", e.Checkpoint, size.Bytes(e.Upload.Bytes()))
	case Dropped:
		return fmt.Sprintf("checkpoint %s is not uploaded: a newer one took its place in the queue", e.Checkpoint)
	}
	return fmt.Sprintf("checkpoint %s could not be uploaded: %v; it stays queued", e.Checkpoint, e.Err)
}

// UploadStatus is the content of a progress line and a summary.
type UploadStatus struct {
	Pending  []string // waiting, newest first
	Progress Progress // of the object being uploaded; empty if none is
	Uploaded int64
	Stalled  int64
	Err      error // of the last attempt that failed; nil once a checkpoint is complete
}

// job is an entry of the queue, in its form on disk.
type job struct {
	Sessions map[string]string `json:"sessions"` // unfinished uploads of large objects

	name    string
	release func() // unpins the checkpoint
	stuck   bool
}

// Uploader uploads the checkpoints of a run in the background, newest first.
type Uploader struct {
	remote Remote
	run    *rundir.Dir
	queue  *os.Root // the folder of the queue
	opts   UploaderOptions
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	jobs    map[string]*job
	current *job
	status  UploadStatus
	changed chan struct{} // closed and replaced at each change
}

// NewUploader reads the queue of the run folder, which the caller keeps locked
// until the Uploader is closed, and starts to upload.
func NewUploader(run *rundir.Dir, r Remote, opts UploaderOptions) (*Uploader, error) {
	if opts.MaxPending == 0 {
		opts.MaxPending = 2
	}
	if opts.Push.Attempts == 0 {
		opts.Push.Attempts = 30 // some 15 minutes without network
	}
	if opts.OnEvent == nil {
		opts.OnEvent = func(UploadEvent) {}
	}
	u := &Uploader{
		remote: r, run: run, opts: opts,
		ended: make(chan struct{}), jobs: map[string]*job{}, changed: make(chan struct{}),
	}
	err := run.Check()
	if err == nil {
		err = durable.Named(run.Root(), run.Root().MkdirAll(QueueFolder, 0o777))
	}
	if err == nil {
		u.queue, err = run.Root().OpenRoot(QueueFolder)
	}
	if err == nil {
		if err = u.takeUp(); err != nil {
			err = errors.Join(err, u.queue.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("upload queue: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	u.cancel = cancel
	go u.work(ctx)
	return u, nil
}

// takeUp reads the queue. The name of a job file damaged by a crash still identifies what
// to upload.
func (u *Uploader) takeUp() error {
	list, err := fs.ReadDir(u.queue.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if _, isStep := checkpoint.ParseName(name); !ok || !isStep {
			if strings.HasSuffix(e.Name(), PackSuffix) || strings.HasSuffix(e.Name(), ".tmp") || durable.IsTemporary(e.Name()) || strings.HasSuffix(e.Name(), partSuffix) {
				if err := u.queue.Remove(e.Name()); err != nil { // scratch of a killed process
					return err
				}
			}
			continue
		}
		j := &job{name: name}
		text, err := regular.ReadIn(u.queue, e.Name(), regular.Text)
		if err != nil {
			return err
		}
		if json.Unmarshal(text, j) != nil || j.Sessions == nil {
			j.Sessions = map[string]string{}
		}
		if j.release, err = checkpoint.Pin(u.path(name)); err != nil {
			u.opts.OnEvent(UploadEvent{Kind: Dropped, Checkpoint: name, Err: err})
			if err := u.forget(name); err != nil {
				return err
			}
			continue
		}
		u.jobs[name] = j
	}
	return nil
}

func (u *Uploader) path(name string) string { return u.run.Join(checkpoint.Folder, name) }

// file returns the name of a job's file in the queue.
func (u *Uploader) file(name string) string { return name + ".json" }

func (u *Uploader) forget(name string) error {
	if err := u.queue.Remove(u.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Enqueue adds a checkpoint of the run to the queue. Once it returns nil, a kill does not
// lose it.
func (u *Uploader) Enqueue(name string) error {
	if _, ok := checkpoint.ParseName(name); !ok {
		return fmt.Errorf("upload queue: %q is not the name of a checkpoint", name)
	}
	release, err := checkpoint.Pin(u.path(name))
	if err != nil {
		return fmt.Errorf("upload queue: %w", err)
	}
	dropped, err := u.add(name, release)
	for _, j := range dropped {
		u.opts.OnEvent(UploadEvent{Kind: Dropped, Checkpoint: j.name, Err: fmt.Errorf("%d newer checkpoints wait for upload", u.opts.MaxPending)})
	}
	return err
}

func (u *Uploader) add(name string, release func()) (dropped []*job, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	defer u.notice()
	if old := u.jobs[name]; old != nil {
		release()
		old.stuck = false
		return nil, nil
	}
	j := &job{name: name, release: release, Sessions: map[string]string{}}
	if err := u.save(j); err != nil {
		release()
		return nil, fmt.Errorf("upload queue: %w", err)
	}
	u.jobs[name] = j
	for waiting := u.waiting(); len(waiting) > u.opts.MaxPending; waiting = u.waiting() {
		oldest := waiting[len(waiting)-1]
		u.drop(oldest)
		dropped = append(dropped, oldest)
	}
	return dropped, nil
}

// save writes the job file durably. The mutex is held.
func (u *Uploader) save(j *job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return durable.ReplaceIn(u.queue, u.file(j.name), append(text, '\n'))
}

// drop removes a job from the queue. The mutex is held.
func (u *Uploader) drop(j *job) {
	delete(u.jobs, j.name)
	j.release()
	if err := u.forget(j.name); err != nil {
		u.status.Err = err // it will come back at the next start, which is harmless
	}
}

// waiting lists the jobs other than the current one, newest first. The mutex is held.
func (u *Uploader) waiting() []*job {
	list := slices.Collect(maps.Values(u.jobs))
	list = slices.DeleteFunc(list, func(j *job) bool { return j == u.current })
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(number(b.name), number(a.name)) })
	return list
}

func number(name string) int64 {
	update, _ := checkpoint.ParseName(name)
	return update
}

// notice wakes everything that waits for a change. The mutex is held.
func (u *Uploader) notice() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// next returns the newest job that is not stuck. The mutex is held.
func (u *Uploader) next() *job {
	for _, j := range u.waiting() {
		if !j.stuck {
			return j
		}
	}
	return nil
}

func (u *Uploader) work(ctx context.Context) {
	defer close(u.ended)
	for ctx.Err() == nil {
		u.mu.Lock()
		j := u.next()
		u.current = j
		changed := u.changed
		u.mu.Unlock()
		if j == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		u.upload(ctx, j)
	}
}

func (u *Uploader) upload(ctx context.Context, j *job) {
	opts := u.opts.Push
	opts.Scratch, opts.Sessions, opts.Run = u.run.Join(QueueFolder), &jobSessions{u, j}, u.run.ID()
	opts.Progress = func(p Progress) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.status.Progress = p
	}
	retry := opts.Retry
	opts.Retry = func(e RetryEvent) {
		u.mu.Lock()
		u.status.Err = e.Err
		u.mu.Unlock()
		if retry != nil {
			retry(e)
		}
	}
	up, err := (*Upload)(nil), u.run.Check()
	if err == nil {
		up, err = Push(ctx, u.remote, u.path(j.name), opts)
	}
	u.mu.Lock()
	u.status.Progress = Progress{}
	event := UploadEvent{Kind: Uploaded, Checkpoint: j.name, Upload: up}
	switch {
	case err == nil:
		u.status.Uploaded++
		u.status.Err = nil
		u.drop(j)
		for _, other := range u.jobs { // stuck jobs may succeed now, too
			other.stuck = false
		}
	case ctx.Err() != nil: // closed: it stays queued
		event.Kind = ""
	default:
		u.status.Stalled++
		u.status.Err = err
		j.stuck = true
		event = UploadEvent{Kind: Stalled, Checkpoint: j.name, Err: err}
	}
	u.mu.Unlock()
	if event.Kind != "" {
		u.opts.OnEvent(event)
	}
	// Only now, so that everything Drain waited for has been reported.
	u.mu.Lock()
	u.current = nil
	u.notice()
	u.mu.Unlock()
}

// jobSessions keeps the sessions in the job's file.
type jobSessions struct {
	u *Uploader
	j *job
}

func (s *jobSessions) Session(key string) string {
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	return s.j.Sessions[key]
}

func (s *jobSessions) SetSession(key, id string) error {
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	if id == "" {
		delete(s.j.Sessions, key)
	} else {
		s.j.Sessions[key] = id
	}
	return s.u.save(s.j)
}

// Status returns a copy of the current state.
func (u *Uploader) Status() UploadStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.status
	for _, j := range u.waiting() {
		s.Pending = append(s.Pending, j.name)
	}
	return s
}

// Drain waits until nothing is left to upload. The error is ctx's, or names what is
// stuck.
func (u *Uploader) Drain(ctx context.Context) error {
	for {
		u.mu.Lock()
		idle := u.current == nil && u.next() == nil
		stuck, err := len(u.jobs), u.status.Err
		changed := u.changed
		u.mu.Unlock()
		if idle {
			if stuck > 0 {
				return fmt.Errorf("upload queue: %d checkpoints are left: %w", stuck, err)
			}
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("upload queue: %w", ctx.Err())
		}
	}
}

// Close stops at once, in the middle of an object if need be; the queue stays
// on disk for the next NewUploader.
func (u *Uploader) Close() {
	u.cancel()
	<-u.ended
	u.mu.Lock()
	defer u.mu.Unlock()
	for name, j := range u.jobs {
		j.release()
		delete(u.jobs, name)
	}
	_ = u.queue.Close() // nothing is written any more
}
