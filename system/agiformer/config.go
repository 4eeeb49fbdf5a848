package agiformer

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// Model is the section "model" of the configuration.
type Model struct {
	Folder        string   `key:"folder" help:"what to start from, which decides every size: a run or checkpoint of agiformer; empty: from scratch"`
	VocabSize     int      `key:"vocab_size" min:"0" of:"vocabulary" help:"tokens; 0: the 256 bytes and the end of a document"`
	DModel        int      `key:"d_model" min:"2" of:"width" help:"width of the residual stream"`
	NLayers       int      `key:"n_layers" min:"1" of:"layers" help:"blocks"`
	NHeads        int      `key:"n_heads" min:"1" of:"heads" help:"attention heads, of experts too"`
	DFF           int      `key:"d_ff" min:"1" of:"width" help:"width of the experts' feed-forward layers"`
	MaxSeqLen     int      `key:"max_seq_len" min:"2" of:"positions" help:"positions"`
	ConvKernel    int      `key:"conv_kernel" min:"1" of:"positions" help:"bytes that the front end's causal convolution sees"`
	Positions     string   `key:"positions" enum:"rotary,learned" help:"how attention encodes positions"`
	RotaryBase    float64  `key:"rotary_base" above:"0" help:"base of the rotary angles"`
	NExperts      int      `key:"n_experts" min:"1" of:"experts" help:"experts per block"`
	ExpertTypes   []string `key:"expert_types" enum:"standard,spatial,logic,causal,language" help:"kinds of experts, assigned in turn"`
	TopK          int      `key:"top_k" min:"1" of:"experts" help:"experts that a token goes to"`
	Capacity      float64  `key:"capacity_factor" min:"0" of:"capacity" help:"tokens of a sample that an expert takes, as a multiple of the mean; later tokens are dropped; 0: all"`
	BalanceWeight float64  `key:"balance_weight" min:"0" help:"weight of the load-balance loss"`
	DRelation     int      `key:"d_relation" min:"0" of:"width" help:"width of the pairwise relations of logic and causal experts; 0: model.d_model"`

	UseMemory     bool `key:"use_memory" help:"working memory, bank and writer"`
	MemorySize    int  `key:"memory_size" min:"1" of:"positions" help:"learned vectors of the bank"`
	MemorySegment int  `key:"memory_segment" min:"1" of:"positions" help:"bytes that the writer summarizes at a time"`
	MemoryWrites  int  `key:"memory_writes" min:"1" of:"positions" help:"vectors that the writer writes each time"`

	UseIntrospection    bool    `key:"use_introspection" help:"steps of self-correction and heads that know the model's errors"`
	IntrospectionSteps  int     `key:"introspection_steps" min:"1" of:"unrolled" help:"steps of self-correction"`
	IntrospectionWeight float64 `key:"introspection_weight" above:"0" help:"weight of the introspection heads' loss"`

	Language LanguageModel `key:"language" help:"the language model that language experts read"`

	UseMultimodal bool       `key:"use_multimodal" help:"texts are captions (data.source is their folder) with the modalities below"`
	Modalities    []string   `key:"modalities" enum:"image,audio,video" help:"modalities that accompany captions"`
	Image         ImageModel `key:"image" help:"the encoder of images and video frames"`
	AudioSamples  int        `key:"audio_samples" min:"1" of:"samples" help:"maximum length of sound, in samples"`
	VideoFrames   int        `key:"video_frames" min:"1" of:"frames" help:"frames per video"`

	Dropout      float64 `key:"dropout" min:"0" below:"1" help:"share of embeddings, branches and attention weights dropped"`
	LayerNormEps float64 `key:"layer_norm_eps" above:"0" help:"epsilon added to the variance"`
}

// LanguageModel is the section "model.language".
type LanguageModel struct {
	Path    string `key:"path" help:"GPT-NeoX, GPT-2, Llama or Qwen3 folder in Hugging Face layout, which then decides the sizes; empty: a transformer of the sizes below"`
	Frozen  bool   `key:"frozen" help:"keep the folder's weights unchanged; without a folder, for plans only"`
	DModel  int    `key:"d_model" min:"2" of:"width" help:"its width"`
	NLayers int    `key:"n_layers" min:"0" of:"layers" help:"its layers"`
	NHeads  int    `key:"n_heads" min:"1" of:"heads" help:"its attention heads"`
	DFF     int    `key:"d_ff" min:"1" of:"width" help:"width of its feed-forward layers"`
}

// ImageModel is the section "model.image".
type ImageModel struct {
	Path    string `key:"path" help:"CLIP folder in Hugging Face layout, which then decides the sizes; empty: an encoder of the sizes below"`
	Frozen  bool   `key:"frozen" help:"keep the folder's weights unchanged; without a folder, for plans only"`
	Size    int    `key:"size" min:"1" of:"pixels" help:"pixels per side of an image"`
	Patch   int    `key:"patch" min:"1" of:"pixels" help:"pixels per side of a patch"`
	DModel  int    `key:"d_model" min:"1" of:"width" help:"its width"`
	NLayers int    `key:"n_layers" min:"0" of:"layers" help:"its layers"`
	NHeads  int    `key:"n_heads" min:"1" of:"heads" help:"its attention heads"`
	DFF     int    `key:"d_ff" min:"1" of:"width" help:"width of its feed-forward layers"`
}

// byteVocabulary is the 256 bytes and the end of a document.
const byteVocabulary = 257

func sections() []config.Section {
	lora := system.DefaultLoRA
	return []config.Section{{Name: "lora", Values: &lora}, {Name: "model", Values: &Model{
		DModel: 256, NLayers: 4, NHeads: 4, DFF: 1024, MaxSeqLen: 256, ConvKernel: 3, Positions: "rotary", RotaryBase: 10000,
		NExperts: 4, ExpertTypes: []string{"standard"}, TopK: 1, Capacity: 1.25, BalanceWeight: 0.01,
		UseMemory: true, MemorySize: 256, MemorySegment: 64, MemoryWrites: 4,
		UseIntrospection: true, IntrospectionSteps: 2, IntrospectionWeight: 0.1,
		Language:     LanguageModel{DModel: 128, NLayers: 2, NHeads: 4, DFF: 512},
		Modalities:   []string{modImage},
		Image:        ImageModel{Size: 64, Patch: 16, DModel: 128, NLayers: 2, NHeads: 4, DFF: 512},
		AudioSamples: 16384, VideoFrames: 4,
		LayerNormEps: 1e-5,
	}}}
}

// mostSegments limits the number of segments that the memory cuts a sequence into.
const mostSegments = 1024

// resolve copies the model of the run that training starts from to the configuration.
func resolve(c *config.Config, r *config.Report) {
	system.FollowOnlyRun(c, r, &config.Of[Model](c).Folder, sections, nil, "dropout", "balance_weight", "introspection_weight")
}

// baseOf returns the run that training starts from, without frozen weights that have folders of their own.
func (m Net) baseOf(c *config.Config) system.Base {
	return system.Base{Dir: config.Of[Model](c).Folder, Elsewhere: m.elsewhere}
}

// adapters returns the configured adapters; nil means that all weights are trained.
func (m Net) adapters(c *config.Config) *nn.Adapters {
	a := config.Of[system.LoRA](c).Adapters(c.Training.Seed)
	if a != nil {
		a.Fixed = m.elsewhere
	}
	return a
}

// elsewhere reports whether a name is a frozen weight of a folder, or a scope below which there are only such
// weights.
func (m Net) elsewhere(name string) bool {
	l, s := m.Language, m.Senses
	return l != nil && l.Model != nil && l.Frozen && strings.HasPrefix(name, "language."+l.base()+".") ||
		s != nil && s.Frozen && strings.HasPrefix(name, "senses.encoder.")
}

func check(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	config.Of[system.LoRA](c).Check(c, r)
	r.Unused("reads bytes, or the tokens of data.tokenizer.path", "data.tokenizer.vocab_size")
	if m.VocabSize == 0 {
		m.VocabSize = byteVocabulary
		if c.Data.Tokenizer.Path != "" {
			r.Error("model.vocab_size", "data.tokenizer.path is set: give the number of its tokens")
		}
	}
	if m.DRelation == 0 {
		m.DRelation = m.DModel
	}
	heads := func(d, h int, key string) {
		switch {
		case d%h != 0:
			r.Error(key, "want a number that divides the width (%d), got %d", d, h)
		case m.Positions == "rotary" && d/h%2 != 0:
			r.Error(key, "%d heads of a width of %d have %d dimensions each: rotary embeddings rotate pairs, so want an even number", h, d, d/h)
		}
	}
	heads(m.DModel, m.NHeads, "model.n_heads")
	if len(m.ExpertTypes) == 0 {
		r.Error("model.expert_types", "want at least one kind of expert")
		return
	}
	if slices.Contains(m.ExpertTypes, string(LanguageKind)) && m.Language.Path == "" {
		heads(m.Language.DModel, m.Language.NHeads, "model.language.n_heads")
	}
	if len(m.ExpertTypes) > m.NExperts {
		r.Error("model.expert_types", "%d kinds for %d experts (model.n_experts): raise the number or drop kinds", len(m.ExpertTypes), m.NExperts)
	}
	if m.TopK > m.NExperts {
		r.Error("model.top_k", "a token cannot go to %d of %d experts (model.n_experts)", m.TopK, m.NExperts)
	}
	if m.TopK == m.NExperts && m.NExperts > 1 {
		r.Warn("model.top_k", "every token goes to every expert: this is a dense model")
	}
	if n := c.Data.SeqLen / max(1, m.MemorySegment); m.UseMemory && n > mostSegments {
		r.Error("model.memory_segment", "want at least data.seq_len / %d (%d), got %d: each segment is compiled separately", mostSegments, (c.Data.SeqLen+mostSegments-1)/mostSegments, m.MemorySegment)
	}
	if m.UseMemory && c.Data.SeqLen > 0 && m.MemorySegment >= c.Data.SeqLen {
		r.Error("model.memory_segment", "want less than data.seq_len (%d), got %d: nothing reads what the last segment writes", c.Data.SeqLen, m.MemorySegment)
	}
	if m.UseMultimodal {
		r.NoPrefetch("captions with their images, sound and video")
		switch {
		case len(m.Modalities) == 0:
			r.Error("model.modalities", "want at least one")
		case len(c.Data.Source) > 1:
			r.Error("data.source", "want one folder of captions, got %d", len(c.Data.Source))
		case len(c.Data.Validation) > 0:
			r.Error("data.validation", "held-out captions are those of metadata_val.json: omit it")
		case c.Data.SplitBy == "end":
			r.Error("data.split_by", "held-out captions are those of metadata_val.json: omit it")
		case c.Data.Format != "auto":
			r.Error("data.format", "captions come as a folder with metadata_train.json and metadata_val.json: leave data.format at auto")
		case c.Data.Tokenizer.Path != "":
			r.Error("data.tokenizer.path", "captions are read as bytes")
		}
	}
	if c.Data.SegmentMask {
		r.Error("data.segment_mask", "memory, experts and convolution cross the ends of packed documents: only attention can be masked at them")
	}
}

// network returns the configured architecture.
func network(c *config.Config) (Net, error) {
	m := config.Of[Model](c)
	n := Net{
		Vocab: m.VocabSize, D: m.DModel, Layers: m.NLayers, Heads: m.NHeads, FF: m.DFF, MaxPositions: m.MaxSeqLen,
		Kernel: m.ConvKernel, Rotary: m.Positions == "rotary", RotaryBase: m.RotaryBase,
		Experts: Experts{
			Kinds: sorted(m.ExpertTypes, m.NExperts), Choices: m.TopK, Capacity: m.Capacity, Relation: m.DRelation,
		},
		Eps: m.LayerNormEps, Dropout: m.Dropout, Seed: c.Training.Seed,
	}
	if m.UseMemory {
		n.Memory = &nn.Memory{Slots: m.MemorySize, Segment: m.MemorySegment, Writes: m.MemoryWrites, Heads: m.NHeads, Eps: m.LayerNormEps}
	}
	if m.UseIntrospection {
		n.Introspection = &Introspection{Steps: m.IntrospectionSteps}
	}
	if n.Experts.Has(LanguageKind) {
		n.Language = &Language{Frozen: m.Language.Frozen, Folder: m.Language.Path}
		if err := n.Language.size(&m.Language, n.MaxPositions); err != nil {
			return n, err
		}
	}
	if m.UseMultimodal {
		n.Senses = &Senses{
			Modalities: m.Modalities, Folder: m.Image.Path, Frozen: m.Image.Frozen, Samples: m.AudioSamples, Frames: m.VideoFrames,
			Image: nn.ViT{
				D: m.Image.DModel, Layers: m.Image.NLayers, Heads: m.Image.NHeads, FF: m.Image.DFF,
				Size: m.Image.Size, Patch: m.Image.Patch, Eps: 1e-5,
			},
		}
		if m.Image.Path != "" {
			var err error
			if n.Senses.Image, err = readViT(m.Image.Path); err != nil {
				return n, fmt.Errorf("model.image.path: %w", err)
			}
		}
		return n, n.Senses.Image.Check()
	}
	return n, nil
}

// readViT reads the sizes of the vision model of a CLIP folder.
func readViT(dir string) (nn.ViT, error) {
	type vision struct {
		Hidden     int     `json:"hidden_size"`
		FF         int     `json:"intermediate_size"`
		Layers     int     `json:"num_hidden_layers"`
		Heads      int     `json:"num_attention_heads"`
		Size       int     `json:"image_size"`
		Patch      int     `json:"patch_size"`
		Activation string  `json:"hidden_act"`
		Eps        float64 `json:"layer_norm_eps"`
	}
	path := filepath.Join(dir, "config.json")
	raw, err := regular.Read(path, regular.Text)
	if err != nil {
		return nn.ViT{}, err
	}
	// Values missing from a folder default to those of CLIP ViT-B/32.
	v := vision{768, 3072, 12, 12, 224, 32, "quick_gelu", 1e-5}
	var c struct {
		Type   string          `json:"model_type"`
		Vision json.RawMessage `json:"vision_config"`
	}
	if err = strictjson.Unmarshal(raw, &c); err == nil {
		switch c.Type {
		case "clip":
			if c.Vision != nil {
				raw = c.Vision
			}
		case "clip_vision_model":
		default:
			return nn.ViT{}, fmt.Errorf("%s: model_type is %q, want clip or clip_vision_model", path, c.Type)
		}
		err = strictjson.Unmarshal(raw, &v)
	}
	if err != nil {
		return nn.ViT{}, fmt.Errorf("%s: %w", path, err)
	}
	if v.Activation != "quick_gelu" && v.Activation != "gelu" {
		return nn.ViT{}, fmt.Errorf("%s: hidden_act is %q, want quick_gelu or gelu", path, v.Activation)
	}
	return nn.ViT{
		D: v.Hidden, Layers: v.Layers, Heads: v.Heads, FF: v.FF, Size: v.Size, Patch: v.Patch,
		Quick: v.Activation == "quick_gelu", Eps: v.Eps,
	}, nil
}

// size takes the sizes from the folder, or else from the configuration.
func (l *Language) size(m *LanguageModel, positions int) error {
	l.Width, l.Layers, l.Heads, l.FF = m.DModel, m.NLayers, m.NHeads, m.DFF
	switch {
	case m.Path != "":
		c, err := hf.ReadConfig(m.Path)
		if err != nil {
			return fmt.Errorf("model.language.path: %w", err)
		}
		net, ok := c.Model.(hf.Causal)
		if !ok {
			return fmt.Errorf("model.language.path: %s is not a GPT-NeoX, GPT-2, Llama or Qwen3 folder", m.Path)
		}
		l.Model, l.Width = net, net.Dims().Width
		if n := l.Model.Positions(); n < positions {
			return fmt.Errorf("model.language.path: the model of %s has %d positions, model.max_seq_len is %d", m.Path, n, positions)
		}
	case m.Frozen:
		l.Model = hf.NeoX{
			Vocab: 1, D: l.Width, Layers: l.Layers, Heads: l.Heads, FF: l.FF, MaxPositions: positions,
			RotaryPct: 0.25, RotaryBase: 10000, Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: 0.02,
		}
		return l.Model.Check()
	}
	return nil
}
