package agiformer

import (
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

// least returns the minimum that training on length tokens needs; see [plan.Least].
func (m Net) least(length int) plan.Least {
	trained := func(keys string, count float64) plan.Part {
		return plan.Part{Of: plan.Trained, Count: count, Keys: keys}
	}
	square := size.Float(m.D, m.D)
	out := plan.Least{
		trained("model.vocab_size or model.d_model", 2*size.Float(m.Vocab, m.D)),
		trained("model.conv_kernel or model.d_model", float64(m.Kernel+1)*square),
		trained("model.n_layers or model.d_model", 4*float64(m.Layers)*square),
		trained("model.n_layers, model.n_experts, model.d_model or model.d_ff", float64(m.Layers)*m.Experts.least(m.D, m.FF)),
		plan.Tokens(length, m.D),
	}
	if !m.Rotary {
		out = append(out, trained("model.max_seq_len or model.d_model", size.Float(m.MaxPositions, m.D)))
	}
	if m.Memory != nil {
		out = append(out, trained("model.memory_size or model.d_model", size.Float(m.Memory.Slots, m.D)))
	}
	if l := m.Language; l != nil {
		tellers := 0
		for _, k := range m.Experts.Kinds {
			if k == LanguageKind {
				tellers++
			}
		}
		out = append(out,
			trained("model.n_layers, model.n_experts, model.d_model or model.language", 2*size.Float(m.Layers, tellers, m.D, l.Width)),
			l.least())
	}
	return append(out, m.Senses.least()...)
}

// least returns the minimum for the language model itself, which reads states and has no tables.
func (l *Language) least() plan.Part {
	p := plan.Part{Of: plan.Trained, Count: 4*size.Float(l.Layers, l.Width, l.Width) + 2*size.Float(l.Layers, l.Width, l.FF), Keys: "model.language"}
	if l.Model != nil {
		_, p.Count = l.Model.Sizes()
		if l.Frozen {
			p.Of = plan.Frozen
		}
	}
	return p
}

// least returns the number of weights of the experts of a block of width d.
func (e Experts) least(d, ff int) (n float64) {
	for _, k := range e.Kinds {
		if k == LanguageKind {
			continue // counted with the language model
		}
		n += 2 * size.Float(d, ff)
		if k != Standard {
			n += 4 * size.Float(d, d)
		}
		if k == Logic || k == Causal {
			n += 3 * size.Float(d, e.Relation)
		}
	}
	return n
}

// least returns the minimum for the encoders of images and other media.
func (s *Senses) least() (out plan.Least) {
	if s == nil {
		return nil
	}
	v, numbers := s.Image, 0.0
	picture := size.Float(3, v.Size, v.Size)
	if s.Sees(modImage) {
		numbers += picture
	}
	if s.Sees(modAudio) {
		numbers += float64(s.Samples)
	}
	if s.Sees(modVideo) {
		numbers += float64(s.Frames) * picture
	}
	if s.Sees(modImage) || s.Sees(modVideo) {
		held := plan.Trained
		if s.Frozen {
			held = plan.Frozen
		}
		weights := 4*size.Float(v.Layers, v.D, v.D) + 2*size.Float(v.Layers, v.D, v.FF) + size.Float(3, v.Patch, v.Patch, v.D)
		out = append(out, plan.Part{Of: held, Count: weights, Keys: "model.image"})
	}
	return append(out, plan.Part{Of: plan.EachRow, Count: engine.Slots * 4 * numbers, Keys: "model.image.size, model.audio_samples or model.video_frames"})
}
