// Package cloudbase is the system "cloudbase". It predicts the height of the cloud base from the sun's angles
// and the images of a camera that looks down from an aircraft.
//
// Its guarantees:
//
//   - Splits are by flight: no flight is on two sides, and what is fitted (the scales of angles and heights)
//     is fitted on the training flights alone. The scales are states of the program, so checkpoints contain
//     them, and evaluation and prediction use them.
//   - A window of frames never extends over the end of a flight or a gap in time.
//   - Augmentation of an example depends only on the seed, the epoch and the example, and is computed in
//     floating point.
//   - Running statistics move once per update, whatever is recomputed.
//   - The monitored metric is shown next to the value reached by predicting the mean of the training
//     flights, and a model that predicts almost a constant is called collapsed.
package cloudbase

import (
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/system"
)

// Model is the section "model" of the configuration.
type Model struct {
	Folder           string    `key:"folder" help:"run or checkpoint of cloudbase whose weights lora.targets adapts, which decides the model and how images are prepared; to train all weights on, set phases.init"`
	Architecture     string    `key:"architecture" enum:"attention,transformer,ssm,gnn,cnn" help:"attention: the guide's network, images one by one and attention over time; transformer, ssm: combine the frames instead; gnn: attention on the grid of each image; cnn: the mean image, without angles"`
	Height           int       `key:"height" min:"1" of:"pixels" help:"rows of an image"`
	Width            int       `key:"width" min:"1" of:"pixels" help:"columns of an image"`
	Frames           int       `key:"frames" min:"1" of:"frames" help:"frames per window; the label is that of the middle one"`
	View             int       `key:"view" min:"1" of:"frames" help:"consecutive frames that the image network sees at once, as channels; 1 as in the guide, where it cannot see motion"`
	Channels         []int     `key:"channels" min:"1" of:"width" help:"channels of the convolutions; each halves the image"`
	SpatialAttention bool      `key:"spatial_attention" help:"weight the pixels of an image before the first convolution"`
	TimeAttention    bool      `key:"temporal_attention" help:"weight the frames by attention; false: take their mean"`
	FilmIdentity     bool      `key:"film_identity" help:"the angles scale by 1 + gamma; false as in the guide, where they scale by gamma"`
	Norm             string    `key:"norm" enum:"batch,group" help:"normalization of the convolutions and the dense head"`
	NormByFrame      bool      `key:"norm_by_frame" help:"batch normalization of the convolutions frame by frame, as in the guide's program; false: of all frames of a micro-batch together"`
	NormBias         bool      `key:"bias_before_norm" help:"biases before batch normalization, which removes them again; true as in the guide"`
	Groups           int       `key:"groups" min:"1" of:"width" help:"groups of group normalization"`
	Angles           string    `key:"angles" enum:"sincos,linear" help:"sincos: sines and cosines; linear: scaled degrees as in the guide, where 0 and 360 are far apart"`
	UseAngles        string    `key:"use_angles" enum:"both,sza,saa,none" help:"which of the sun's angles are used; the others are 0"`
	Dropout          float64   `key:"dropout" min:"0" below:"1" help:"share of an image's channels dropped after each convolution"`
	DenseDropout     []float64 `key:"dense_dropout" min:"0" max:"0.99" help:"share dropped after each of the two dense layers"`
	Layers           int       `key:"layers" min:"1" of:"layers" help:"blocks of transformer and ssm"`
	Heads            int       `key:"heads" min:"1" of:"heads" help:"attention heads of transformer and gnn"`
	AttentionDropout float64   `key:"attention_dropout" min:"0" below:"1" help:"share of attention weights dropped, in transformer and gnn"`
	StateSize        int       `key:"state_size" min:"1" of:"width" help:"states per channel of ssm"`
	MaskShare        float64   `key:"mask_share" above:"0" below:"1" help:"share of patches hidden in masked pre-training"`
	MaskPatch        int       `key:"mask_patch" min:"1" of:"pixels" help:"rows and columns of a patch"`
	MaskSigmoid      bool      `key:"mask_sigmoid" help:"masked pre-training paints values between 0 and 1, as in the guide's program"`
}

// Data holds the keys that the system adds to the section "data".
type Data struct {
	Rows      []int   `key:"rows" of:"pixels" help:"first row of an image to keep and the row after the last; empty: all"`
	Columns   []int   `key:"columns" of:"pixels" help:"first column to keep and the column after the last; empty: all"`
	Resize    bool    `key:"resize" help:"scale images to model.height x model.width by area"`
	FlatField bool    `key:"flat_field" help:"divide by the mean of the first hundred frames of the flight"`
	Clahe     float64 `key:"clahe_clip_limit" min:"0" max:"1" help:"local histogram equalization with this clip limit, as a share of a tile; 0: none"`
	Normalize string  `key:"normalize" enum:"zscore,minmax,none" help:"normalization of each image"`
	MaxGap    float64 `key:"max_gap" min:"0" help:"longest time between frames of a window, in seconds; 0: twice the median of the flight"`
	BaseMin   float64 `key:"cbh_min" help:"labels below this are ignored, km"`
	BaseMax   float64 `key:"cbh_max" help:"labels above this are ignored, km"`
}

// Split is the section "split".
type Split struct {
	Validation  []string `key:"validation" help:"flights that select the best weights"`
	Calibration []string `key:"calibration" help:"flights that calibrate the intervals"`
	Test        []string `key:"test" help:"flights for the report only"`
	Confidence  float64  `key:"confidence" above:"0" below:"1" help:"share of true values that the intervals should cover"`
}

// Loss is the section "loss".
type Loss struct {
	Kind        string  `key:"type" enum:"huber,mae,mse,mse_mae,huber_mae,weighted_huber,weighted_huber_mae" help:"loss of the error, in standard deviations of the training labels"`
	Alpha       float64 `key:"alpha" min:"0" max:"1" help:"weight of the first part of mse_mae and huber_mae"`
	Delta       float64 `key:"huber_delta" above:"0" help:"error where huber changes from quadratic to linear"`
	Gamma       float64 `key:"gamma" min:"1" help:"power of the error in the second part of huber_mae"`
	UnderWeight float64 `key:"under_weight" above:"0" help:"weight of predictions below the true value in the weighted kinds"`
	HardShare   float64 `key:"hard_mining_k" min:"0" max:"1" help:"share of a micro-batch with the largest losses that counts more; 0: none"`
	HardFactor  float64 `key:"hard_mining_factor" min:"1" help:"factor by which it counts more"`
}

// Augment is the section "augment": how training changes a window.
type Augment struct {
	Flip       float64 `key:"flip" min:"0" max:"1" help:"share of windows mirrored left to right, with the azimuth"`
	Brightness float64 `key:"brightness" min:"0" help:"offset of a window: uniform within this, in units of a normalized image"`
	Contrast   float64 `key:"contrast" min:"0" below:"1" help:"factor of a window: uniform within 1 -+ this"`
	Noise      float64 `key:"noise" min:"0" help:"standard deviation of noise added to each pixel"`
	Erase      float64 `key:"erase" min:"0" max:"1" help:"share of windows with a rectangle of 2 to 10 % set to 0 in every frame"`
}

// Phases is the section "phases": the runs that training consists of.
type Phases struct {
	Run           string  `key:"run" enum:"final,pretrain,mae,fold,loo,all" help:"final: one run on all flights except those of the split; pretrain: on one flight; mae: masked images without labels; fold: without leave_out; loo: one fold per training flight; all: those that are configured, one after the other"`
	Init          string  `key:"init" help:"run or checkpoint to take weights from"`
	Pretrain      string  `key:"pretrain_flight" help:"flight of the first run, split in time by data.held_out_fraction; empty: no such run"`
	Overweight    float64 `key:"overweight_factor" min:"1" of:"repeats" help:"how often its windows appear in an epoch of the final run"`
	LeaveOut      string  `key:"leave_out" help:"the flight that a fold is validated on"`
	Masked        bool    `key:"masked" help:"begin with masked images"`
	Loo           bool    `key:"loo" help:"end with one fold per training flight"`
	PretrainSteps int     `key:"pretrain_steps" min:"0" of:"updates" help:"updates of the first run; 0: training.max_steps"`
	MaskedSteps   int     `key:"masked_steps" min:"0" of:"updates" help:"updates on masked images; 0: training.max_steps"`
	LooSteps      int     `key:"loo_steps" min:"0" of:"updates" help:"updates per fold; 0: training.max_steps"`
}

// System defines the system for the command line.
var System = system.System{
	Config: config.System{
		Name:     "cloudbase",
		Help:     "height of the cloud base from images taken on an aircraft and the sun's angles",
		Sections: sections,
		Resolve:  resolve,
		Check:    check,
	},
	Synthetic:    synthetic,
	Describe:     describe,
	Open:         open,
	Fixed:        fixed,
	Phases:       phases,
	Lengths:      lengths,
	PhaseFolders: func(*config.Config) []string { return []string{folderFinal, folderPretrain, folderMasked} },
	Predictor:    newPredictor,
	Pretrains:    pretrains,
	Missing:      missing,
	Export:       export,
	ExportMerged: exportMerged,
}

func sections() []config.Section {
	lora := system.DefaultLoRA
	return []config.Section{
		{Name: "lora", Values: &lora},
		{Name: "model", Values: &Model{
			Architecture: "attention", Height: 64, Width: 64, Frames: 5, View: 1, Channels: []int{32, 64, 128}, SpatialAttention: true, TimeAttention: true,
			Norm: "batch", Groups: 8, Angles: "sincos", UseAngles: "both", Dropout: 0.25, DenseDropout: []float64{0.5, 0.3},
			Layers: 2, Heads: 4, StateSize: 16, MaskShare: 0.75, MaskPatch: 8,
		}},
		{Name: "data", Values: &Data{Normalize: "zscore", BaseMin: 0.1, BaseMax: 2}},
		{Name: "split", Values: &Split{Confidence: 0.9}},
		{Name: "loss", Values: &Loss{Kind: "huber", Alpha: 0.5, Delta: 1, Gamma: 1.5, UnderWeight: 1, HardFactor: 1.5}},
		{Name: "augment", Values: &Augment{}},
		{Name: "phases", Values: &Phases{Run: "final", Overweight: 1}},
		{Name: "synthetic", Values: &Synthetic{
			Flights: 32, Bursts: 48, BurstFrames: 5, Interval: 0.5, Pause: 30, Altitude: 4, Speed: 100, FieldOfView: 40,
			BaseMin: 0.2, BaseMax: 2, Noise: 0.02, Seed: 1,
		}},
	}
}

func check(c *config.Config, r *config.Report) {
	m, s, p, t := config.Of[Model](c), config.Of[Split](c), config.Of[Phases](c), &c.Training
	r.NoPrefetch("images of cloudbase")
	r.Unused("reads images", "data.text_field", "data.array_key", "data.documents", "data.overlap", "data.replace_invalid", "data.tokenizer", "data.seq_len", "data.split_by", "data.segment_mask")
	r.Unused("predicts a height", "training.ce_chunk")
	r.NoSamples("predicts a height")
	checkAdapters(c, r)
	if m.View > m.Frames {
		r.Error("model.view", "%d frames at once, but a window has %d (model.frames)", m.View, m.Frames)
	}
	if m.NormByFrame && m.Norm != "batch" {
		r.Error("model.norm_by_frame", "is about batch normalization, and model.norm is %s", m.Norm)
	}
	if m.MaskSigmoid && config.Of[Data](c).Normalize != "minmax" {
		r.Error("model.mask_sigmoid", "paints values between 0 and 1, and data.normalize %s makes others: want minmax", config.Of[Data](c).Normalize)
	}
	if len(c.Data.Validation) > 0 {
		r.Error("data.validation", "flights are held out by their names: split.validation")
	}
	if len(m.Channels) == 0 {
		r.Error("model.channels", "want at least one convolution")
	}
	if n := 1 << len(m.Channels); m.Height < n || m.Width < n {
		r.Error("model.channels", "%d convolutions halve an image of %dx%d pixels to nothing", len(m.Channels), m.Height, m.Width)
	}
	if len(m.DenseDropout) != denseLayers {
		r.Error("model.dense_dropout", "want %d shares, got %d: %s", denseLayers, len(m.DenseDropout), few.Of(m.DenseDropout))
	}
	if m.Norm == "group" {
		for _, ch := range m.Channels {
			if ch%m.Groups != 0 {
				r.Error("model.groups", "%d channels do not divide into %d groups", ch, m.Groups)
			}
		}
	}
	last := 1
	if len(m.Channels) > 0 {
		last = m.Channels[len(m.Channels)-1]
	}
	if last%2 != 0 || m.Norm == "group" && last/2%m.Groups != 0 {
		r.Error("model.channels", "the head has half the last channels: %d do not halve (or not into model.groups)", last)
	}
	if each := last / 2 / m.Groups; m.Norm == "group" && each < 4 {
		r.Error("model.groups", "%d groups of the %d features of the head are %d numbers each, and normalization leaves almost nothing of so few: want at least 4, so at most %d groups", m.Groups, last/2, each, max(1, last/8))
	}
	if m.Architecture == "transformer" && last%m.Heads != 0 {
		r.Error("model.heads", "%d channels do not divide into %d heads", last, m.Heads)
	}
	if m.needsBatch(config.Of[system.LoRA](c).Adapters(0)) && t.BatchSize < 2 {
		r.Error("training.batch_size", "batch normalization needs at least 2 examples in a micro-batch; or set model.norm to group")
	}
	for k, group := range [][]string{s.Validation, s.Calibration, s.Test} {
		key := []string{"split.validation", "split.calibration", "split.test"}[k]
		for _, name := range group {
			if n := count(name, s.Validation, s.Calibration, s.Test); n > 1 {
				r.Error(key, "flight %s is in the split %d times: a flight belongs to one side only", name, n)
			}
		}
	}
	if p.Pretrain != "" && count(p.Pretrain, s.Validation, s.Calibration, s.Test) > 0 {
		r.Error("phases.pretrain_flight", "flight %s is held out by the split: pre-training on it would leak", p.Pretrain)
	}
	if p.Run == "pretrain" && p.Pretrain == "" {
		r.Error("phases.pretrain_flight", "name the flight to pre-train on")
	}
	if p.Run == "fold" && p.LeaveOut == "" {
		r.Error("phases.leave_out", "name the flight to leave out")
	}
	if p.Run == "mae" || p.Masked {
		if n := 1 << len(m.Channels); m.Height%n != 0 || m.Width%n != 0 || m.Height%m.MaskPatch != 0 || m.Width%m.MaskPatch != 0 {
			r.Error("model.mask_patch", "images of %dx%d do not divide into patches of %d and %d halvings", m.Height, m.Width, m.MaskPatch, len(m.Channels))
		}
	}
	if g := config.Of[Synthetic](c); generated(c) {
		if g.BaseMin >= g.BaseMax || g.BaseMax >= g.Altitude {
			r.Error("synthetic.base_max", "bases from %v to %v km below an aircraft at %v km: want them in ascending order", g.BaseMin, g.BaseMax, g.Altitude)
		}
		if g.BurstFrames < m.Frames {
			r.Error("synthetic.burst_frames", "%d frames have no room for a window of %d (model.frames)", g.BurstFrames, m.Frames)
		}
	}
}

// count returns how often name is in the lists.
func count(name string, lists ...[]string) (n int) {
	for _, l := range lists {
		for _, x := range l {
			if x == name {
				n++
			}
		}
	}
	return n
}

// held reports whether the split holds a flight out.
func (s *Split) held(name string) bool {
	return slices.Contains(s.Validation, name) || slices.Contains(s.Calibration, name) || slices.Contains(s.Test, name)
}
