package shard

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data"
)

// ChangedError is returned if the data that a run has learned from would be replaced by
// other data. Nothing was replaced.
type ChangedError struct {
	Dir string   // of the prepared data
	Now []string // what has changed
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s is not replaced: the run was trained on other data; what changed: %s; restore the old data, or start a new run with another --out (and another data.cache_dir, if it is set)", e.Dir, strings.Join(e.Now, ", "))
}

// The things that can change.
const (
	sourceChanged    = "the files of data.source"
	tokenizerChanged = "the tokenizer"
)

// learned refuses to replace dir by what was prepared in tmp, described by m, unless it
// is the data that the run has learned from and was evaluated on.
func (o *Options) learned(dir, tmp string, src data.Source, m *Manifest) error {
	if o.Corpus == "" {
		return nil
	}
	c, err := Open(tmp, Train)
	if err != nil {
		return err
	}
	same := c.ID() == o.Corpus
	if err := c.Close(); err != nil {
		return err
	}
	old, err := ReadManifest(dir)
	if err != nil { // it is missing or damaged: made again it must be the same
		old = nil
	}
	if same && (old == nil || slices.Equal(old.HeldFiles, m.HeldFiles)) {
		return nil
	}
	e := &ChangedError{Dir: dir, Now: []string{sourceChanged + " or " + tokenizerChanged}}
	if old == nil {
		return e
	}
	// With the old tokenizer, are the files the old ones?
	then := *o
	then.Tokenizer, then.EOS = old.Tokenizer, old.EOS
	print, err := then.fingerprint(src, old.VocabSize)
	if err != nil {
		return errors.Join(e, err)
	}
	e.Now = nil
	if print != old.Fingerprint {
		e.Now = append(e.Now, sourceChanged)
	}
	if old.Tokenizer != m.Tokenizer {
		e.Now = append(e.Now, tokenizerChanged)
	}
	return e
}
