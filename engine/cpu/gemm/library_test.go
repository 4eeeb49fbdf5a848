package gemm

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// naive is a library in Go.
type naive struct{}

func (naive) CallBytes() int { return 40 }

func (naive) Sgemm(m, n, k int, a, b, c Matrix, accumulate bool, scratch []byte) {
	clear(scratch[:40])
	at := func(x Matrix, i, j int) *float32 {
		if x.Trans {
			i, j = j, i
		}
		return (*float32)(x.at(i, j))
	}
	for i := range m {
		for j := range n {
			s := float32(0)
			if accumulate {
				s = *at(c, i, j)
			}
			for x := range k {
				s += *at(a, i, x) * *at(b, x, j)
			}
			*at(c, i, j) = s
		}
	}
}

// TestLibrary: a plan with a library gives it each block once, and finishes the blocks.
func TestLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(250, 600)).Draw(t, "m")
		n := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(500, 1100)).Draw(t, "n")
		k := rapid.IntRange(1, 20).Draw(t, "k")
		transA, transB := rapid.Bool().Draw(t, "transA"), rapid.Bool().Draw(t, "transB")
		opts := Options{Library: naive{}, Accumulate: rapid.Bool().Draw(t, "accumulate"), Workers: rapid.IntRange(1, 8).Draw(t, "workers")}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		a, b := newOperand(m, k, 2, F32, transA, uniform(rng)), newOperand(k, n, 1, F32, transB, uniform(rng))
		c := newOperand(m, n, 3, F32, false, uniform(rng))
		want, scale := reference(m, n, k, a, b, c, opts.Accumulate)
		args := &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix}
		if rapid.Bool().Draw(t, "bias") {
			bias := newOperand(1, n, 0, F32, false, uniform(rng))
			args.Bias = bias.Data
			for i := range want {
				want[i] += bias.get(0, i%n)
				scale[i] += math.Abs(bias.get(0, i%n))
			}
		}
		var e *marks
		if rapid.Bool().Draw(t, "epilogue") {
			e = &marks{n: n, count: make([]int, m*n)}
			args.Epilogue = e
			for i := range want {
				want[i]++
				scale[i]++
			}
		}
		p := NewPlan(m, n, k, F32, F32, F32, transA, transB, opts)
		if p.Phases() != 1 || p.SharedBytes() != 0 || p.WorkerBytes() != 64 {
			t.Fatalf("%d phases, workspace %d and %d", p.Phases(), p.SharedBytes(), p.WorkerBytes())
		}
		sequential(t, p, args, rng)
		compare(t, m, n, k, c, want, scale, false)
		if e != nil {
			for i, got := range e.count {
				if got != 1 {
					t.Fatalf("element %d,%d finished %d times", i/n, i%n, got)
				}
			}
		}
	})
}

// Operands that a library cannot multiply are refused, not multiplied wrongly.
func TestLibraryServes(t *testing.T) {
	f := func(dst, x []float32) { copy(dst, x) }
	for name, refused := range map[string]func(){
		"bf16":   func() { NewPlan(4, 4, 4, BF16, F32, F32, false, false, Options{Library: naive{}}) },
		"result": func() { NewPlan(4, 4, 4, F32, F32, BF16, false, false, Options{Library: naive{}}) },
		"rounds": func() { NewPlan(4, 4, 4, F32, F32, F32, false, false, Options{Library: naive{}, Compute: BF16}) },
		"mapped": func() { NewPlan(4, 4, 4, F32, F32, F32, false, false, Options{Library: naive{}, MapB: f}) },
		"seen": func() {
			x := make([]float32, 16)
			a := Matrix{Data: unsafe.Pointer(&x[0]), Stride: 4}
			p := NewPlan(4, 4, 4, F32, F32, F32, false, false, Options{Library: naive{}})
			p.Run(0, 0, &Args{A: a, B: a, C: a, SeeA: func(_, _, _, _, _ int) {}}, nil, make([]byte, 64))
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s was not refused", name)
				}
			}()
			refused()
		}()
	}
}
