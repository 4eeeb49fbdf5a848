package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train/rundir"
)

// Options tune a Store; the zero value is good.
type Options struct {
	KeepLast int // newest ones kept; 0 means 3
	KeepBest int // best ones by Metric kept besides; 0 means 1, negative none
	Attempts int // tries of one save before it is given up; 0 means 6
	// OnEvent gets the events, from the goroutine that writes: it must not
	// block for long nor call the Store's Save, Flush or Close.
	OnEvent func(Event)
	// SyncLog, when set, makes the run's log durable. It is called from the
	// goroutine that writes, before a checkpoint gets its name, so that no power
	// cut leaves a checkpoint without the log that led to it. Its error is reported
	// as Warning: weights are worth more than their log and are saved anyway.
	SyncLog func() error

	fsys  fsys
	sleep func(time.Duration) <-chan time.Time
}

// EventKind is the kind of an Event.
type EventKind string

// The events of a Store.
const (
	Saved   EventKind = "saved"   // durable; Path may be read or uploaded
	Bad     EventKind = "bad"     // durable, but its state is not good, see Err; it replaces nothing
	Retry   EventKind = "retry"   // an attempt failed, the next comes in Wait
	Failed  EventKind = "failed"  // given up; training continues, the last good one stays
	Removed EventKind = "removed" // deleted by retention
	Warning EventKind = "trouble" // retention, cleaning or the log could not do its work
	Moved   EventKind = "moved"   // the run folder was moved to Path, where the run continues
	Skipped EventKind = "skipped" // not tried: another save is being written, or the state is not worth one
)

// Event is one thing that happened in the background.
type Event struct {
	Kind    EventKind
	Update  int64
	Path    string
	Bytes   int64
	Took    time.Duration
	Attempt int
	Wait    time.Duration
	Held    time.Duration // how long updates waited for it
	Err     error
}

// String is the event as a line for people.
func (e Event) String() string {
	switch e.Kind {
	case Saved:
		text := fmt.Sprintf("checkpoint %s saved: %s in %.1f s", filepath.Base(e.Path), size.Bytes(e.Bytes), e.Took.Seconds())
		if e.Held >= 50*time.Millisecond {
			text += fmt.Sprintf("; updates waited %.1f s for it", e.Held.Seconds())
		}
		return text
	case Retry:
		return fmt.Sprintf("saving update %d failed (attempt %d): %v; next try in %s, with the state of then; training continues", e.Update, e.Attempt, e.Err, e.Wait.Round(time.Millisecond))
	case Failed:
		return fmt.Sprintf("saving update %d was given up: %v; the last good checkpoint stays, training continues", e.Update, e.Err)
	case Bad:
		return fmt.Sprintf("the state of update %d is not good: %v; the last good checkpoint stays", e.Update, e.Err)
	case Warning:
		return fmt.Sprintf("checkpoints: %v", e.Err)
	case Skipped:
		return fmt.Sprintf("update %d is not saved: %v", e.Update, e.Err)
	}
	out := "checkpoint"
	if e.Path != "" {
		out += " " + filepath.Base(e.Path)
	}
	return out + " " + string(e.Kind)
}

// Status is what a progress line and a summary show.
type Status struct {
	Writing  bool          // a save is in flight
	Update   int64         // of the save in flight
	Attempt  int           // of the save in flight, from 1
	Waiting  bool          // it failed and waits for the next attempt
	Last     string        // path of the last good one that was saved
	LastAt   int64         // its update, -1 before the first
	Took     time.Duration // how long the last save was written in the background
	Held     time.Duration // how long updates waited for the last one
	Bytes    int64         // of the last saved one
	Saves    int64         // done
	Retries  int64         // failed attempts
	Failures int64         // saves given up
	Err      error         // of the last attempt that failed; nil once one succeeds
}

// Store writes the checkpoints of one run.
type Store struct {
	home *rundir.Dir
	root *os.Root    // RUN/checkpoints
	self fs.FileInfo // of it
	fsys fsys        // by which it is changed
	opts Options

	mu       sync.Mutex
	status   Status
	job      *job
	settled  *sync.Cond    // an attempt has ended
	renewed  chan struct{} // another job has come while one waits for its next attempt
	wanted   bool          // the state that waits for its next attempt is gone: a new one is to come
	done     chan struct{} // closed when the save in flight has ended; nil if none is
	wake     chan struct{} // cuts the pause before the next attempt
	failed   error         // outcome of the last finished save
	bad      *BadError     // the last save that was not good
	names    []string      // paths that the folder has had, the newest last
	closed   bool
	staging  staging
	held     atomic.Int64 // nanoseconds that updates waited
	retained retained
}

// Open locks the run folder for this process, making it if need be, finishes
// or removes what an interrupted process left half done, and returns the store
// of its checkpoints. Another process in it is a *rundir.LockedError.
func Open(runDir string, opts Options) (*Store, error) {
	if opts.KeepLast == 0 {
		opts.KeepLast = 3
	}
	if opts.KeepBest == 0 {
		opts.KeepBest = 1
	}
	if opts.Attempts == 0 {
		opts.Attempts = 6
	}
	if opts.KeepLast < 1 || opts.Attempts < 1 {
		return nil, fmt.Errorf("checkpoint: keep_last %d and attempts %d must be at least 1", opts.KeepLast, opts.Attempts)
	}
	if opts.OnEvent == nil {
		opts.OnEvent = func(Event) {}
	}
	if opts.SyncLog == nil {
		opts.SyncLog = func() error { return nil }
	}
	if opts.sleep == nil {
		opts.sleep = time.After
	}
	s := &Store{opts: opts, fsys: opts.fsys, status: Status{LastAt: -1}, renewed: make(chan struct{}, 1)}
	s.settled = sync.NewCond(&s.mu)
	disk := opts.fsys
	if disk == nil {
		disk = osFS{}
	}
	if err := mkdirAll(disk, runDir); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	home, err := rundir.Open(runDir, s.wasMoved)
	if err != nil {
		return nil, err
	}
	s.home = home
	if InPhases(runDir) {
		return nil, errors.Join(&InPhasesError{runDir}, s.release())
	}
	if err := s.takeFolder(disk); err != nil {
		return nil, errors.Join(fmt.Errorf("folder of checkpoints: %w", err), s.release())
	}
	return s, nil
}

// Latest is Latest of the store's folder.
func (s *Store) Latest() (*Checkpoint, []Rejected, error) { return Latest(s.Dir()) }

// KeepsBest reports whether the best checkpoint outlives newer ones.
func (s *Store) KeepsBest() bool { return s.opts.KeepBest > 0 }

// Reserve allocates the staging buffer of the given size now, so that the
// first save does not; see StagingBytes.
func (s *Store) Reserve(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done != nil || s.closed {
		return nil
	}
	return s.staging.resize(bytes)
}

// Held is how long updates have waited for saves so far, because they were about to change
// what was not read yet.
func (s *Store) Held() time.Duration { return time.Duration(s.held.Load()) }

// Wants reports whether a save is due because an earlier one failed, and its state has
// changed since.
func (s *Store) Wants() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted
}

// SaveAsync saves the snapshot in the background: its live tensors as they are now, though
// they may change once it has returned. What is about to change before the writer has read
// it is staged, and where the staging buffer is full the change waits for the writer.
//
// While the former save is being written it waits; one that only waits for its next
// attempt is replaced by the new one, which is more recent. Errors are for a snapshot that
// can never be written.
func (s *Store) SaveAsync(snap *Snapshot) error {
	if err := s.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done != nil && !s.status.Waiting {
		s.settled.Wait()
	}
	if s.closed {
		return errors.New("checkpoint: the store is closed")
	}
	c := newCapture(snap.Live, &s.staging, &s.held)
	j, err := newJob(snap, c)
	if err != nil {
		return err
	}
	if s.done != nil {
		s.job.capture.end(over)
		if s.wanted {
			s.status.Waiting = false // it is written now
		} else {
			c.end(paused) // until the next attempt
		}
	}
	if err := c.reserve(); err != nil {
		return err
	}
	j.manifest.Run = s.home.ID()
	if len(c.tensors) > 0 {
		snap.Live.Guard(c.change)
	}
	s.job, s.wanted = j, false
	s.status.Update = j.update
	if s.done == nil {
		s.done, s.wake = make(chan struct{}), make(chan struct{}, 1)
		s.status.Writing, s.status.Attempt = true, 0
		go s.run()
		return nil
	}
	select {
	case s.renewed <- struct{}{}:
	default:
	}
	return nil
}

// Attempted waits until no attempt at a save is under way, whatever becomes of it: for
// tensors that can be read only until training goes on.
func (s *Store) Attempted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.done != nil && !s.status.Waiting {
		s.settled.Wait()
	}
}

// Save writes a snapshot and waits for it: the former save first, then this
// one. It is for the last checkpoint of a run.
func (s *Store) Save(ctx context.Context, snap *Snapshot) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	if err := s.SaveAsync(snap); err != nil {
		return err
	}
	return s.Flush(ctx)
}

// Flush waits until no save is in flight and returns the error of the last one
// if it was given up, and a *BadError if its state was not good. Pauses between
// attempts are cut short. When ctx ends first, its error is returned and the save
// continues.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *Store) wait(ctx context.Context) error {
	s.mu.Lock()
	done, wake := s.done, s.wake
	s.mu.Unlock()
	if done == nil {
		return nil
	}
	tick := time.NewTicker(time.Second) // each cuts one pause, so attempts stay apart
	defer tick.Stop()
	for {
		select {
		case wake <- struct{}{}:
		default:
		}
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("checkpoint: save not finished: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// Status is a copy of the present state.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Close ends the store and unlocks the run folder. A save that is being
// written is finished, one that waits for another attempt is given up.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	done, wake := s.done, s.wake
	s.mu.Unlock()
	if done != nil {
		select {
		case wake <- struct{}{}:
		default:
		}
		<-done
	}
	return s.release()
}

// run writes the job, with retries, and ends.
func (s *Store) run() {
	for j, attempt := s.next(false); j != nil; {
		start := time.Now()
		if err := s.opts.SyncLog(); err != nil {
			s.opts.OnEvent(Event{Kind: Warning, Update: j.update, Err: fmt.Errorf("the log up to update %d may not survive a power cut: %w", j.update, err)})
		}
		err := s.mayWrite(j.update)
		var path string
		if err == nil {
			path, err = j.write(s.fsys, s.Dir())
		}
		var bad *BadError
		switch {
		case err == nil && j.manifest.Health.Problem == "":
			s.saved(j, path, time.Since(start))
			return
		case err == nil, errors.As(err, &bad):
			s.savedBad(j, path)
			return
		}
		j, attempt = s.pause(j, attempt, err)
	}
}

// next begins an attempt at the newest job. Where its state has changed since the last
// attempt it waits for another job, unless somebody waits for the end (woken): then, and
// when the store is closed, there is none.
func (s *Store) next(woken bool) (j *job, attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first := s.status.Attempt == 0; first || !s.closed; {
		if s.job.capture.begin() {
			s.status.Attempt++
			s.status.Waiting = false
			return s.job, s.status.Attempt
		}
		if woken {
			break
		}
		s.wanted = true
		wake := s.wake
		s.mu.Unlock()
		select {
		case <-s.renewed:
		case <-wake:
			woken = true
		}
		s.mu.Lock()
	}
	s.status.Waiting, s.wanted = false, false
	return nil, 0
}

// saved reports a durable checkpoint, then lets retention work.
func (s *Store) saved(j *job, path string, took time.Duration) {
	s.mu.Lock()
	s.status.Last, s.status.LastAt, s.status.Took = path, j.update, took
	s.status.Bytes, s.status.Held = j.bytes-headerSlack, j.capture.waited()
	s.status.Saves++
	s.status.Err = nil
	s.failed = nil
	s.retained.wrote(path)
	s.mu.Unlock()
	// An abandoned future is removed before the new one is reported: from then on
	// the new one must be the latest.
	s.retain(path, s.left)
	s.opts.OnEvent(Event{Kind: Saved, Update: j.update, Path: path, Bytes: j.bytes - headerSlack, Took: took, Held: j.capture.waited()})
	s.retain(path, s.surplus)
	s.end()
}

// savedBad reports a checkpoint whose state is not good; path is empty if it
// was not written because a good one has its name. The last good one stays the
// last, and only bad ones before it go.
func (s *Store) savedBad(j *job, path string) {
	err := &BadError{path, *j.manifest.Health}
	s.mu.Lock()
	s.status.Err, s.failed, s.bad = nil, err, err
	if path != "" {
		s.retained.wrote(path)
		s.retained.whole[filepath.Base(path)] = false
	}
	s.mu.Unlock()
	s.opts.OnEvent(Event{Kind: Bad, Update: j.update, Path: path, Err: err})
	if path != "" {
		s.retain(path, s.surplus)
	}
	s.end()
}

// Bad is the last save whose state was not good, nil if none was.
func (s *Store) Bad() *BadError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad
}

// end marks that nothing is in flight.
func (s *Store) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Writing, s.status.Waiting = false, false
	s.job.capture.end(over)
	close(s.done)
	s.done, s.job = nil, nil
	s.settled.Broadcast()
}

// pause waits before the next attempt, 1 s doubled each time up to a minute,
// with jitter so that runs that share a disk do not retry in step. Training goes on
// meanwhile, so that the next attempt may be at a later state. There is none after the
// last.
func (s *Store) pause(j *job, attempt int, err error) (*job, int) {
	gone := s.Check()
	j.capture.end(paused)
	s.mu.Lock()
	s.status.Retries++
	s.status.Err = err
	again := attempt < s.opts.Attempts && !s.closed && gone == nil
	s.status.Waiting = again
	s.settled.Broadcast()
	wake := s.wake
	s.mu.Unlock()
	if again {
		wait := min(time.Second<<min(attempt-1, 6), time.Minute)
		wait = wait/2 + rand.N(wait/2+1)
		s.opts.OnEvent(Event{Kind: Retry, Update: j.update, Attempt: attempt, Wait: wait, Err: err})
		woken := false
		select {
		case <-s.opts.sleep(wait):
		case <-wake:
			woken = true
		}
		if next, attempt := s.next(woken); next != nil {
			return next, attempt
		}
	}
	s.mu.Lock()
	j = s.job
	s.status.Failures++
	failed := fmt.Errorf("checkpoint: update %d was not saved after %s: %w", j.update, size.Of(attempt, "attempt"), err)
	if gone != nil {
		failed = fmt.Errorf("checkpoint: update %d was not saved: %w", j.update, gone)
	}
	s.failed = failed
	s.mu.Unlock()
	s.opts.OnEvent(Event{Kind: Failed, Update: j.update, Attempt: attempt, Err: failed})
	s.end()
	return nil, 0
}
