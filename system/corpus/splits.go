package corpus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/data/token"
)

// Splits holds tokenized documents, opened as packed windows.
type Splits struct {
	Train, HeldOut *data.Windows // HeldOut is nil if nothing is held out
	Report         *shard.Report
	Bytes          int64 // size of the shards
	close          []func() error
}

// Tokenize makes shards of the documents in folder dir, or reuses those made from the same documents with the
// same options, and opens them as windows of opt.Length tokens.
func Tokenize(ctx context.Context, dir string, src data.Source, t *token.Tokenizer, opt shard.Options, log func(string, ...any)) (*Splits, error) {
	p, err := shard.Prepare(ctx, dir, src, t, opt)
	if err != nil {
		return nil, err
	}
	if p.Reused {
		log("data: reusing %s", dir)
	} else {
		log("data: tokenized into %s (%s)", dir, p.Why)
	}
	if n := p.Report.EmptyDocuments; n > 0 {
		log("data: %d of %d documents are empty and skipped", n, p.Report.Documents)
	}
	if n := p.Report.Duplicates.Across; n > 0 {
		log("data: %d of %d held-out documents also occur in the training data (ignoring case and white space), so the held-out loss partly measures memorization", n, p.Report.HeldOut.Documents)
	}
	s := &Splits{Report: p.Report}
	if s.Train, err = s.open(dir, shard.Train, opt.Length); err != nil {
		return nil, errors.Join(fmt.Errorf("training split: %w", err), s.Close())
	}
	if opt.HeldOut > 0 || opt.OwnHeldOut {
		if s.HeldOut, err = s.open(dir, shard.HeldOut, opt.Length); err != nil {
			return nil, errors.Join(fmt.Errorf("held-out split: %w", err), s.Close())
		}
	}
	if s.Bytes, err = folderBytes(dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Splits) open(dir string, split shard.Split, length int) (*data.Windows, error) {
	c, err := shard.Open(dir, split)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, c.Close)
	return data.NewWindows(c, data.WindowOptions{Length: length})
}

// Close unmaps the shards.
func (s *Splits) Close() error {
	var errs []error
	for _, f := range s.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func folderBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
