package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"path/filepath"
	"unicode"
	"unicode/utf8"

	"github.com/snug-ml/snug/data"
)

// Report is what Prepare found. It is kept next to the shards.
type Report struct {
	Documents      int64 `json:"documents"`       // read from the source
	EmptyDocuments int64 `json:"empty_documents"` // left out: no tokens
	// RepairedBytes counts the invalid UTF-8 bytes that were replaced by U+FFFD.
	RepairedBytes int64       `json:"repaired_bytes"`
	Train         SplitReport `json:"train"`
	HeldOut       SplitReport `json:"held_out"`
	Duplicates    Duplicates  `json:"duplicates"`
	Padding       Padding     `json:"padding"`
}

// SplitReport counts one split as written.
type SplitReport struct {
	Groups    int64 `json:"groups"`
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"` // EOS included
	TextBytes int64 `json:"text_bytes"`
	// Lengths of documents in tokens, EOS included.
	Lengths Quantiles `json:"lengths"`
	// Histogram has in place i the documents of 2^i to 2^(i+1)-1 tokens.
	Histogram []int64 `json:"histogram"`
}

// Quantiles of document lengths.
type Quantiles struct {
	Min  int     `json:"min"`
	P5   int     `json:"p5"`
	P25  int     `json:"p25"`
	P50  int     `json:"p50"`
	P75  int     `json:"p75"`
	P95  int     `json:"p95"`
	P99  int     `json:"p99"`
	Max  int     `json:"max"`
	Mean float64 `json:"mean"`
}

// Duplicates counts documents whose normalized text (white space runs as one
// space, none at the ends, lower case) occurred before, in the order of the
// source.
type Duplicates struct {
	WithinTrain   int64 `json:"within_train"`
	WithinHeldOut int64 `json:"within_held_out"`
	// Across counts the held-out documents that are also in the training split: on these,
	// the held-out loss measures memorization.
	Across int64 `json:"across"`
	// Dropped means that every later copy was left out, so that none is left.
	Dropped bool `json:"dropped"`
	// Examples names some of the copies.
	Examples []string `json:"examples,omitempty"`
}

// Padding is the share of padding in a model's inputs from the training split, for
// three ways to fill windows of Length tokens.
type Padding struct {
	Length int `json:"length"`
	// Fixed pads or cuts every document to Length.
	Fixed float64 `json:"fixed"`
	// Buckets pads to the smallest of BucketLengths that fits.
	Buckets       float64 `json:"buckets"`
	BucketLengths []int   `json:"bucket_lengths"`
	// Packed joins documents with EOS: only an epoch's last window is padded.
	Packed float64 `json:"packed"`
}

const (
	maxExamples    = 10
	reportBuckets  = 4
	bucketMultiple = 8
)

// ReadReport reads the report of a prepared folder.
func ReadReport(dir string) (*Report, error) {
	var r Report
	if err := readJSON(filepath.Join(dir, reportName), &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// tally gathers a Report while documents pass in source order.
type tally struct {
	report  Report
	lengths [2]data.Lengths
	groups  [2]map[uint64]struct{}
	seen    map[uint64]copies
}

// copies counts the documents of one text in each split.
type copies [2]uint32

func newTally() *tally {
	t := &tally{seen: map[uint64]copies{}}
	for s := range t.lengths {
		t.lengths[s], t.groups[s] = data.Lengths{}, map[uint64]struct{}{}
	}
	return t
}

// copy counts a document's text and reports whether it occurred before.
func (t *tally) copy(split Split, text uint64, id string) bool {
	c := t.seen[text]
	before := c[Train]+c[HeldOut] > 0
	d := &t.report.Duplicates
	switch {
	case c[split] == 0:
	case split == HeldOut:
		d.WithinHeldOut++
	default:
		d.WithinTrain++
	}
	if before && len(d.Examples) < maxExamples {
		d.Examples = append(d.Examples, id)
	}
	c[split]++
	t.seen[text] = c
	return before
}

// add counts a document that was written.
func (t *tally) add(split Split, group string, tokens int, textBytes int64) {
	r := t.split(split)
	r.Documents++
	r.Tokens += int64(tokens)
	r.TextBytes += textBytes
	t.lengths[split][tokens]++
	t.groups[split][hash64([]byte(group))] = struct{}{}
	bin := bits.Len(uint(tokens)) - 1
	for len(r.Histogram) <= bin {
		r.Histogram = append(r.Histogram, 0)
	}
	r.Histogram[bin]++
}

func (t *tally) split(s Split) *SplitReport {
	if s == HeldOut {
		return &t.report.HeldOut
	}
	return &t.report.Train
}

// finish closes the report.
func (t *tally) finish(length int, dropped bool) *Report {
	r := &t.report
	r.Duplicates.Dropped = dropped
	for _, c := range t.seen {
		if c[Train] > 0 {
			r.Duplicates.Across += int64(c[HeldOut])
		}
	}
	for s := range t.lengths {
		l, sr := t.lengths[s], t.split(Split(s))
		sr.Groups = int64(len(t.groups[s]))
		q := &sr.Lengths
		*q = Quantiles{Min: l.Quantile(0), P5: l.Quantile(.05), P25: l.Quantile(.25), P50: l.Quantile(.5),
			P75: l.Quantile(.75), P95: l.Quantile(.95), P99: l.Quantile(.99), Max: l.Quantile(1)}
		if sr.Documents > 0 {
			q.Mean = float64(sr.Tokens) / float64(sr.Documents)
		}
	}
	r.Padding = paddingOf(t.lengths[Train], length)
	return r
}

// paddingOf compares three ways to feed documents of these lengths; length 0 means the
// longest.
func paddingOf(l data.Lengths, length int) Padding {
	if length == 0 {
		length = l.Quantile(1)
	}
	buckets := l.Buckets(reportBuckets, bucketMultiple, length)
	inputs := l.Sum() - 1 // the last token is only a label
	windows := (inputs + int64(length) - 1) / int64(length)
	return Padding{
		Length: length, Fixed: l.PaddingShare([]int{length}),
		Buckets: l.PaddingShare(buckets), BucketLengths: buckets,
		Packed: 1 - float64(inputs)/float64(max(1, windows)*int64(length)),
	}
}

// lengths counts the documents of a corpus by their length.
func lengths(c *Corpus) data.Lengths {
	l, last := data.Lengths{}, int64(0)
	for _, e := range c.ends {
		l[int(e-last)]++
		last = e
	}
	return l
}

// normalHash hashes a document's normalized text; with 64 bits, two of ten million
// texts collide with a chance of 3e-6. scratch is reused.
func normalHash(doc data.Document, scratch []byte) (uint64, []byte) {
	scratch = scratch[:0]
	if doc.Text == nil {
		for _, id := range doc.Tokens {
			scratch = binary.LittleEndian.AppendUint32(scratch, uint32(id))
		}
		return hash64(scratch), scratch
	}
	space := false
	for text := doc.Text; len(text) > 0; {
		r, n := rune(text[0]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(text)
		}
		text = text[n:]
		if unicode.IsSpace(r) {
			space = true
			continue
		}
		if space && len(scratch) > 0 {
			scratch = append(scratch, ' ')
		}
		space = false
		scratch = utf8.AppendRune(scratch, unicode.ToLower(r))
	}
	return hash64(scratch), scratch
}

func hash64(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}
