package conformance_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// processor is the CPU as a device.
type processor struct {
	name    string
	workers int
	skip    func(pass string) bool
}

func (p processor) Name() string { return p.name }

func (p processor) Run(f *graph.Func, in map[string][]float64) (out map[string][]float64, err error) {
	outputs := append([]graph.Output(nil), f.Outputs...) // compiling may rewrite f
	prog, err := engine.CompileForward(engine.CompileOptions{Verify: true, Skip: p.skip}, f)
	if err != nil {
		return nil, err
	}
	r, err := prog.Load(backend.CPU(p.workers))
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := r.Close(); err == nil {
			err = cerr
		}
	}()
	for name, x := range in {
		if t, ok := r.Input(0, name); ok {
			write(t, x)
		} else if s := prog.State(name); s != nil {
			t := engine.Tensor{Name: name, Type: s.Type, Data: make([]byte, s.Type.Bytes())}
			write(t, x)
			if err := r.SetState(t); err != nil {
				return nil, err
			}
		} // else nothing reads it
	}
	if err := r.Run(f.Name, 0); err != nil {
		return nil, err
	}
	out = map[string][]float64{}
	for _, o := range outputs {
		t, err := r.Output(f.Name, o.Name)
		if err != nil {
			return nil, err
		}
		out[o.Name] = read(t)
	}
	return out, nil
}

func write(t engine.Tensor, x []float64) {
	if t.Type.DType == graph.I32 {
		for i, v := range x {
			t.I32()[i] = int32(v)
		}
		return
	}
	full := make([]float32, len(x))
	for i, v := range x {
		full[i] = float32(v)
	}
	switch t.Type.DType {
	case graph.BF16:
		simd.F32ToBF16(t.U16(), full)
	case graph.F16:
		simd.F32ToF16(t.U16(), full)
	default:
		copy(t.F32(), full)
	}
}

func read(t engine.Tensor) []float64 {
	x := make([]float64, t.Type.Shape.Elems())
	full := make([]float32, len(x))
	switch t.Type.DType {
	case graph.I32:
		for i, v := range t.I32() {
			x[i] = float64(v)
		}
		return x
	case graph.BF16:
		simd.BF16ToF32(full, t.U16())
	case graph.F16:
		simd.F16ToF32(full, t.U16())
	default:
		copy(full, t.F32())
	}
	for i, v := range full {
		x[i] = float64(v)
	}
	return x
}

// The CPU with all kernels it has: each operation alone, then as the passes
// leave it.
func TestCPU(t *testing.T) {
	t.Cleanup(func() {
		if err := cpu.Configure(os.Getenv("SNUG_CPU_ISA")); err != nil {
			t.Error(err)
		}
	})
	for level := simd.Portable; level <= simd.Best(); level++ {
		if err := cpu.Configure(level.String()); err != nil {
			t.Fatal(err)
		}
		for _, dev := range []processor{
			{name: fmt.Sprintf("%v/plain", level), workers: 1, skip: func(pass string) bool { return pass == "fuse" }},
			{name: level.String(), workers: 2},
		} {
			t.Run(dev.name, func(t *testing.T) {
				conformance.Run(t, dev)
				conformance.RunGoldens(t, dev, goldens)
			})
		}
	}
}
