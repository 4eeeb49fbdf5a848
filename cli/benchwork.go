package cli

import (
	"errors"
	"slices"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/works"
)

// benchWorkCmd is snug's side of bench/cpu.sh.
type benchWorkCmd struct {
	Work      string `arg:"" help:"a, b, c or d of bench/README.md."`
	Precision string `default:"fp32" enum:"fp32,bf16"`
	Threads   int    `default:"2" min:"1" of:"threads"`
	Steps     int    `default:"10" min:"1" of:"updates" help:"Measured steps, after three."`
	Recompute string `default:"none" enum:"none,activation,selective,wide,full,auto" help:"What is dropped and computed again; auto wants --budget."`
	Budget    int64  `help:"Bytes of temporaries that --recompute auto may take." min:"1" of:"bytes" placeholder:"BYTES"`
	Ops       bool   `help:"Print where the step's time goes, beside the time predicted."`
	Shapes    bool   `help:"With --ops: a line for each shape."`
}

// Run implements the verb.
func (c *benchWorkCmd) Run(a *app) (err error) {
	w, err := works.Find(c.Work)
	if err != nil {
		return usageError{err}
	}
	precision, err := device.ParsePrecision(c.Precision)
	if err != nil {
		return usageError{err}
	}
	if c.Shapes && !c.Ops {
		return usage("--shapes: tells the shapes of --ops apart, which is not given")
	}
	if (c.Budget > 0) != (c.Recompute == pass.RecomputeAuto.String()) {
		return usage("--budget %d with --recompute %s: auto wants a budget above 0, and nothing else has one", c.Budget, c.Recompute)
	}
	mode, err := pass.ParseRecompute(c.Recompute)
	if err != nil {
		return usageError{err}
	}
	p, err := engine.CompileTraining(w.Training(), engine.CompileOptions{Low: low(precision), Recompute: mode, Budget: c.Budget})
	if err != nil {
		return err
	}
	r, err := p.Load(backend.CPU(c.Threads))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Initialize(1); err != nil {
		return err
	}
	works.Fill(r)
	step := func() (float64, error) {
		began := time.Now()
		err := r.Run(engine.FuncStep, 0)
		return 1e3 * time.Since(began).Seconds(), err
	}
	var ms []float64
	for i := range c.Steps + 3 {
		t, err := step()
		if err != nil {
			return err
		}
		if i >= 3 {
			ms = append(ms, t)
		}
	}
	slices.Sort(ms)
	median := ms[len(ms)/2]
	s := device.NewSampler()
	peak := s.Sample().PeakRSS
	if err := s.Close(); err != nil {
		return err
	}
	loss, err := r.OutputF32(engine.FuncStep, engine.OutputLoss)
	if err != nil {
		return err
	}
	if a.asJSON {
		if err := a.json(map[string]any{
			"work": c.Work, "ms": median, "best_ms": ms[0], "rss": peak, "gflops": w.GFLOP / median * 1e3, "loss": loss[0],
			"arena_bytes": p.Layout.Bytes,
		}); err != nil {
			return err
		}
	}
	a.printf("work %s, %s: %.1f ms a step (best %.1f), %.0f GFLOP/s, peak RSS %v, arena %v, loss %.4f\n",
		c.Work, c.Precision, median, ms[0], w.GFLOP/median*1e3, plan.Bytes(peak), plan.Bytes(p.Layout.Bytes), loss[0])
	if !c.Ops {
		return nil
	}
	rates, err := ratesFolder().calibrated(processor{device.DetectHost().CPU.Model, r.Backend().Arithmetic(), c.Threads}, r.Backend())
	if err != nil {
		return err
	}
	return a.operations(r, rates.In(precision), []string{engine.FuncStep}, 3, c.Shapes)
}

// operations runs functions n times with each node timed, and prints the sums
// by operation beside the times that the speed of the machine allows.
func (a *app) operations(r *engine.Executable, speed plan.Speed, fns []string, n int, shapes bool) error {
	prof := plan.Profile{Shapes: shapes}
	began := time.Now()
	for range n {
		r.Observe(prof.Observer())
		for _, fn := range fns {
			if err := r.Run(fn, 0); err != nil {
				return err
			}
		}
		r.Observe(nil)
	}
	took := time.Since(began).Seconds()
	a.printf("\n%s", prof.Table(speed))
	a.printf("%d runs took %.1f ms each with every node timed\n", n, 1e3*took/float64(n))
	return nil
}
