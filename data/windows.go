package data

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/internal/size"
)

// WindowOptions say how a stream is cut for causal language modeling.
type WindowOptions struct {
	// Length is T, the number of inputs of a window.
	Length int
	// CrossDocument keeps the loss of a document's first token, predicted from the EOS of
	// the previous document. By default its weight is 0: nothing in that context predicts
	// it.
	CrossDocument bool
}

// Windows packs a corpus into windows of T tokens. Window i covers the stream from i*T
// on: inputs are s[i*T : i*T+T], labels s[i*T+1 : i*T+T+1], so that the label at a
// position is the token after the input at that position, shifted once and only here.
// Each token of the stream is an input at most once and a label at most once; only the
// stream's first is never a label and its last never an input. The last window is padded
// with EOS of weight 0.
type Windows struct {
	corpus Corpus
	opt    WindowOptions
}

// NewWindows cuts c. A corpus with fewer than two tokens has nothing to
// predict and is refused.
func NewWindows(c Corpus, opt WindowOptions) (*Windows, error) {
	if opt.Length < 1 {
		return nil, fmt.Errorf("data: window length is %d, want 1 or more", opt.Length)
	}
	if c.Tokens() < 2 {
		return nil, fmt.Errorf("data: the corpus has %s, too few to train on", size.Of(c.Tokens(), "token"))
	}
	return &Windows{corpus: c, opt: opt}, nil
}

// Corpus is what the windows were cut from.
func (w *Windows) Corpus() Corpus { return w.corpus }

// Length is T.
func (w *Windows) Length() int { return w.opt.Length }

// Len is the number of windows.
func (w *Windows) Len() int64 {
	t := int64(w.opt.Length)
	return (w.corpus.Tokens() - 1 + t - 1) / t
}

// Weight is the sum of the label weights of all windows.
func (w *Windows) Weight() float64 {
	n := w.corpus.Tokens() - 1
	if !w.opt.CrossDocument {
		n -= w.corpus.Documents() - 1
	}
	return float64(n)
}

// BitsPerByte turns a loss in nats per label into bits per byte of text, which compares
// models of different tokenizers. It is 0 if the corpus does not know its size in bytes.
func (w *Windows) BitsPerByte(loss float64) float64 {
	if w.corpus.Bytes() == 0 {
		return 0
	}
	return loss * w.Weight() / float64(w.corpus.Bytes()) / math.Ln2
}

// Fill writes window i to tokens, labels and weights, each of length T, and returns the
// sum of its weights. segments may be nil; otherwise it gets the number of each input's
// document within the window, from 0 on, which keeps attention inside documents. Padding
// is a separate segment.
func (w *Windows) Fill(i int64, tokens, labels []int32, weights []float32, segments []int32) (float64, error) {
	t := w.opt.Length
	if len(tokens) != t || len(labels) != t || len(weights) != t || segments != nil && len(segments) != t {
		return 0, fmt.Errorf("data: window of %d tokens into buffers of %d tokens, %d labels, %d weights, %d segments",
			t, len(tokens), len(labels), len(weights), len(segments))
	}
	if i < 0 || i >= w.Len() {
		return 0, fmt.Errorf("data: window %d of %d", i, w.Len())
	}
	off := i * int64(t)
	n := int(min(int64(t), w.corpus.Tokens()-1-off))
	if err := w.corpus.Read(tokens[:1], off); err != nil {
		return 0, err
	}
	if err := w.corpus.Read(labels[:n], off+1); err != nil {
		return 0, err
	}
	copy(tokens[1:n], labels)
	for k := range n {
		weights[k] = 1
	}
	for k := n; k < t; k++ {
		tokens[k], labels[k], weights[k] = w.corpus.EOS(), w.corpus.EOS(), 0
	}
	return float64(n) - w.mark(off, n, weights, segments), nil
}

// mark zeroes the weights of labels that open a document, numbers the segments, and
// returns how much weight it removed.
func (w *Windows) mark(off int64, n int, weights []float32, segments []int32) (taken float64) {
	from, segment := 0, int32(0)
	number := func(to int) {
		if segments != nil {
			for k := from; k < to; k++ {
				segments[k] = segment
			}
		}
		from, segment = to, segment+1
	}
	for d := documentAt(w.corpus, off); d < w.corpus.Documents()-1; d++ {
		// start is where the next document begins, as an input position. Its first token
		// is the label of the previous position, which is in this window even if the
		// start itself is not.
		start := int(min(w.corpus.DocumentEnd(d)-off, int64(n)+1))
		if start > n {
			break
		}
		if !w.opt.CrossDocument {
			weights[start-1] = 0
			taken++
		}
		number(start)
	}
	if from < n {
		number(n)
	}
	number(w.opt.Length)
	return taken
}
