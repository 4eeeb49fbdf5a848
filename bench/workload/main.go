// Command workload times a training step of one of the models that bench/README.md
// defines, the common ground on which snug and PyTorch are compared.
//
//	go run ./bench/workload a --precision bf16 --ops
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

// warmup is the number of steps before the measured ones.
const warmup = 3

type options struct {
	Workload      string `arg:"" enum:"a,b,c,d,gpt2,tiny" help:"One of bench/README.md: a, b, c, d or gpt2; or tiny, to try scripts."`
	Device        string `default:"cpu" help:"cpu, cuda or cuda:N."`
	Precision     string `default:"fp32" enum:"fp32,bf16,fp16" help:"fp32, bf16 or fp16."`
	Threads       int    `default:"2" help:"Worker threads."`
	Steps         int    `default:"10" help:"Measured steps; three more come first."`
	Recompute     string `default:"none" enum:"none,activation,selective,wide,full,auto" help:"What is dropped and recomputed; auto needs --budget."`
	Budget        int64  `help:"Bytes of temporaries that --recompute auto may take."`
	Optimizer     string `default:"adamw" enum:"adamw,adamw8bit,lion,adafactor,muon" help:"adamw, adamw8bit, lion, adafactor or muon."`
	MasterWeights string `default:"fp32" enum:"fp32,stochastic,compensated" help:"fp32, stochastic or compensated: the last two keep weights in 16 bits."`
	NoCublas      bool   `help:"Leave matmuls to snug's kernels."`
	JSON          bool   `help:"Print one JSON object, with --ops the operations in it."`
	Ops           bool   `help:"Print where the time of a step goes, next to the time predicted."`
	Shapes        bool   `help:"With --ops: a line for each shape."`
	Code          bool   `help:"Time no step, but what making the kernels ready takes on a card."`
	Card          string `help:"Time no step, but print what its kernels are predicted to take on a card that need not be there." placeholder:"NAME"`
}

// Validate implements kong.Validatable.
func (o *options) Validate() error {
	switch auto := o.Recompute == pass.RecomputeAuto.String(); {
	case o.Threads < 1 || o.Steps < 1:
		return fmt.Errorf("--threads %d, --steps %d: both must be at least 1", o.Threads, o.Steps)
	case o.Shapes && !o.Ops && o.Card == "":
		return errors.New("--shapes needs --ops or --card")
	case o.Card != "" && (o.Ops || o.Code || o.JSON):
		return errors.New("--card prints a table of predictions: leave --ops, --code and --json out")
	case o.Budget < 0 || (o.Budget > 0) != auto:
		return fmt.Errorf("--budget %d with --recompute %s: auto needs a budget above 0, and nothing else takes one", o.Budget, o.Recompute)
	}
	return nil
}

func main() {
	var o options
	kong.Parse(&o, kong.Name("workload"), kong.Description("Times a training step of a workload of bench/README.md."))
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	if o.Card != "" {
		return price(o)
	}
	on, err := backend.Open(backend.Options{Device: o.Device, Threads: o.Threads, NoCublas: o.NoCublas})
	if err != nil {
		return err
	}
	if o.Code {
		return timeCode(o, on)
	}
	m, err := newMemory(on)
	if err != nil {
		return err
	}
	began := time.Now()
	e, w, err := load(o, on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	loading := time.Since(began)
	ms := make([]float64, o.Steps+warmup)
	for i := range ms {
		if i == warmup {
			m.energy.Begin()
		}
		began := time.Now()
		if err := e.Run(engine.FuncStep, 0); err != nil {
			return err
		}
		if err := e.Sync(); err != nil { // the loss is read after every step
			return err
		}
		ms[i] = 1e3 * time.Since(began).Seconds()
	}
	if err := m.measure(e, o.Steps); err != nil {
		return err
	}
	r, err := result(o, w, e, m, ms[warmup:])
	if err != nil {
		return err
	}
	r.Loading = loading.Seconds()
	if !o.JSON {
		r.print(w)
	}
	if o.Ops {
		if err := r.operations(o, e); err != nil {
			return err
		}
	}
	if o.JSON {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	return nil
}

// timeCode prints what making the kernels of the workload ready takes.
func timeCode(o options, on engine.Backend) error {
	p, _, err := compile(o, on.Traits())
	if err != nil {
		return err
	}
	t, err := backend.TimeCode(on, p)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// price prints the predicted times of the workload's operations on a card, and the size of its arena.
func price(o options) error {
	card, err := device.Lookup(o.Card)
	if err != nil {
		return err
	}
	precision, err := device.ParsePrecision(o.Precision)
	if err != nil {
		return err
	}
	p, _, err := compile(o, engine.CUDA)
	if err != nil {
		return err
	}
	speed := plan.CardSpeed(card, precision, backend.Lower(card))
	fmt.Printf("%sarena %v\n", plan.FormatOps(plan.Ops(p, speed, 1, o.Shapes)), size.Bytes(p.Layout.Bytes))
	return nil
}

// compile compiles the chosen workload.
func compile(o options, traits engine.Traits) (*engine.Program, workload, error) {
	all := workloads()
	w := all[slices.IndexFunc(all, func(w workload) bool { return w.name == o.Workload })]
	mode, err := pass.ParseRecompute(o.Recompute)
	if err != nil {
		return nil, w, err
	}
	precision, err := device.ParsePrecision(o.Precision)
	if err != nil {
		return nil, w, err
	}
	p, err := engine.CompileTraining(w.training(o), engine.CompileOptions{Traits: &traits, ComputeDType: plan.ComputeDType(precision), TF32: plan.TF32(precision), Recompute: mode, Budget: o.Budget})
	return p, w, err
}

// load compiles and loads the chosen workload and fills its inputs.
func load(o options, on engine.Backend) (*engine.Executable, workload, error) {
	p, w, err := compile(o, on.Traits())
	if err != nil {
		return nil, w, err
	}
	e, err := p.Load(on)
	if err != nil {
		return nil, w, err
	}
	if err := e.Initialize(1); err != nil {
		return nil, w, errors.Join(err, e.Close())
	}
	w.fill(e)
	return e, w, nil
}
