package agiformer

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
)

// language returns the model of a checkpoint. Convolution, memory and experts look at the text as a whole, so
// there is no cache, and each byte is computed from its whole window.
func language(c *config.Config, dir string) (*inference.Language, error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	// With a single text there is no load to balance, so nothing is dropped.
	net.Experts.Capacity = 0
	return &inference.Language{
		Uncached: whole{net}, Tokenizer: t, Fill: net.load,
		Open:  func() (inference.Weights, error) { return openWeights(c, dir) },
		Media: net.media(data.RecordLimit(int64(c.Data.MaxRecord))),
	}, nil
}

// media describes the media that may come with a text; nil if there are none. An image may take at most most
// bytes when decoded.
func (m Net) media(most int64) *inference.Media {
	s := m.Senses
	if s == nil {
		return nil
	}
	files := map[string]int{}
	for _, kind := range s.Modalities {
		files[kind] = 1
	}
	if s.Sees(modVideo) {
		files[modVideo] = s.Frames
	}
	return &inference.Media{
		Files: files,
		Decode: func(kind string, files []inference.MediaFile) ([]float32, error) {
			return s.decode(kind, files, most)
		},
		Logits: func(b *graph.Builder, ids, last *graph.Value) *graph.Value {
			return whole{m}.logits(b, Input{IDs: ids, Seen: s.inputs(b, 1)}, last)
		},
	}
}

// decode turns files into a row of the input for a kind, as captions.sense does.
func (s *Senses) decode(kind string, files []inference.MediaFile, most int64) ([]float32, error) {
	if kind == modAudio {
		dst := make([]float32, s.Samples)
		return dst, decodeWAV(dst, files[0], files[0].Name)
	}
	pixels := s.Image.Size * s.Image.Size * 3
	dst := make([]float32, len(files)*pixels)
	for i, f := range files {
		if err := decodePicture(dst[i*pixels:(i+1)*pixels], f, f.Name, s.Image.Size, most); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// whole adapts the model to text generation.
type whole struct{ Net }

// Positions implements [inference.Uncached].
func (w whole) Positions() int { return w.MaxPositions }

// Logits implements [inference.Uncached].
func (w whole) Logits(b *graph.Builder, ids, last *graph.Value) *graph.Value {
	return w.logits(b, Input{IDs: ids}, last)
}

func (w whole) logits(b *graph.Builder, in Input, last *graph.Value) *graph.Value {
	hidden := w.Forward(b, in).Hidden
	return w.Net.Logits(b, b.Embedding(hidden, last))
}
