package attention

import (
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/snug-ml/snug/engine/cpu/gemm"
	"github.com/snug-ml/snug/internal/isa"
)

// problem is one attention with its operands, float64 values of them, and the
// memory of the results between canaries.
type problem struct {
	Config
	args    Args
	q, k, v []float64 // as stored, [B, H, T, Size]
	do      []float64
	keep    []float64 // [B, H, Tq, Tk] multipliers of dropout
	mem     []*field
	o, dq   *field
	dk, dv  *field
	wantO   []float64
	wantLSE []float64
	wantDQ  []float64
	wantDK  []float64
	wantDV  []float64
}

// field is the memory of a view: [B, T, gap + H*Size + gap].
type field struct {
	view       View
	b, t, h, k int
	all        []byte
}

const canary = 0x5b

func newField(b, t, h, k int, typ gemm.DType, gap int) *field {
	size := typ.Size()
	row := h*k + 2*gap
	f := &field{b: b, t: t, h: h, k: k, all: make([]byte, b*t*row*size)}
	for i := range f.all {
		f.all[i] = canary
	}
	f.view = View{Data: unsafe.Pointer(&f.all[gap*size]), Type: typ, Batch: t * row, Row: row, Head: k}
	return f
}

func (f *field) at(b, h, t, k int) int {
	return (b*f.view.Batch + t*f.view.Row + h*f.view.Head + k) * f.view.Type.Size()
}

// convert goes through the engine's own conversions, which gemm tests.
func (f *field) get(b, h, t, k int) float64 {
	m := gemm.Matrix{Data: unsafe.Add(f.view.Data, f.at(b, h, t, k)), Type: f.view.Type, Stride: 1}
	var x float32
	gemm.NewMicro(isa.Portable, gemm.F32).Load(1, 1, &m, &x, 1)
	return float64(x)
}

func (f *field) set(b, h, t, k int, v float64) {
	m := gemm.Matrix{Data: unsafe.Add(f.view.Data, f.at(b, h, t, k)), Type: f.view.Type, Stride: 1}
	x := float32(v)
	gemm.NewMicro(isa.Portable, gemm.F32).Store(1, 1, &x, 1, &m)
}

// values returns the elements [B, H, T, Size].
func (f *field) values() []float64 {
	var out []float64
	for b := range f.b {
		for h := range f.h {
			for t := range f.t {
				for k := range f.k {
					out = append(out, f.get(b, h, t, k))
				}
			}
		}
	}
	return out
}

// intact reports whether the bytes between rows are unchanged.
func (f *field) intact() bool {
	inside := make([]bool, len(f.all))
	base := int(uintptr(f.view.Data) - uintptr(unsafe.Pointer(&f.all[0])))
	for b := range f.b {
		for h := range f.h {
			for t := range f.t {
				from := base + f.at(b, h, t, 0)
				for i := range f.k * f.view.Type.Size() {
					inside[from+i] = true
				}
			}
		}
	}
	for i, in := range inside {
		if !in && f.all[i] != canary {
			return false
		}
	}
	return true
}

// coin is a dropout of a fixed probability, a hash of the counter.
type coin struct{ p float64 }

func (c coin) Keep(first uint64, out []float32) {
	for i := range out {
		x := (first + uint64(i) + 1) * 0x9e3779b97f4a7c15
		x ^= x >> 29
		x *= 0xbf58476d1ce4e5b9
		x ^= x >> 32
		out[i] = 0
		if float64(x>>11)*0x1p-53 >= c.p {
			out[i] = float32(1 / (1 - c.p))
		}
	}
}

type maskKind struct{ lengths, segments, dropout bool }

func newProblem(c Config, out gemm.DType, gap int, masks maskKind, rng *rand.Rand) *problem {
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	p := &problem{Config: c}
	fill := func(t, heads int) *field {
		f := newField(c.Batch, t, heads, c.Size, c.Type, gap)
		for b := range c.Batch {
			for h := range heads {
				for i := range t {
					for k := range c.Size {
						f.set(b, h, i, k, rng.NormFloat64())
					}
				}
			}
		}
		p.mem = append(p.mem, f)
		return f
	}
	result := func(t, heads int) *field {
		f := newField(c.Batch, t, heads, c.Size, out, gap)
		p.mem = append(p.mem, f)
		return f
	}
	q, k, v, do := fill(c.Tq, c.Heads), fill(c.Tk, c.KVHeads), fill(c.Tk, c.KVHeads), fill(c.Tq, c.Heads)
	p.q, p.k, p.v, p.do = q.values(), k.values(), v.values(), do.values()
	p.o, p.dq, p.dk, p.dv = result(c.Tq, c.Heads), result(c.Tq, c.Heads), result(c.Tk, c.KVHeads), result(c.Tk, c.KVHeads)
	p.args = Args{
		Q: q.view, K: k.view, V: v.view, DO: do.view,
		O: p.o.view, DQ: p.dq.view, DK: p.dk.view, DV: p.dv.view,
		LSE: make([]float32, c.Batch*c.Heads*c.Tq),
	}
	if masks.lengths {
		for range c.Batch {
			p.args.KeyLengths = append(p.args.KeyLengths, int32(rng.IntN(c.Tk+1)))
		}
	}
	if masks.segments {
		segments := func(t int) []int32 {
			s := make([]int32, c.Batch*t)
			for b := range c.Batch {
				id := int32(0)
				for i := range t {
					if rng.IntN(40) == 0 {
						id++
					}
					s[b*t+i] = id
				}
			}
			return s
		}
		p.args.SegmentsQ, p.args.SegmentsK = segments(c.Tq), segments(c.Tk)
	}
	p.keep = make([]float64, c.Batch*c.Heads*c.Tq*c.Tk)
	for i := range p.keep {
		p.keep[i] = 1
	}
	if masks.dropout {
		p.args.Dropout = coin{0.3}
		keep := make([]float32, len(p.keep))
		p.args.Dropout.Keep(0, keep)
		for i, v := range keep {
			p.keep[i] = float64(v)
		}
	}
	return p
}

func (p *problem) sees(b, i, j int) bool {
	valid := p.Tk
	if p.args.KeyLengths != nil {
		valid = int(p.args.KeyLengths[b])
	}
	if p.Causal && j > i+max(valid-p.Tq, 0) {
		return false
	}
	if j >= valid {
		return false
	}
	return p.args.SegmentsQ == nil || p.args.SegmentsQ[b*p.Tq+i] == p.args.SegmentsK[b*p.Tk+j]
}

// loss is the sum of dO*O, whose gradients Backward computes.
func (p *problem) loss() float64 {
	p.solve(false)
	sum := 0.0
	for i, o := range p.wantO {
		sum += o * p.do[i]
	}
	return sum
}

// solve computes the expected results in float64, straight from the formulas.
func (p *problem) solve(gradients bool) {
	p.wantO, p.wantDQ = make([]float64, len(p.q)), make([]float64, len(p.q))
	p.wantDK, p.wantDV = make([]float64, len(p.k)), make([]float64, len(p.k))
	p.wantLSE = make([]float64, p.Batch*p.Heads*p.Tq)
	prob := make([]float64, p.Tk)
	for bh := range p.Batch * p.Heads {
		row := func(x []float64, t, i int) []float64 { return x[(bh*t+i)*p.Size:][:p.Size] }
		kv := func(x []float64, j int) []float64 { return x[(bh/(p.Heads/p.KVHeads)*p.Tk+j)*p.Size:][:p.Size] }
		for i := range p.Tq {
			q, do, o, dq := row(p.q, p.Tq, i), row(p.do, p.Tq, i), row(p.wantO, p.Tq, i), row(p.wantDQ, p.Tq, i)
			keep := p.keep[(bh*p.Tq+i)*p.Tk:][:p.Tk]
			top, sum := math.Inf(-1), 0.0
			for j := range prob {
				prob[j] = math.Inf(-1)
				if p.sees(bh/p.Heads, i, j) {
					prob[j] = float64(p.Scale) * dot(q, kv(p.k, j))
				}
				top = max(top, prob[j])
			}
			p.wantLSE[bh*p.Tq+i] = top
			if math.IsInf(top, -1) {
				continue
			}
			for j := range prob {
				prob[j] = math.Exp(prob[j] - top)
				sum += prob[j]
			}
			p.wantLSE[bh*p.Tq+i] += math.Log(sum)
			for j := range prob {
				prob[j] /= sum
				axpy(prob[j]*keep[j], kv(p.v, j), o)
			}
			if !gradients {
				continue
			}
			delta := dot(do, o)
			for j, pj := range prob {
				axpy(pj*keep[j], do, kv(p.wantDV, j))
				ds := pj * (keep[j]*dot(do, kv(p.v, j)) - delta) * float64(p.Scale)
				axpy(ds, kv(p.k, j), dq)
				axpy(ds, q, kv(p.wantDK, j))
			}
		}
	}
}

func dot(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}

func axpy(a float64, x, y []float64) {
	for i, v := range x {
		y[i] += a * v
	}
}
