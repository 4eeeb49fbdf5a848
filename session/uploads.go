package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/snug-ml/snug/train/remote"
)

// startUploads opens checkpoint.remote, if there is one.
func (r *run) startUploads() error {
	c := &r.Config.Checkpoint
	if c.Remote == "" {
		return nil
	}
	to, err := remote.Open(c.Remote, remote.Config{})
	if err != nil {
		return fmt.Errorf("checkpoint.remote: %w", err)
	}
	r.uploads, err = remote.NewUploader(r.store.Run(), to, remote.UploaderOptions{
		Push:    remote.PushOptions{Pack: c.Compression == "zstd", Retry: func(e remote.RetryEvent) { r.emit(e) }},
		OnEvent: func(e remote.UploadEvent) { r.emit(e) },
	})
	return err
}

// finishUploads gives what is queued some time to arrive; the queue on disk
// keeps the rest for the next session.
func (r *run) finishUploads() error {
	if r.uploads == nil {
		return nil
	}
	if r.store.Check() != nil { // there is nothing left to upload, which is reported
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
