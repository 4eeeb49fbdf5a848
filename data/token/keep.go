package token

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"path/filepath"
)

// LoadOrTrain loads the tokenizer that was trained and saved in dir before. If there is none, or
// a damaged one, it trains one on docs, which keep saves in dir: until then nothing is written,
// so that a run that is refused leaves nothing behind. Both give the same tokenizer.
func LoadOrTrain(ctx context.Context, dir string, docs iter.Seq2[[]byte, error], opt TrainOptions, log func(string, ...any)) (t *Tokenizer, keep func() error, err error) {
	t, err = Load(filepath.Join(dir, File))
	if err == nil {
		return t, func() error { return nil }, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		log("data: %v: preparing it again", err)
	}
	log("data: training a byte-level BPE tokenizer of %d tokens", opt.VocabSize)
	trained, err := TrainBPE(ctx, docs, opt)
	if err != nil {
		return nil, nil, err
	}
	t, err = trained.reloaded()
	return t, func() error { return trained.SaveWhole(dir) }, err
}
