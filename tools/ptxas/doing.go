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
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/counts"
	"github.com/snug-ml/snug/session"
)

// modeled are the presets of which the table shows the longest launch of each kernel.
var modeled = []string{"refocused-t4", "moderation-t4", "cloudbase-t4", "agiformer-base-t4", "dynamo-t4", "finetune-t4"}

// done is the longest launch of a group of kernels, as plans price it.
type done struct {
	group string
	engine.Launch
	plan.Pipes
	moved float64 // bytes
}

// longest are the longest launches of kernels in the training steps of presets, each on a T4
// in its precision.
func longest(ctx context.Context) ([]done, error) {
	card, err := device.Lookup("t4")
	if err != nil {
		return nil, err
	}
	lower := backend.Lower(card)
	found := map[string]done{}
	for _, preset := range modeled {
		s, err := session.Load(ctx, config.Sources{Preset: preset}, nil)
		if err != nil {
			return nil, err
		}
		on, err := s.Targets([]string{card.Name})
		if err != nil {
			return nil, err
		}
		for _, precision := range []device.Precision{device.FP16, device.FP32} {
			_, p, err := s.Fit(on[0], precision)
			if err != nil {
				continue // it does not fit in float32
			}
			speed := plan.CardSpeed(card, precision, lower)
			for _, f := range p.Funcs {
				launches, err := lower.Launches(f.F.Nodes)
				if err != nil {
					return nil, fmt.Errorf("preset %s: %w", preset, err)
				}
				for _, l := range launches {
					d := done{group: group(l.Kernel.Name), Launch: l, Pipes: speed.Launched(l.Kernel)}
					if d.moved = d.Memory * speed.Bandwidth; l.Rows {
						d.moved = d.Memory * speed.Kernels.RowTraffic
					}
					if was, ok := found[d.group]; !ok || d.Total > was.Total {
						found[d.group] = d
					}
				}
			}
		}
	}
	var list []done
	for _, d := range found {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b done) int { return cmp.Compare(a.group, b.group) })
	return list, nil
}

// loop is the unit that most of a launch's instructions are of.
func (d done) loop() (unit string, of counts.Work) {
	var most float64
	for _, u := range d.Work.Units {
		kind, name, _ := strings.Cut(u.Of, " ")
		if w, _ := counts.Of(u.Of); kind == d.Kernel.Name && u.N*w.Issued() > most {
			unit, of, most = name, w, u.N*w.Issued()
		}
	}
	return unit, of
}

// doing is the part of docs/kernels.md on what kernels do.
func doing(list []done) string {
	var w strings.Builder
	fmt.Fprintf(&w, `
## What the kernels do on a T4

The columns from tensor to sectors are the work in one unit of the main loop, as counted in the PTX
by the interpreter (tools/counts): warp instructions by pipe, wavefronts of 128 bytes of shared
memory and sectors of 32 bytes of global memory. The units:

- step: 32 along K (8 in float) for one tile of a product;
- pair: one tile of queries and one tile of keys;
- line: 32 neighbors, or 128 in a norm with one warp per row;
- block, warp: the work of its threads;
- axis: one coordinate of a warp's elements in a generated loop.

The last columns price, as plans do, the longest launch of each kernel in a training step of these
presets, in fp16 and fp32: %s.
They give what limits the launch, and its shares of the specified peak of 65 TFLOP/s (8.1 in float)
and bandwidth of 320 GB/s. 70 W allow 24 TFLOP/s (37 %%), or 5.2 in float; copies have been seen at
256 GB/s (80 %%) and norms at 230 (72 %%). The table is predicted, not measured.

| kernel | unit | tensor | fp32 | integer | xu | other | shared | sectors | limit | share of peak | share of bandwidth |
|---|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|
`, strings.Join(modeled, ", "))
	for _, d := range list {
		unit, of := d.loop()
		cells := []string{d.Kernel.Name, unit}
		for _, v := range []float64{of.Tensor, of.FP32, of.Integer, of.XU, of.Other, of.Shared, of.Sectors} {
			cells = append(cells, rounded(v))
		}
		cells = append(cells, d.Limit())
		peak := 8.1e12
		if d.Tensor > 0 {
			peak = 65e12
		}
		for _, share := range []float64{d.FLOPs / d.Total / peak, d.moved / d.Total / 320e9} {
			cells = append(cells, percent(share))
		}
		fmt.Fprintf(&w, "| %s |\n", strings.Join(cells, " | "))
	}
	return w.String()
}

func rounded(v float64) string {
	switch {
	case v > -.05 && v < .05:
		return ""
	case v < 9.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func percent(share float64) string {
	if share < .005 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
