package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"

	"github.com/snug-ml/snug/data"
)

// Encoder turns text into ids.
type Encoder interface {
	// EncodeOrdinary appends the ids of text to dst; a special token written in the text
	// is text. It is called by many goroutines at once.
	EncodeOrdinary(dst []int32, text []byte) []int32
	// VocabSize is one more than the largest id.
	VocabSize() int
}

// Options are the options of Prepare. Those above Length shape the files.
type Options struct {
	// Tokenizer names the encoder's exact behavior, such as the hash of its
	// file: the same name must mean the same ids.
	Tokenizer string `json:"tokenizer"`
	// EOS is written after each document.
	EOS int32 `json:"eos"`
	// HeldOut is the share of groups held out, in [0, 1).
	HeldOut float64 `json:"held_out"`
	// OwnHeldOut means that the source holds documents out itself: there must be
	// some.
	OwnHeldOut bool `json:"-"`
	// Seed selects which.
	Seed uint64 `json:"seed"`
	// DropDuplicates leaves out each document whose normalized text occurred
	// before in either split.
	DropDuplicates bool `json:"drop_duplicates"`
	// ShardTokens is the number of ids at which a shard ends; 0 means 1<<26.
	ShardTokens int64 `json:"shard_tokens"`
	// Length is the window for which the report states padding; 0 means the longest
	// training document.
	Length int `json:"-"`
	// Corpus is the id of the training split that a run has learned from: other
	// data is refused before it replaces that. Empty: any will do.
	Corpus string `json:"-"`
	// Ends means that the ends of documents could be held out instead of whole documents.
	Ends bool `json:"-"`
	// Workers tokenize in parallel; 0 means one per core.
	Workers int `json:"-"`
	// Progress, when set, is called now and then from one goroutine.
	Progress func(Progress) `json:"-"`
}

// Progress is the progress of a preparation.
type Progress struct {
	Documents, TextBytes, Tokens int64
}

func (o *Options) check(enc Encoder) error {
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.ShardTokens == 0 {
		o.ShardTokens = 1 << 26
	}
	switch vocab := enc.VocabSize(); {
	case vocab < 1:
		return fmt.Errorf("shard: vocabulary of %d", vocab)
	case o.EOS < 0 || int(o.EOS) >= vocab:
		return fmt.Errorf("shard: EOS id %d is outside the vocabulary of %d", o.EOS, vocab)
	case !(o.HeldOut >= 0 && o.HeldOut < 1):
		return fmt.Errorf("shard: held-out share is %v, want 0 or more and less than 1", o.HeldOut)
	case o.ShardTokens < 1 || o.Workers < 1 || o.Length < 0:
		return fmt.Errorf("shard: %d ids a shard, %d workers, window of %d: want 1 or more, 1 or more, 0 or more", o.ShardTokens, o.Workers, o.Length)
	}
	return nil
}

// fingerprint hashes everything that shapes the files.
func (o *Options) fingerprint(src data.Source, vocab int) (string, error) {
	from, err := src.Fingerprint()
	if err != nil {
		return "", err
	}
	raw, err := json.Marshal(struct {
		Version, Vocab int
		Source         string
		Options        *Options
	}{version, vocab, from, o})
	if err != nil {
		return "", fmt.Errorf("shard: %w", err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

// Prepared is the content of a prepared folder.
type Prepared struct {
	Manifest *Manifest
	Report   *Report
	// Reused means that the folder was up to date and intact, so that nothing was
	// written.
	Reused bool
	// Why is the reason for writing, for people.
	Why string
}

// Prepare tokenizes src into the folder dir, which it creates, or replaces as a whole
// once the new one is complete. A folder that was prepared from the same source with the
// same options is left alone; one with other contents is refused. After an error, a
// canceled ctx or a kill, dir is as it was before or, for a moment between two renames,
// absent.
func Prepare(ctx context.Context, dir string, src data.Source, enc Encoder, opt Options) (*Prepared, error) {
	if err := opt.check(enc); err != nil {
		return nil, err
	}
	print, err := opt.fingerprint(src, enc.VocabSize())
	if err != nil {
		return nil, err
	}
	p, why := reuse(dir, print, opt.Length)
	if p != nil {
		return p, nil
	}
	st, err := newStaging(dir)
	if err != nil {
		return nil, err
	}
	defer st.discard()

	w := newWriters(st.tmp, enc.VocabSize(), opt)
	report, err := w.run(ctx, src, enc, opt)
	if err != nil {
		return nil, err
	}
	m := &Manifest{
		Version: version, Fingerprint: print, Tokenizer: opt.Tokenizer,
		VocabSize: enc.VocabSize(), EOS: opt.EOS, Seed: opt.Seed, HeldOut: opt.HeldOut,
		TrainFiles: w[Train].files, HeldFiles: w[HeldOut].files,
	}
	if err := writeJSON(filepath.Join(st.tmp, reportName), report); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	if err := writeJSON(filepath.Join(st.tmp, manifestName), m); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	if err := opt.learned(dir, st.tmp, src, m); err != nil {
		return nil, err
	}
	if err := st.commit(); err != nil {
		return nil, err
	}
	return &Prepared{Manifest: m, Report: report, Why: why}, nil
}

// reuse returns the content of dir if it is intact and has the fingerprint, or why it
// cannot be used.
func reuse(dir, print string, length int) (*Prepared, string) {
	m, err := ReadManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "no prepared data yet"
	}
	if err != nil {
		return nil, err.Error()
	}
	if m.Fingerprint != print {
		return nil, "the files, the tokenizer or the options changed"
	}
	report, err := ReadReport(dir)
	if err != nil {
		return nil, err.Error()
	}
	for _, split := range []Split{Train, HeldOut} {
		if len(m.files(split)) == 0 {
			continue
		}
		c, err := Open(dir, split)
		if err != nil {
			return nil, err.Error()
		}
		if split == Train {
			report.Padding = paddingOf(lengths(c), length)
		}
		if err := c.Close(); err != nil {
			return nil, err.Error()
		}
	}
	return &Prepared{Manifest: m, Report: report, Reused: true}, ""
}

// writers are the writers of the two splits.
type writers [2]*writer

func newWriters(dir string, vocab int, opt Options) writers {
	var w writers
	for s := range w {
		w[s] = &writer{dir: dir, limit: opt.ShardTokens, base: header{
			Width: widthOf(vocab), Tokenizer: tokenizerHash(opt.Tokenizer), Vocab: vocab, EOS: opt.EOS, Split: Split(s),
		}}
	}
	return w
}

// run writes all documents of src and returns the report.
func (w writers) run(ctx context.Context, src data.Source, enc Encoder, opt Options) (*Report, error) {
	defer w[Train].abandon()
	defer w[HeldOut].abandon()
	t := newTally()
	var p Progress
	err := encodeAll(ctx, src, enc, opt.Workers, func(b *batch) error {
		from := 0
		for i, doc := range b.docs {
			tokens := b.tokens[from:b.ends[i]]
			from = b.ends[i]
			t.report.Documents++
			t.report.RepairedBytes += int64(doc.Repaired)
			if len(tokens) == 0 {
				t.report.EmptyDocuments++
				continue
			}
			split := splitOf(opt.Seed, opt.HeldOut, &b.docs[i])
			if t.copy(split, b.hashes[i], doc.ID) && opt.DropDuplicates {
				continue
			}
			if err := w[split].add(tokens, int64(len(doc.Text))); err != nil {
				return fmt.Errorf("shard: %s: %w", doc.ID, err)
			}
			t.add(split, doc.Group, len(tokens)+1, int64(len(doc.Text)))
			p.TextBytes += int64(len(doc.Text))
			p.Tokens += int64(len(tokens)) + 1
		}
		p.Documents += int64(len(b.docs))
		if opt.Progress != nil {
			opt.Progress(p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range w {
		if err := s.finish(); err != nil {
			return nil, fmt.Errorf("shard: %w", err)
		}
	}
	if err := enough(t, opt); err != nil {
		return nil, err
	}
	return t.finish(opt.Length, opt.DropDuplicates), nil
}

// enough refuses splits that nothing can be learned or measured on.
func enough(t *tally, opt Options) error {
	return Census{
		Documents: t.report.Documents, Empty: t.report.EmptyDocuments, Groups: len(t.groups[Train]) + len(t.groups[HeldOut]),
		Train: t.report.Train.Documents, HeldOut: t.report.HeldOut.Documents,
		Own: opt.OwnHeldOut, Ends: opt.Ends,
	}.Check(opt.HeldOut)
}

// Census counts the documents of a source, those without text and those on
// each side of the split.
type Census struct {
	Documents, Empty, Train, HeldOut int64
	Groups                           int // groups that stay together, of documents with text
	// Own means that the source holds documents out itself, Ends that it could hold out
	// their ends.
	Own, Ends bool
}

// Count reads the documents of a source.
func Count(src data.Source, seed uint64, heldOut float64) (c Census, err error) {
	groups := map[string]bool{}
	for doc, err := range src.Documents() {
		if err != nil {
			return c, err
		}
		c.Documents++
		if len(doc.Text) == 0 {
			c.Empty++
			continue
		}
		groups[doc.Group] = true
		if splitOf(seed, heldOut, &doc) == Train {
			c.Train++
		} else {
			c.HeldOut++
		}
	}
	c.Groups = len(groups)
	return c, nil
}

// divided says what to do if the documents with text have too few groups.
func (c Census) divided() string {
	switch {
	case int64(c.Groups) < c.Documents-c.Empty:
		return "divide more finely (data.split_by: document)"
	case c.Ends:
		return "hold out the end of each document (data.split_by: end)"
	}
	return "divide more finely (data.documents: chunk, paragraph or line, with data.split_by: document)"
}

// Check reports what is missing if there is nothing to train on, or nothing is held out
// although a share was configured.
func (c Census) Check(heldOut float64) error {
	switch {
	case c.Documents == 0:
		return errors.New("data.source: there is nothing to train on: the files have no documents")
	case c.Documents == c.Empty:
		return fmt.Errorf("data.source: there is nothing to train on: none of the documents has text (%d read)", c.Documents)
	case c.Train == 0 && c.Own:
		return errors.New("data.source: there is nothing to train on: none of its documents has text")
	case c.HeldOut == 0 && c.Own:
		return errors.New("nothing held out: none of the held-out documents (data.validation, or data.split_by end) has text")
	case c.Groups == 1 && heldOut > 0:
		what := "one document"
		if n := c.Documents - c.Empty; n > 1 {
			what = fmt.Sprintf("one group of %d documents", n)
		}
		return fmt.Errorf("nothing can be held out: the data is %s, of which no share of %v can be taken; %s", what, heldOut, c.divided())
	case c.Train == 0:
		return fmt.Errorf("nothing left to train on: the held-out share of %v took all %d groups of documents; lower data.held_out_fraction, choose another data.shuffle_seed, or %s", heldOut, c.Groups, c.divided())
	case c.HeldOut == 0 && heldOut > 0:
		return fmt.Errorf("nothing held out: none of %d groups of documents fell into the share of %v; raise data.held_out_fraction, choose another data.shuffle_seed, or %s", c.Groups, heldOut, c.divided())
	}
	return nil
}
