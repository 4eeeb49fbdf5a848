package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/session"
)

// target is a kind of PTX, with a card to compile programs for and the architectures
// that it is assembled for.
type target struct {
	sm         int
	card       string // of the planner's table
	sms        int    // multiprocessors
	precisions []device.Precision
	archs      []string
}

var targets = []target{
	{75, "t4", 40, []device.Precision{device.FP16, device.FP32}, []string{"sm_75", "sm_86", "sm_89"}},
	{80, "a10", 72, []device.Precision{device.BF16, device.FP16, device.TF32, device.FP32}, []string{"sm_80", "sm_86", "sm_89", "sm_90", "sm_120"}},
}

// presets are those whose training steps the corpus takes kernels from.
var presets = []string{"quickstart", "moderation-quickstart", "cloudbase-quickstart", "agiformer-quickstart", "dynamo-quickstart", "refocused-t4", "finetune-t4"}

// generated are the parts of the conformance table that have generated kernels
// unlike those of training.
var generated = []string{"fused/", "mapped/", "random/", "matmul/"}

// entry is what a kernel begins with.
const entry = ".visible .entry "

// kernelsOf are the texts of all kernels of a target by name: those that are made
// beforehand, and those generated for real programs, of each kind the longest only.
func (t *target) kernelsOf(ctx context.Context, longest int) (map[string]string, error) {
	found := map[string]string{}
	names, err := kernels.Names(t.sm)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := kernels.Kernel(t.sm, name)
		if err != nil {
			return nil, err
		}
		found[name] = entry + name + text
	}
	made, err := t.generated(ctx)
	if err != nil {
		return nil, err
	}
	kinds := map[string][]string{}
	for name := range made {
		if found[name] == "" {
			kinds[kind(name)] = append(kinds[kind(name)], name)
		}
	}
	for _, of := range kinds {
		slices.SortFunc(of, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(made[b]), len(made[a])), strings.Compare(a, b))
		})
		if longest > 0 {
			of = of[:min(longest, len(of))]
		}
		for _, name := range of {
			found[name] = made[name]
		}
	}
	return found, nil
}

// kind is the name of a generated kernel without the hash of its text.
func kind(name string) string {
	if at := strings.LastIndexByte(name, '_'); at >= 0 && len(name)-at == len("_0123456789abcdef") {
		return name[:at]
	}
	return name
}

// generated are the kernels that programs launch, by name.
func (t *target) generated(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	add := func(what string, p *engine.Program, err error) error {
		var text string
		if err == nil {
			text, err = cuda.PTX(p, t.sm, t.sms)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		_, text, _ = strings.Cut(text, entry)
		for kernel := range strings.SplitSeq(text, entry) {
			name, _, _ := strings.Cut(kernel, "(")
			found[strings.TrimSpace(name)] = entry + kernel
		}
		return nil
	}
	for _, preset := range presets {
		s, err := session.Load(ctx, config.Sources{Preset: preset}, nil)
		if err != nil {
			return nil, err
		}
		on, err := s.Targets([]string{t.card})
		if err != nil {
			return nil, err
		}
		for _, precision := range t.precisions {
			_, p, err := s.Fit(on[0], precision)
			if err := add(fmt.Sprintf("preset %s in %v on a %s", preset, precision, t.card), p, err); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range conformance.Cases() {
		if slices.ContainsFunc(generated, func(prefix string) bool { return strings.HasPrefix(c.Name, prefix) }) {
			p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, c.Func)
			if err := add(c.Name, p, err); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
