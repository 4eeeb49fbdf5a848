package plan

import (
	"fmt"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/internal/size"
)

// Settings are what the planner may choose. They are comparable, so that each is compiled only once.
type Settings struct {
	MicroBatch   int            `json:"batch_size"`
	Accumulation int            `json:"gradient_accumulation_steps"`
	Recompute    pass.Recompute `json:"gradient_checkpointing"`
	Budget       int64          `json:"recompute_budget_bytes,omitempty"` // for temporaries, with pass.RecomputeAuto or OffloadActivations; 0 means what the target leaves
	// Slices is the number of parts of a micro-batch in which pass.RecomputeSlices computes a block; 0 means
	// as few as fit.
	Slices    int              `json:"checkpoint_slices,omitempty"`
	Precision device.Precision `json:"mixed_precision"`
	// CEChunk is the number of rows of logits that the loss holds at a time; 0 means all.
	CEChunk int `json:"ce_chunk"`
	// Offload is what is kept in the host's memory.
	Offload Offload `json:"offload,omitempty"`
	// Compress keeps the arguments of GELU and SiLU for the backward half in 8 bits.
	Compress bool `json:"activations_int8,omitempty"`
	// NarrowGradients keeps gradients of matrices in 16 bits.
	NarrowGradients bool `json:"gradients_bf16,omitempty"`
	// Clip is the norm that gradients are clipped by; empty means engine.ClipExact.
	Clip engine.ClipNorm `json:"clip_norm,omitempty"`
}

// Effective returns the batch of an update.
func (s Settings) Effective() int { return s.MicroBatch * max(1, s.Accumulation) }

func (s Settings) String() string {
	t := fmt.Sprintf("%s, batch %d x %d, recompute %v", s.Precision, s.MicroBatch, max(1, s.Accumulation), s.Recompute)
	if s.Recompute == pass.RecomputeSlices {
		t = fmt.Sprintf("%s, batch %d x %d, recompute in %d slices", s.Precision, s.MicroBatch, max(1, s.Accumulation), s.Slices)
	}
	if s.CEChunk > 0 {
		t += fmt.Sprintf(", loss in chunks of %s", size.Of(s.CEChunk, "row"))
	}
	if s.Compress {
		t += ", activations in int8"
	}
	if s.NarrowGradients {
		t += ", gradients in bf16"
	}
	switch s.Clip {
	case engine.ClipTwoPasses:
		t += ", clipped in two passes"
	case engine.ClipPrevious:
		t += ", clipped by the norm of the update before"
	}
	if s.Offload.Has(OffloadOptimizer) {
		t += ", the optimizer's states in main memory"
	}
	if s.Offload.Has(OffloadActivations) {
		t += ", as few activations there as it takes"
	}
	return t
}

// without returns the settings with some of the offloaded data back on the device.
func (s Settings) without(o Offload) Settings {
	if s.Offload &^= o; o.Has(OffloadActivations) {
		s.Budget = 0
	}
	return s
}

// with returns the same settings with o in main memory.
func (s Settings) with(o Offload) Settings {
	s.Offload = o
	return s
}

// divided returns the settings with slices reduced until they divide the micro-batch.
func (s Settings) divided() Settings {
	for s.Slices > 1 && s.MicroBatch%s.Slices != 0 {
		s.Slices--
	}
	return s
}

// ComputeDType returns the type that programs of a precision compute in; for TF32 that is float32, whose
// matmuls round their factors.
func ComputeDType(p device.Precision) graph.DType {
	switch p {
	case device.BF16:
		return graph.BF16
	case device.FP16:
		return graph.F16
	}
	return graph.F32
}

// TF32 reports whether matmuls in a precision round float32 factors to TF32. Matmuls that stay float32 under
// BF16 or FP16 do not, because they stay float32 to be exact.
func TF32(p device.Precision) bool { return p == device.TF32 }
