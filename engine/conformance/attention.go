package conformance

import (
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
)

// attnCase is one geometry and mask.
type attnCase struct {
	batch, heads, tq, tk, k int
	layout                  graph.Layout
	causal, segments        bool
	drop                    float64
	lens                    []int
	group                   int  // query heads that share a head of keys; 0: 1
	long                    bool // documents of about 70 positions, so that tiles of others can be skipped
}

func (c attnCase) String() string {
	s := []string{fmt.Sprintf("b%dh%dq%dk%dd%d", c.batch, c.heads, c.tq, c.tk, c.k), [...]string{"separate", "heads", "qkv"}[c.layout]}
	if c.group > 0 {
		s = append(s, fmt.Sprintf("group%d", c.group))
	}
	if c.causal {
		s = append(s, "causal")
	}
	if c.lens != nil {
		s = append(s, "lens"+fmt.Sprint(c.lens))
	}
	if c.segments {
		s = append(s, "segments")
		if c.long {
			s = append(s, "long")
		}
	}
	if c.drop > 0 {
		s = append(s, "drop")
	}
	return strings.ReplaceAll(strings.Join(s, "_"), " ", ",")
}

var attnCases = []attnCase{
	{batch: 1, heads: 1, tq: 1, tk: 1, k: 1},
	{batch: 2, heads: 3, tq: 9, tk: 9, k: 8, causal: true},
	{batch: 2, heads: 3, tq: 9, tk: 9, k: 8, causal: true, layout: graph.PackedHeads},
	{batch: 2, heads: 3, tq: 9, tk: 9, k: 8, causal: true, layout: graph.PackedQKV},
	{batch: 2, heads: 2, tq: 7, tk: 7, k: 5, layout: graph.PackedHeads},
	{batch: 2, heads: 2, tq: 7, tk: 7, k: 5, layout: graph.PackedQKV},
	{batch: 3, heads: 2, tq: 10, tk: 10, k: 4, lens: []int{10, 1, 6}},
	{batch: 3, heads: 2, tq: 10, tk: 10, k: 4, lens: []int{4, 0, 10}, causal: true, layout: graph.PackedHeads}, // padded batch, one row empty
	{batch: 2, heads: 2, tq: 5, tk: 11, k: 8},
	{batch: 2, heads: 2, tq: 5, tk: 11, k: 8, causal: true},
	{batch: 3, heads: 2, tq: 1, tk: 70, k: 16, causal: true, lens: []int{1, 33, 70}}, // generation, one token
	{batch: 2, heads: 2, tq: 4, tk: 40, k: 16, causal: true, lens: []int{4, 23}},     // generation, a few
	{batch: 2, heads: 2, tq: 12, tk: 12, k: 8, causal: true, segments: true, layout: graph.PackedHeads},
	{batch: 2, heads: 2, tq: 12, tk: 12, k: 8, segments: true},
	{batch: 2, heads: 2, tq: 40, tk: 40, k: 8, causal: true, drop: 0.2, layout: graph.PackedHeads},
	{batch: 2, heads: 2, tq: 6, tk: 37, k: 8, drop: 0.2, lens: []int{37, 20}},
	{batch: 1, heads: 2, tq: 150, tk: 150, k: 16, causal: true, layout: graph.PackedHeads}, // several tiles
	{batch: 1, heads: 1, tq: 70, tk: 131, k: 64, lens: []int{77}},
	{batch: 1, heads: 1, tq: 131, tk: 131, k: 24, causal: true, segments: true, drop: 0.1, layout: graph.PackedQKV},
	{batch: 1, heads: 1, tq: 33, tk: 33, k: 80, causal: true},
	{batch: 1, heads: 2, tq: 20, tk: 300, k: 32, causal: true},
	{batch: 2, heads: 2, tq: 3, tk: 300, k: 20, causal: true, lens: []int{2, 280}}, // the same, a long cache
	{batch: 2, heads: 1, tq: 4, tk: 4, k: 8, segments: true},
	{batch: 1, heads: 1, tq: 40, tk: 70, k: 96},
	{batch: 1, heads: 2, tq: 70, tk: 70, k: 128, causal: true, drop: 0.1, layout: graph.PackedHeads},
	{batch: 1, heads: 1, tq: 9, tk: 66, k: 136},
	{batch: 2, heads: 6, tq: 9, tk: 9, k: 8, group: 2, causal: true},
	{batch: 1, heads: 4, tq: 7, tk: 12, k: 5, group: 4, lens: []int{9}},
	{batch: 2, heads: 4, tq: 1, tk: 150, k: 16, group: 2, causal: true, lens: []int{1, 140}}, // generation
	{batch: 1, heads: 6, tq: 70, tk: 70, k: 16, group: 3, causal: true, segments: true, drop: 0.1},
	{batch: 1, heads: 2, tq: 131, tk: 131, k: 64, group: 2, causal: true}, // tiles of both heads
	{batch: 1, heads: 2, tq: 40, tk: 40, k: 128, group: 2, causal: true},
	{batch: 2, heads: 2, tq: 20, tk: 20, k: 8, group: 2, causal: true, lens: []int{0, 13}}, // a row sees nothing
	{batch: 2, heads: 1, tq: 260, tk: 260, k: 16, causal: true, segments: true, long: true, lens: []int{250, 120}},
	{batch: 1, heads: 1, tq: 260, tk: 260, k: 128, segments: true, long: true},
}

func (t *table) attention() {
	for _, d := range floats {
		for _, c := range attnCases {
			t.attn(c, d)
		}
		t.rotary(d)
		t.cache(d)
	}
	for _, r := range []graph.RotaryTable{
		{T: 1, Dims: 2, Base: 10000}, {T: 37, Dims: 20, Base: 10000}, {T: 4096, Dims: 8, Base: 500000},
		{T: 50, Dims: 16, Base: 10000, Scaling: graph.RotaryScaling{Factor: 4}},
		{T: 90, Dims: 64, Base: 500000, Scaling: graph.RotaryScaling{Factor: 8, Offset: -1. / 3, PerFrequency: 434.6}},           // llama3
		{T: 90, Dims: 32, Base: 10000, Scaling: graph.RotaryScaling{Factor: 3, Offset: 1.5, PerPair: -0.12, Magnitude: 1.10986}}, // yarn
	} {
		name := fmt.Sprintf("rotary_table/%dx%d", r.T, r.Dims)
		if r.Scaling != (graph.RotaryScaling{}) {
			name += "_scaled"
		}
		// The frequency and the angle, up to T, may each be rounded to float32.
		t.add(name, Tolerance{Ulps: 1, Abs: float64(r.T) * 0x1p-23}, func(m *maker) {
			m.outputs(m.Emit(r)...)
		})
	}
}

func (t *table) attn(c attnCase, d graph.DType) {
	op := graph.Attention{
		Heads: c.heads, KVHeads: c.heads / max(c.group, 1), Causal: c.causal, Scale: 1 / math.Sqrt(float64(c.k)), Layout: c.layout,
		Lens: c.lens != nil, Segments: c.segments, Drop: c.drop, Seed: 99, Stream: 7,
	}
	width := c.heads * c.k
	if c.group == 0 {
		op.KVHeads = 0 // the default
	}
	operands := func(m *maker) []*graph.Value {
		var in []*graph.Value
		if c.layout == graph.Separate {
			in = append(in, m.normal("q", d, c.batch, c.tq, width), m.normal("k", d, c.batch, c.tk, op.Groups()*c.k), m.normal("v", d, c.batch, c.tk, op.Groups()*c.k))
		} else {
			in = append(in, m.normal("qkv", d, c.batch, c.tq, 3*width))
		}
		if c.lens != nil {
			in = append(in, m.given("lens", c.lens...))
		}
		if c.segments { // runs of a document id, as packing makes them
			id, length := 0.0, 6
			if c.long {
				length = 70
			}
			in = append(in, m.input("segments", graph.T(graph.I32, c.batch, c.tq), func() float64 {
				if m.rng.IntN(length) == 0 {
					id++
				}
				return id
			}))
		}
		if c.drop > 0 {
			in = append(in, m.given(graph.RunCounter, 1234, 0))
		}
		return in
	}
	t.add(fmt.Sprintf("attention/%v/%v", d, c), Tolerance{Ulps: 16, Terms: c.k + c.tk, Inner: 1, InnerDType: d}, func(m *maker) {
		m.outputs(m.Emit(op, operands(m)...)...)
	})
	t.add(fmt.Sprintf("attention_grad/%v/%v", d, c), Tolerance{Ulps: 16, Terms: c.k + max(c.group, 1)*c.tq + c.tk, Inner: 2, InnerDType: d}, func(m *maker) {
		in := operands(m)
		fwd := m.Emit(op, in...)
		do := m.normal("do", d, c.batch, c.tq, width)
		m.outputs(m.Emit(graph.AttentionGrad(op), append([]*graph.Value{do, fwd[0], fwd[1]}, in...)...)...)
	})
}

func (t *table) rotary(d graph.DType) {
	for _, c := range []struct {
		op    graph.Rotary
		k     int
		first []int
	}{
		{op: graph.Rotary{Heads: 3, Dims: 4, Layout: graph.PackedHeads}, k: 16},
		{op: graph.Rotary{Heads: 3, Dims: 16, Layout: graph.PackedHeads}, k: 16},
		{op: graph.Rotary{Heads: 2, Dims: 6, Layout: graph.PackedQKV}, k: 7},
		{op: graph.Rotary{Heads: 2, Dims: 8, Layout: graph.Separate}, k: 80},
		{op: graph.Rotary{Heads: 2, Dims: 4, Layout: graph.PackedHeads, Inverse: true}, k: 8},
		{op: graph.Rotary{Heads: 2, Dims: 4, Layout: graph.PackedHeads, Offset: true}, k: 8, first: []int{0, 13}},
		{op: graph.Rotary{Heads: 1, Dims: 2, Layout: graph.Separate, Offset: true, Inverse: true}, k: 3, first: []int{20, 4}},
	} {
		name := fmt.Sprintf("rotary/%v/%dof%d_%d", d, c.op.Dims, c.k, c.op.Layout)
		if c.op.Offset {
			name += "_offset"
		}
		if c.op.Inverse {
			name += "_inverse"
		}
		build := func(inPlace bool) func(m *maker) {
			return func(m *maker) {
				parts := 3
				if c.op.Layout == graph.Separate {
					parts = 1
				}
				angle := m.input("table", graph.T(graph.F32, 32, c.op.Dims), func() float64 { return 2*m.rng.Float64() - 1 })
				in := []*graph.Value{m.normal("x", d, 2, 11, parts*c.op.Heads*c.k), angle}
				if c.op.Offset {
					in = append(in, m.given("first", c.first...))
				}
				if !inPlace {
					m.outputs(m.Rotary(c.op, in...))
					return
				}
				in[0] = m.Neg(in[0]) // between operand and result, where nothing else reads it
				m.outputs(m.Neg(m.Rotary(c.op, in...)))
			}
		}
		// Two products are added: their error is relative to the larger one.
		tol := Tolerance{Ulps: 2, Terms: 1}
		t.add(name, tol, build(false))
		t.add(name+"_in_place", tol, build(true))
	}
}

func (t *table) cache(d graph.DType) {
	t.add(fmt.Sprintf("cache_write/%v", d), Tolerance{}, func(m *maker) {
		cache := m.state("cache", graph.T(d, 2, 9, 5), m.rng.NormFloat64)
		cache = m.Emit(graph.CacheWrite{}, cache, m.normal("x", d, 2, 3, 5), m.given("pos", 6, 1))[0]
		m.outputs(m.Emit(graph.CacheWrite{}, cache, m.normal("y", d, 2, 1, 5), m.given("pos2", 2, 3))...)
	})
}
