package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// program emits what is counted.
type program func(b *graph.Builder) []*graph.Value

// count runs a program on a card of one multiprocessor, on which work is cut as little
// as it can be, and adds up what the kernels whose names begin with a prefix did. All
// inputs are zero: no kernel that is counted branches on values.
func count(kernels string, p program) (w counts.Work, err error) {
	card := fakegpu.T4
	card.SMs = 1
	var counters ptxsim.Counters
	d := &fakegpu.Driver{Installed: []driver.Card{card}, Options: ptxsim.Options{Counters: &counters}}
	ctx, err := d.Open(0)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	on, err := cuda.New(ctx)
	if err != nil {
		return w, err
	}
	b := graph.NewBuilder("counted")
	for i, v := range p(b) {
		b.Output(fmt.Sprint("y", i), v)
	}
	x, err := engine.LoadForward(on, engine.CompileOptions{}, b.F)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := errors.Join(x.Run("counted", 0), x.Sync()); err != nil {
		return w, err
	}
	found := false
	for name, c := range counters.Kernels {
		if strings.HasPrefix(name, kernels) {
			found = true
			w = w.Plus(1, workOf(c))
		}
	}
	if !found {
		return w, fmt.Errorf("no kernel %s... ran", kernels)
	}
	return w, nil
}

func workOf(c *ptxsim.Count) counts.Work {
	n := func(p ptxsim.Pipe) float64 { return float64(c.Instructions[p]) }
	return counts.Work{
		Tensor: n(ptxsim.PipeTensor), FP32: n(ptxsim.PipeFP32), Integer: n(ptxsim.PipeInteger), XU: n(ptxsim.PipeXU),
		Other:  n(ptxsim.PipeShared) + n(ptxsim.PipeGlobal) + n(ptxsim.PipeControl) + n(ptxsim.PipeFP64),
		Shared: float64(c.SharedWavefronts), Sectors: float64(c.LoadSectors + c.StoreSectors),
	}
}

// split gives the fixed part and the part per unit of work that grows with n: a(n) and
// a(m) are what was counted.
func split(a, b counts.Work, n, m float64) (fixed, each counts.Work) {
	each = counts.Work{}.Plus(1/(m-n), b).Plus(-1/(m-n), a)
	return a.Plus(-n, each), each
}
