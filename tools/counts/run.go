package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/internal/counts"
)

// observation is what a kernel of a program did: so many units of work.
type observation struct {
	sample, kernel string
	units          []counts.Units
	blocks         counts.Units
	declared       bool // the launch says what it moves
	did            counts.Work
}

// observe runs a sample on a card of one multiprocessor, on which work is cut as little as
// it can be. Samples without a kernel whose name begins with only are left out.
func observe(s sample, only string) (list []observation, err error) {
	card := fakegpu.T4
	card.SMs = 1
	var counters ptxsim.Counters
	d := &fakegpu.Driver{Installed: []driver.Card{card}, Options: ptxsim.Options{Counters: &counters}}
	ctx, err := d.Open(0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	on, err := cuda.New(ctx)
	if err != nil {
		return nil, err
	}
	p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, s.F)
	if err != nil {
		return nil, err
	}
	launches, err := cuda.Launches(p, s.F.Name, card.Capability(), card.SMs)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(launches, func(l engine.Launch) bool { return strings.HasPrefix(l.Kernel.Name, only) }) {
		return nil, nil
	}
	x, err := p.Load(on)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	for name, in := range s.in {
		if t, ok := x.Input(0, name); ok {
			t.SetFloat64s(in.elements())
		} else if p.State(name) != nil {
			t, err := x.State(name)
			if err != nil {
				return nil, err
			}
			t.SetFloat64s(in.elements())
			if err := x.SetState(t); err != nil {
				return nil, err
			}
		}
	}
	if err := errors.Join(x.Run(s.F.Name, 0), x.Sync()); err != nil {
		return nil, err
	}
	index := map[string]int{}
	for _, l := range launches {
		i, ok := index[l.Symbol]
		if !ok {
			c := counters.Kernels[l.Symbol]
			if c == nil {
				return nil, fmt.Errorf("kernel %s did not run", l.Symbol)
			}
			i = len(list)
			index[l.Symbol] = i
			list = append(list, observation{sample: s.F.Name, kernel: l.Symbol, blocks: counts.Units{Of: counts.Blocks(l.Kernel.Name)}, did: workOf(c)})
		}
		list[i].units = append(list[i].units, l.Work.Units...)
		list[i].blocks.N += float64(l.Blocks)
		list[i].declared = list[i].declared || l.Bytes > 0
	}
	return list, nil
}

func workOf(c *ptxsim.Count) counts.Work {
	n := func(p ptxsim.Pipe) float64 { return float64(c.Instructions[p]) }
	return counts.Work{
		Tensor: n(ptxsim.PipeTensor), FP32: n(ptxsim.PipeFP32), FP64: n(ptxsim.PipeFP64), Integer: n(ptxsim.PipeInteger), XU: n(ptxsim.PipeXU),
		Other:  n(ptxsim.PipeShared) + n(ptxsim.PipeGlobal) + n(ptxsim.PipeControl),
		Shared: float64(c.SharedWavefronts), Sectors: float64(c.LoadSectors + c.StoreSectors), Bytes: float64(c.Traffic), Alone: float64(c.Alone),
	}
}
