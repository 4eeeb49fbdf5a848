// Package corpus is the data recipe of language models. It tokenizes text once into shards, and reads packed
// windows in which the label of each token is the next token of the same stream.
package corpus

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/data/token"
)

// Shards is the cache folder of tokenized text.
const Shards = "shards"

// EndOfText is the special token that ends a document.
const EndOfText = "<|endoftext|>"

// Corpus is a prepared text: a tokenizer and two splits.
type Corpus struct {
	Tokenizer      *token.Tokenizer
	TokenizerFiles map[string][]byte // files as saved, by name
	Baseline       data.Baseline
	*Splits
}

// Source opens the configured documents, with the configured held-out files, grouped by data.split_by.
func Source(c *config.Data, log func(string, ...any)) (data.Source, error) {
	src, err := open(c, log)
	if err != nil {
		return nil, err
	}
	if c.SplitBy == "end" && c.HeldOutFraction > 0 {
		src = data.EndsHeldOut(src, c.HeldOutFraction)
	}
	return grouped{src, c.SplitBy}, nil
}

// open opens the documents, including those of data.validation.
func open(c *config.Data, log func(string, ...any)) (data.Source, error) {
	var held *data.Files
	if len(c.Validation) > 0 {
		var err error
		if held, err = openFiles(c, c.Validation, log); err != nil {
			return nil, fmt.Errorf("data.validation: %w", err)
		}
	}
	if c.Format == "gotree" {
		tree, err := data.OpenGoTree(data.GoTreeOptions{})
		if err != nil || held == nil {
			return tree, err
		}
		return data.WithHeldOut(tree, held), nil
	}
	src, err := openFiles(c, c.Source, log)
	if err != nil || held == nil {
		return src, err
	}
	if file := src.Shared(held); file != "" {
		return nil, fmt.Errorf("data.validation: %s is in data.source too: what is held out must not be trained on", file)
	}
	return data.WithHeldOut(src, held), nil
}

// Prompt returns an example prompt: code for a model of Go, otherwise that of the samples, without spaces around it.
func Prompt(c *config.Config) string {
	if c.Data.Format == "gotree" {
		return "func main"
	}
	return strings.TrimSpace(c.Training.Sample.Prompt)
}

// openFiles opens the documents of files.
func openFiles(c *config.Data, patterns []string, log func(string, ...any)) (*data.Files, error) {
	opt := data.Options{
		TextField: c.TextField, ArrayKey: c.ArrayKey, Split: c.Documents, Overlap: c.Overlap,
		MaxRecord: int64(c.MaxRecord), ReplaceInvalid: c.ReplaceInvalid,
	}
	if c.Format != "auto" && c.Format != "gotree" {
		opt.Format = c.Format
	}
	f, err := data.OpenFiles(patterns, opt, c.CacheDir)
	if err != nil {
		return nil, err
	}
	f.TellLeft(log)
	return f, nil
}

// grouped decides what stays on the same side of the split: each document, or all documents below a folder.
type grouped struct {
	data.Source
	by string
}

// Fingerprint implements [data.Source].
func (g grouped) Fingerprint() (string, error) {
	print, err := g.Source.Fingerprint()
	return print + " by " + g.by, err
}

// Documents implements [data.Source].
func (g grouped) Documents() iter.Seq2[data.Document, error] {
	return func(yield func(data.Document, error) bool) {
		for d, err := range g.Source.Documents() {
			if g.by == "folder" {
				d.Group = path.Dir(d.Group)
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// Prepare tokenizes the configured text below cache, or reuses the result for the same text and settings, and
// opens it as windows of length tokens. position is the position of a resumed run, as in
// [system.Env.Position].
func Prepare(ctx context.Context, c *config.Config, cache string, position json.RawMessage, length int, log func(string, ...any)) (*Corpus, error) {
	src, err := Source(&c.Data, log)
	if err != nil {
		return nil, err
	}
	out := &Corpus{}
	tok, keep, err := tokenizer(ctx, c, src, cache, log)
	if err != nil {
		return nil, err
	}
	out.Tokenizer = tok
	if out.TokenizerFiles, err = tok.Files(); err != nil {
		return nil, err
	}
	eos, ok := out.Tokenizer.Special(token.EOS)
	if !ok {
		return nil, fmt.Errorf("data.tokenizer.path %s: the tokenizer has no end-of-text token, which separates documents; add one called %s", c.Data.Tokenizer.Path, EndOfText)
	}
	out.Splits, err = Tokenize(ctx, filepath.Join(cache, Shards), src, out.Tokenizer, shard.Options{
		Tokenizer: Hash(out.TokenizerFiles), EOS: eos, HeldOut: c.Data.SplitShare(), OwnHeldOut: ownHeldOut(&c.Data), Ends: true, Seed: c.Data.ShuffleSeed, Length: length, Corpus: Learned(position),
	}, log)
	if err != nil {
		return nil, err
	}
	if err := keep(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	if out.HeldOut != nil {
		if out.Baseline, err = data.Baselines(ctx, out.Train, out.HeldOut); err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	return out, nil
}

// ownHeldOut reports whether the source itself defines what is held out.
func ownHeldOut(d *config.Data) bool { return d.HoldsOut() && d.SplitShare() == 0 }

// Learned returns the id of the text that a run has learned from up to a position, or "" if the position
// names none.
func Learned(position json.RawMessage) string {
	var at data.Position
	if position == nil || json.Unmarshal(position, &at) != nil { // a position of another kind of loader
		return ""
	}
	return at.Corpus
}

// tokenizer loads the configured tokenizer, or one trained earlier on the same text, or else trains one. keep
// saves a newly trained tokenizer.
func tokenizer(ctx context.Context, c *config.Config, src data.Source, cache string, log func(string, ...any)) (t *token.Tokenizer, keep func() error, err error) {
	if file := c.Data.Tokenizer.Path; file != "" {
		if t, err = token.Load(file); err != nil {
			return nil, nil, fmt.Errorf("data.tokenizer.path: %w", err)
		}
		return t, func() error { return nil }, nil
	}
	print, err := src.Fingerprint()
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %v", print, c.Data.Tokenizer.VocabSize, c.Data.ShuffleSeed, c.Data.SplitShare()))
	dir := filepath.Join(cache, "tokenizer-"+hex.EncodeToString(sum[:8]))
	// Held-out text must not influence the tokenizer either.
	seen := shard.Select(src, shard.Train, c.Data.ShuffleSeed, c.Data.SplitShare())
	t, keep, err = token.LoadOrTrain(ctx, dir, data.Texts(seen, 0), token.TrainOptions{
		VocabSize: c.Data.Tokenizer.VocabSize, Specials: []token.Special{{Content: EndOfText, Roles: []token.Role{token.EOS}}},
	}, log)
	if errors.Is(err, token.ErrNoText) {
		err = missing(&c.Data, src, err)
	}
	return t, keep, err
}

// missing returns the reason why there is no document to train on, or otherwise if it is unclear.
func missing(d *config.Data, src data.Source, otherwise error) error {
	n, err := shard.Count(src, d.ShuffleSeed, d.SplitShare())
	n.Own, n.Ends = ownHeldOut(d), true
	return cmp.Or(err, n.Check(d.SplitShare()), otherwise)
}

// Hash identifies a tokenizer by its files, as saved.
func Hash(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, _ = fmt.Fprintf(h, "%s %d\n%s", name, len(files[name]), files[name]) // a hash never fails to write
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
