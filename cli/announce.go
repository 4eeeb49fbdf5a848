package cli

import (
	"github.com/snug-ml/snug/engine/graph"
)

// announce prints what will be run.
func (r *run) announce() {
	all, trained := r.program.Parameters()
	t := &r.config.Training
	name := r.config.System
	if r.config.Preset != "" {
		name += " / " + r.config.Preset
	}
	r.printf("%s: %s parameters", name, count(float64(all)))
	if trained != all {
		r.printf(" (%s trained)", count(float64(trained)))
	}
	r.printf(", %s on %s, %d threads (%s)\n", r.precision, r.host.CPU.String(), r.threads, r.reason)
	s := r.model.Shape
	r.printf("update: %d x %d sequences = %s %s; %d updates\n", s.Accumulation, s.MicroBatch,
		count(float64(int64(s.Accumulation*s.MicroBatch)*r.model.UnitsPerRow)), r.model.Unit, t.MaxSteps)
}

// flops is the arithmetic of one update, without what recomputation repeats.
func (r *run) flops() float64 {
	var micro, update float64
	for _, f := range r.program.Funcs {
		if f.Name == "eval" {
			continue
		}
		n := 0.0
		for _, node := range f.F.Nodes {
			if !node.Clone {
				n += cost(node).MatrixFLOPs
			}
		}
		if f.Name == "update" {
			update += n
		} else {
			micro = n
		}
	}
	return micro*float64(max(r.model.Shape.Accumulation, 1)) + update
}

func cost(n *graph.Node) graph.Cost {
	types := func(vs []*graph.Value) []graph.Type {
		t := make([]graph.Type, len(vs))
		for i, v := range vs {
			t[i] = v.Type
		}
		return t
	}
	return n.Op.Cost(types(n.In), types(n.Out))
}

// utilization is the share of the processor's peak at a number of updates a second.
func (r *run) utilization(rate float64) float64 {
	if r.peak == 0 {
		return 0
	}
	return r.flops() * rate / r.peak
}
