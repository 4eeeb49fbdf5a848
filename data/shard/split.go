package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/snug-ml/snug/data"
)

// Split is a part of a corpus.
type Split uint32

// The splits.
const (
	Train Split = iota
	HeldOut
)

// String names the split as the files do.
func (s Split) String() string {
	switch s {
	case Train:
		return "train"
	case HeldOut:
		return "heldout"
	}
	return fmt.Sprintf("split %d", uint32(s))
}

// splitOf assigns a document to a split: that of its group, unless its source holds it
// out.
func splitOf(seed uint64, share float64, d *data.Document) Split {
	if d.HeldOut {
		return HeldOut
	}
	return splitOfGroup(seed, share, d.Group)
}

// splitOfGroup assigns a group to a split: held out with probability share over seeds and
// names, and the same for the same seed and name forever.
func splitOfGroup(seed uint64, share float64, group string) Split {
	h := sha256.New()
	var s [8]byte
	binary.LittleEndian.PutUint64(s[:], seed)
	// A hash never fails to write.
	_, _ = h.Write(s[:])
	_, _ = h.Write([]byte(group))
	u := binary.LittleEndian.Uint64(h.Sum(nil))
	if float64(u>>11)/math.Exp2(53) < share {
		return HeldOut
	}
	return Train
}

// Select returns the part of src that Prepare puts in a split with the same seed and
// share, for use where the other must not be seen: a tokenizer is trained on Train.
func Select(src data.Source, split Split, seed uint64, heldOut float64) data.Source {
	return selected{src, split, seed, heldOut}
}

type selected struct {
	data.Source
	split   Split
	seed    uint64
	heldOut float64
}

func (s selected) Fingerprint() (string, error) {
	print, err := s.Source.Fingerprint()
	return fmt.Sprintf("%s %s of %d %v", print, s.split, s.seed, s.heldOut), err
}

func (s selected) Documents() iter.Seq2[data.Document, error] {
	return func(yield func(data.Document, error) bool) {
		for doc, err := range s.Source.Documents() {
			if err == nil && splitOf(s.seed, s.heldOut, &doc) != s.split {
				continue
			}
			if !yield(doc, err) {
				return
			}
		}
	}
}
