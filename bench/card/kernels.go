package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
)

type kernelsCmd struct {
	Device    string `default:"cuda" help:"cpu, cuda or cuda:N."`
	Precision string `default:"bf16" enum:"fp32,bf16,fp16" help:"fp32, bf16 or fp16."`
	Runs      int    `default:"20" help:"Measured runs of each; five more come first."`
	Small     bool   `help:"Small shapes, to try the command."`
	NoCublas  bool   `help:"Leave matmuls to snug's kernels."`
}

// kernelWarmup is the number of runs before the measured ones.
const kernelWarmup = 5

// kernel is a function of one operation. The names are those of torch_kernels.py.
type kernel struct {
	name  string
	build func(b *graph.Builder) *graph.Value
}

// measured is what a kernel took.
type measured struct {
	Kernel    string  `json:"kernel"`
	Seconds   float64 `json:"seconds"` // the median
	Predicted float64 `json:"predicted_seconds,omitempty"`
	FLOPs     float64 `json:"matrix_flops,omitempty"`
	Bytes     float64 `json:"bytes"`
	// Peak and Bandwidth are the card's by specification; 0: not known.
	Peak      float64 `json:"peak_flops,omitempty"`
	Bandwidth float64 `json:"peak_bytes_per_second,omitempty"`
}

// Run implements the command.
func (c *kernelsCmd) Run() error {
	precision, err := device.ParsePrecision(c.Precision)
	if err != nil {
		return err
	}
	on, err := backend.Open(backend.Options{Device: c.Device, NoCublas: c.NoCublas})
	if err != nil {
		return err
	}
	card, _, err := backend.CardOf(on)
	if err != nil {
		return err
	}
	var failed error
	for _, k := range kernels(plan.ComputeDType(precision), c.Small) {
		m, err := k.measure(on, card, precision, c.Runs)
		if err != nil { // the others may be right
			failed = errors.Join(failed, fmt.Errorf("%s: %w", k.name, err))
			if backend.Lost(err) {
				break
			}
			continue
		}
		if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
			return err
		}
	}
	return failed
}

// kernels are those that are timed: what models of GPT-2's size are made of, and square
// products, by which libraries are compared.
func kernels(half graph.DType, small bool) (list []kernel) {
	scale := 1
	if small {
		scale = 16
	}
	normal := func(b *graph.Builder, name string, d graph.DType, dims ...int) *graph.Value {
		return b.Cast(b.Input(name, graph.T(graph.F32, dims...)), d)
	}
	matmul := func(d graph.DType, m, n, k int, layout string) {
		m, n, k = m/scale, n/scale, k/scale
		ta, tb := layout[0] == 't', layout[1] == 't'
		a, w := []int{m, k}, []int{k, n}
		if ta {
			slices.Reverse(a)
		}
		if tb {
			slices.Reverse(w)
		}
		list = append(list, kernel{fmt.Sprintf("matmul %dx%dx%d %s %v", m, n, k, layout, d), func(b *graph.Builder) *graph.Value {
			return b.MatMul(normal(b, "a", d, a...), normal(b, "w", d, w...), ta, tb)
		}})
	}
	for _, n := range []int{512, 1024, 2048, 4096, 8192} {
		matmul(half, n, n, n, "nt")
	}
	matmul(half, 4096, 4096, 4096, "nn")
	matmul(half, 4096, 4096, 4096, "tn")
	matmul(half, 8192, 2304, 768, "nt") // of GPT-2, 8 x 1024
	matmul(half, 8192, 3072, 768, "nt")
	matmul(half, 8192, 768, 3072, "nt")
	matmul(half, 768, 3072, 8192, "tn")
	matmul(graph.F32, 4096, 4096, 4096, "nt")
	attention := func(batch, steps, heads, size int, causal bool) {
		batch, steps = max(1, batch/scale), steps/scale
		kind := "full"
		if causal {
			kind = "causal"
		}
		list = append(list, kernel{fmt.Sprintf("attention %dx%d, %d heads of %d, %s %v", batch, steps, heads, size, kind, half), func(b *graph.Builder) *graph.Value {
			qkv := normal(b, "qkv", half, batch, steps, 3*heads*size)
			return b.Attention(graph.Attention{Heads: heads, Causal: causal, Scale: 1 / float64(size), Layout: graph.PackedQKV}, qkv)
		}})
	}
	attention(8, 1024, 12, 64, true)
	attention(4, 1024, 12, 128, true)
	attention(32, 192, 12, 64, false)
	rows, width := 8192/scale, 768
	list = append(list,
		kernel{fmt.Sprintf("layer norm %dx%d %v", rows, width, half), func(b *graph.Builder) *graph.Value {
			return b.LayerNorm(normal(b, "x", half, rows, width), normal(b, "gamma", graph.F32, width), normal(b, "beta", graph.F32, width), 1e-5)
		}},
		kernel{fmt.Sprintf("gelu %dx%d %v", rows, 4*width, half), func(b *graph.Builder) *graph.Value {
			return b.GELU(normal(b, "x", half, rows, 4*width))
		}},
		kernel{fmt.Sprintf("loss %dx%dx%d %v", rows, width, 50257/scale, half), func(b *graph.Builder) *graph.Value {
			labels := b.Input("labels", graph.T(graph.I32, rows))
			return b.LinearCrossEntropy(normal(b, "h", half, rows, width), normal(b, "w", half, 50257/scale, width), labels, normal(b, "weights", graph.F32, rows), 2048)
		}},
	)
	return list
}

// measure times the operation by itself: what casts its operands is another node.
func (k kernel) measure(on engine.Backend, card *device.Card, precision device.Precision, runs int) (m measured, err error) {
	b := graph.NewBuilder("kernel")
	if err := graph.Catch(func() { b.Output("y", k.build(b)) }); err != nil {
		return m, err
	}
	op := b.F.Outputs[0].Value.Node.Op.Name()
	// Nothing is fused: the operation stays one.
	traits := on.Traits()
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &traits, Skip: func(pass string) bool { return pass == "fuse" }}, b.F)
	if err != nil {
		return m, err
	}
	x, err := p.Load(on)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, v := range p.Inputs {
		t, _ := x.Input(0, v.Name)
		if v.Type.DType == graph.I32 { // labels
			for i := range t.I32() {
				t.I32()[i] = int32(rng.IntN(1000))
			}
			continue
		}
		for i := range t.F32() {
			t.F32()[i] = float32(rng.NormFloat64())
		}
	}
	var node *graph.Node
	var took []float64
	x.Observe(&engine.Observer{After: func(n *graph.Node, d time.Duration) bool {
		if n.Op.Name() == op {
			node = n
			took = append(took, d.Seconds())
		}
		return true
	}})
	for range kernelWarmup + runs {
		if err := x.Run(p.Funcs[0].Name, 0); err != nil {
			return m, err
		}
	}
	if len(took) != kernelWarmup+runs {
		return m, fmt.Errorf("%d runs were timed %d times", kernelWarmup+runs, len(took))
	}
	took = took[kernelWarmup:]
	slices.Sort(took)
	c := node.Cost()
	m = measured{Kernel: k.name, Seconds: took[len(took)/2], FLOPs: c.MatrixFLOPs, Bytes: c.Bytes}
	if card != nil {
		s := plan.CardSpeed(card, precision, backend.Lower(card))
		m.Predicted, m.Bandwidth, m.Peak = s.Seconds(node), card.Bandwidth, s.Peak
		if !node.In[0].DType().Half() {
			m.Peak = card.FP32.Peak
		}
	}
	return m, nil
}
