package agiformer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Senses encodes the media that come with a text: images, sound, video. An encoder is built into a function,
// and its weights exist, only if the function's input has something for it.
type Senses struct {
	Modalities []string
	// Image encodes images, including video frames.
	Image nn.ViT
	// Folder has the weights of the image encoder (CLIP, Hugging Face layout); empty for an encoder that is
	// trained with the rest. Frozen weights do not change.
	Folder string
	Frozen bool
	// Samples is the maximum number of samples of a sound, and Frames of frames of a video.
	Samples, Frames int
}

// These are the modalities, which are also the names of the program's inputs.
const (
	modImage = "image"
	modAudio = "audio"
	modVideo = "video"
)

// Sees reports whether texts come with the modality.
func (s *Senses) Sees(modality string) bool {
	return s != nil && slices.Contains(s.Modalities, modality)
}

// inputs declares the media of batch texts.
func (s *Senses) inputs(b *graph.Builder, batch int) (in Seen) {
	if s == nil {
		return in
	}
	side := s.Image.Size
	if s.Sees(modImage) {
		in.Image = b.Input(modImage, graph.T(graph.F32, batch, side, side, 3))
	}
	if s.Sees(modAudio) {
		in.Audio = b.Input(modAudio, graph.T(graph.F32, batch, s.Samples))
	}
	if s.Sees(modVideo) {
		in.Video = b.Input(modVideo, graph.T(graph.F32, batch, s.Frames, side, side, 3))
	}
	return in
}

// Seen holds the media that come with a text; nil for nothing.
type Seen struct {
	Image *graph.Value // F32 [B, Size, Size, 3], normalized as for CLIP
	Audio *graph.Value // F32 [B, samples], in [-1, 1]
	Video *graph.Value // F32 [B, frames, Size, Size, 3]
}

func (s Seen) nothing() bool { return s == Seen{} }

// soundKernel and soundStride describe each of the three convolutions over sound, which together turn eight
// samples into a token.
const soundKernel, soundStride = 7, 2

// fuse adds to x [B, T, D] what the text takes from all media.
func (p *forward) fuse(x *graph.Value) *graph.Value {
	var tokens []*graph.Value
	add := func(name string, build func() *graph.Value) {
		p.Scope(name, func() {
			// A learned vector marks the modality of a token.
			kind := p.Param("kind", graph.Normal(0.02), p.D)
			tokens = append(tokens, p.Add(build(), kind))
		})
	}
	if v := p.in.Seen.Image; v != nil {
		y := p.pictures(v)
		add("image", func() *graph.Value { return p.linear("project", y, p.D, true) })
	}
	if v := p.in.Seen.Audio; v != nil {
		add("audio", func() *graph.Value { return p.sound(v) })
	}
	if v := p.in.Seen.Video; v != nil {
		s := v.Shape()
		if s[1] > p.Senses.Frames {
			p.Failf("%d frames are too many: the model takes %d", s[1], p.Senses.Frames)
		}
		y := p.pictures(p.Reshape(v, p.batch*s[1], s[2], s[3], s[4]))
		add("video", func() *graph.Value { return p.film(p.linear("project", y, p.D, true), s[1]) })
	}
	seen := p.norm("seen_norm", p.Concat(1, tokens...))
	for i := range 2 {
		p.Scope(fmt.Sprint("fusion.", i), func() {
			y := nn.CrossAttention(p.Builder, "attention", p.norm("norm", x), seen, p.Heads)
			x = p.Add(x, p.drop(y))
		})
	}
	return x
}

// pictures returns the tokens [B, P, width] of single images or video frames, which share the encoder.
func (p *forward) pictures(v *graph.Value) (y *graph.Value) {
	p.Scope("encoder", func() {
		y = p.Senses.Image.Hidden(p.Builder, v)
		for _, w := range p.F.States {
			if p.Senses.Frozen && strings.HasPrefix(w.Name, p.Layer()+".") {
				w.State.Role = graph.Frozen
			}
		}
	})
	return y
}

// sound returns a token for every eight samples.
func (p *forward) sound(v *graph.Value) *graph.Value {
	n := v.Shape()[1]
	if n > p.Senses.Samples {
		p.Failf("%d samples of sound are too many: the model takes %d", n, p.Senses.Samples)
	}
	y := p.Reshape(v, p.batch, n, 1)
	for i, width := range []int{max(1, p.D/4), max(1, p.D/2), p.D} {
		p.Scope(fmt.Sprint("convolutions.", i), func() {
			in := y.Shape()[2]
			w := p.Param("weight", graph.XavierUniform(in*soundKernel, width*soundKernel), width, in, soundKernel)
			side := soundKernel / 2
			y = p.GELU(p.Conv1D(y, w, p.Param("bias", graph.Zeros(), width), soundStride, 1, side, side, 1))
		})
	}
	most := soundTokens(p.Senses.Samples)
	places := nn.Embedding(p.Builder, "positions", most, p.D, graph.Normal(0.02))
	return p.Add(y, p.Slice(places, 0, 0, y.Shape()[1]))
}

// soundTokens returns the number of tokens for n samples.
func soundTokens(n int) int {
	for range 3 {
		n = (n + soundStride - 1) / soundStride
	}
	return n
}

// film mixes the tokens y [B*frames, P, D] of each frame with those of the neighboring frames at the same
// place: [B, frames*P, D].
func (p *forward) film(y *graph.Value, frames int) *graph.Value {
	places := y.Shape()[1]
	y = p.Transpose(p.Reshape(y, p.batch, frames, places, p.D), 0, 2, 1, 3)
	y = p.Reshape(y, p.batch*places, frames, p.D)
	const kernel = 3
	w := p.Param("convolution.weight", graph.Uniform(0.5), p.D, 1, kernel)
	mixed := p.Conv1D(y, w, p.Param("convolution.bias", graph.Zeros(), p.D), 1, 1, kernel/2, kernel/2, p.D)
	y = p.Reshape(p.Add(y, mixed), p.batch, places, frames, p.D)
	return p.Reshape(p.Transpose(y, 0, 2, 1, 3), p.batch, frames*places, p.D)
}
