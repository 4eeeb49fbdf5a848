package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/snug-ml/snug/train/remote"
)

// remote returns the storage that checkpoint.remote names, nil if none. It does not connect yet.
func (s *Setup) remote() (remote.Remote, error) {
	where := s.Config.Checkpoint.Remote
	if where == "" {
		return nil, nil
	}
	to, err := remote.Open(where, remote.Config{})
	if err != nil {
		return nil, usage("checkpoint.remote: %w", err)
	}
	return to, nil
}

// startUploads opens checkpoint.remote, if there is one.
func (r *run) startUploads() error {
	c := &r.Config.Checkpoint
	if c.Remote == "" {
		return nil
	}
	to, err := r.remote()
	if err != nil {
		return err
	}
	r.uploads, err = remote.NewUploader(r.store.Run(), to, remote.UploaderOptions{
		Push:    remote.PushOptions{Pack: c.Compression == "zstd", Retry: func(e remote.RetryEvent) { r.emit(e) }},
		OnEvent: func(e remote.UploadEvent) { r.emit(e) },
	})
	return err
}

// finishUploads gives queued uploads some time to arrive. The queue on disk keeps the rest for the next
// session.
func (r *run) finishUploads() error {
	if r.uploads == nil {
		return nil
	}
	if r.store.Check() != nil { // nothing is left to upload, which was reported
		r.uploads.Close()
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.Config.Checkpoint.Grace)
	defer cancel()
	err := r.uploads.Drain(ctx)
	r.uploads.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("uploads are not finished after checkpoint.grace (%s); the rest is queued in %s and continues with --resume: %w", r.Config.Checkpoint.Grace, r.store.Run().Join(remote.QueueFolder), err)
	}
	return err
}
