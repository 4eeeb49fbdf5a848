package plan_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
)

func offloading(t *testing.T, o plan.Offload, auto bool, hostMemory int64) *plan.Planner {
	target := onCard(t, "T4")
	target.HostMemory = hostMemory
	p := planner(production(), 1024, target)
	p.Offload, p.AutoOffload = o, auto
	return p
}

var productionOnT4 = plan.Settings{MicroBatch: 4, Accumulation: 8, Precision: device.FP16, CEChunk: 1024, Recompute: pass.RecomputeAuto}

// TestOffloadProductionOnT4: the production model fits a T4 with AdamW's moments in main memory. On the card
// they need no memory but the windows, which share memory with what is not live at that time.
func TestOffloadProductionOnT4(t *testing.T) {
	s := productionOnT4
	s.Offload = plan.OffloadOptimizer
	r, err := offloading(t, plan.OffloadOptimizer, false, 12<<30).Check(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := compiler(production(), 1024, engine.CUDA)(s)
	if err != nil {
		t.Fatal(err)
	}
	var host, moments int64
	for _, s := range p.States {
		switch {
		case s.Offloaded:
			host += p.Align(s.Type.Bytes())
		case s.Role == graph.Moment:
			moments += s.Type.Bytes()
		}
	}
	if got := r.Host.Components[0].Bytes; got != host || got != p.Layout.Host.Bytes || moments > 8<<20 {
		t.Errorf("main memory holds %v of states, the program has %v there and %v of moments on the card", size.Bytes(got), size.Bytes(host), size.Bytes(moments))
	}
	// Both directions at once, at the card's measured rates.
	c := card(t, "T4")
	if want := float64(host) / c.HostOut; math.Abs(r.Time.Transfer/want-1) > .01 {
		t.Errorf("states cross for %g s, want %g", r.Time.Transfer, want)
	}
	if r.Time.Exposed <= 0 || r.Time.Exposed > 1.01*r.Time.Transfer {
		t.Errorf("%g s of %g s are not hidden", r.Time.Exposed, r.Time.Transfer)
	}
	// With a bus far faster than the card's memory, next to nothing is exposed.
	fast := r.Speed
	fast.HostIn, fast.HostOut, fast.Launch = 1e15, 1e15, 0
	if e := plan.Predict(p, fast, r.Run).Exposed; e > 1e-3 {
		t.Errorf("with a fast bus %g s are exposed", e)
	}
	for _, want := range []string{"main memory of the card's machine", "left: there are 12 GiB", "transfers"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the plan does not say %q:\n%v", want, r)
		}
	}
}

// TestOffloadNeedsMainMemory: if the card's machine does not have that memory, the refusal says so.
func TestOffloadNeedsMainMemory(t *testing.T) {
	s := productionOnT4
	s.Offload = plan.OffloadOptimizer
	_, err := offloading(t, plan.OffloadOptimizer, false, 8<<30).Check(s)
	var no *plan.DoesNotFit
	if !errors.As(err, &no) || !strings.Contains(err.Error(), "of main memory for what training.offload keeps there, and there are 8 GiB") || !strings.Contains(err.Error(), "adamw8bit") {
		t.Errorf("got %v", err)
	}
	if no != nil && no.Smallest != nil {
		t.Errorf("%v is said to fit", no.Smallest)
	}
}

// TestOffloadIsChosen: a refusal names offloading if it is the smallest change, with the main memory it
// needs. If left to the planner, it is used, but not if everything fits without.
func TestOffloadIsChosen(t *testing.T) {
	_, err := offloading(t, plan.OffloadOptimizer, false, 0).Check(productionOnT4)
	var no *plan.DoesNotFit
	if !errors.As(err, &no) || no.Smallest == nil || no.Smallest.Change != "training.offload: optimizer" || no.Smallest.Host == 0 {
		t.Fatalf("the refusal is %v", err)
	}
	r, err := offloading(t, plan.OffloadOptimizer, true, 0).Check(productionOnT4)
	if err != nil || r.Run.Settings.Offload != plan.OffloadOptimizer {
		t.Fatalf("auto took %v (%v)", r.Run.Settings, err)
	}
	small := planner(production(), 64, onCard(t, "A100-80GB"))
	small.Offload, small.AutoOffload = plan.OffloadAll, true
	s := productionOnT4
	s.MicroBatch = 1
	if r, err := small.Check(s); err != nil || r.Run.Settings.Offload != plan.OffloadNothing {
		t.Errorf("where all fits, auto took %v (%v)", r.Run.Settings, err)
	}
	if _, err := offloading(t, plan.OffloadNothing, false, 0).Check(r.Run.Settings); err == nil || !strings.Contains(err.Error(), "training.offload: optimizer is not possible here") {
		t.Errorf("where it cannot be: %v", err)
	}
	choice, err := offloading(t, plan.OffloadOptimizer, false, 0).Fit(plan.Search{Effective: 32, Precisions: []device.Precision{device.FP16}})
	if err != nil || choice.Best.Run.Settings.Offload != plan.OffloadOptimizer {
		t.Errorf("fit found %v", err)
	}
}

// TestRefusalPromisesWhatIsPlanned: what a refusal promises for a change is what a plan with the change says.
// If the planner chooses the recomputation, it is chosen together with the change, within the limit of main
// memory.
func TestRefusalPromisesWhatIsPlanned(t *testing.T) {
	small := production()
	small.Layers = 3
	promises := map[string]bool{}
	for _, c := range []struct {
		offload      plan.Offload
		rows         int
		budget, host int64
	}{
		{plan.OffloadOptimizer, 16, 5 << 30, 0},
		{plan.OffloadActivations, 64, 6 << 30, 2 << 30},
		{plan.OffloadAll, 64, 5 << 30, 4 << 30},
	} {
		p := planner(small, 1024, onCard(t, "T4"))
		p.Offload, p.Target.HostMemory, p.Target.Budget = c.offload, c.host, c.budget
		s := productionOnT4
		s.MicroBatch, s.Accumulation = c.rows, 1
		_, err := p.Check(s)
		var no *plan.DoesNotFit
		if !errors.As(err, &no) || no.Smallest == nil {
			t.Errorf("%v: %v, want a refusal with a change that fits", c, err)
			continue
		}
		promises[no.Smallest.Change] = true
		followed, to := s, no.Smallest.Settings
		followed.MicroBatch, followed.Accumulation, followed.CEChunk = to.MicroBatch, to.Accumulation, to.CEChunk
		followed.Offload, followed.NarrowGradients, followed.Compress = to.Offload, to.NarrowGradients, to.Compress
		if strings.Contains(no.Smallest.Change, "gradient_checkpointing") {
			followed.Recompute, followed.Slices = to.Recompute, to.Slices
		}
		r, err := p.Check(followed)
		if err != nil {
			t.Errorf("%v does not fit: %v", no.Smallest.Change, err)
			continue
		}
		var host int64
		if r.Host != nil {
			host = r.Host.Total
		}
		if r.Total != no.Smallest.Total || r.Time.Update != no.Smallest.Update || host != no.Smallest.Host {
			t.Errorf("%s is promised to need %v and %v of main memory and to take %g s; it needs %v and %v and takes %g s",
				no.Smallest.Change, size.Bytes(no.Smallest.Total), size.Bytes(no.Smallest.Host), no.Smallest.Update, size.Bytes(r.Total), size.Bytes(host), r.Time.Update)
		}
	}
	if len(promises) < 2 {
		t.Errorf("only these were promised: %v", promises)
	}
}

// TestOffloadActivationsOfProduction: half of the production model does not fit a T4, but it does with some
// of its activations in main memory: as few as possible, counted to the byte, and mostly hidden by
// computation.
func TestOffloadActivationsOfProduction(t *testing.T) {
	half := production()
	half.Layers = 12
	with := func(hostMemory int64) *plan.Planner {
		p := planner(half, 1024, onCard(t, "T4"))
		p.Offload, p.Target.HostMemory = plan.OffloadActivations, hostMemory
		return p
	}
	small := with(0)
	s := productionOnT4
	s.Recompute, s.Offload = pass.RecomputeActivation, plan.OffloadActivations
	here := s
	here.Offload = plan.OffloadNothing
	whole, err := small.Plan(here)
	if err != nil || whole.Fits {
		t.Fatalf("without: %v (%v)", whole, err)
	}
	r, err := small.Check(s)
	if err != nil {
		t.Fatal(err)
	}
	program, err := small.Program(r.Run.Settings)
	if err != nil {
		t.Fatal(err)
	}
	var away int64
	for _, v := range program.Func(engine.FuncMicro).F.States {
		if v.State.Role == graph.Activation {
			away += program.Align(v.Type.Bytes())
		}
	}
	over := whole.Total - whole.Capacity
	if away != program.Layout.Activations || away != r.Host.Components[0].Bytes || away < over || away > over+over/2 {
		t.Errorf("%v are away, the plan has %v, the host %v; %v are missing", size.Bytes(away), size.Bytes(program.Layout.Activations), size.Bytes(r.Host.Components[0].Bytes), size.Bytes(over))
	}
	if got := whole.Total - r.Total; got < over {
		t.Errorf("%v less are needed, %v are missing", size.Bytes(got), size.Bytes(over))
	}
	if r.Time.Transfer <= 0 || r.Time.Exposed > r.Time.Transfer/10 || r.Time.Update > 1.05*whole.Time.Update {
		t.Errorf("%g s of %g s are not hidden, an update takes %g s instead of %g s", r.Time.Exposed, r.Time.Transfer, r.Time.Update, whole.Time.Update)
	}
	// Ladders and refusals name it, whether main memory has a limit or not.
	var no *plan.DoesNotFit
	if _, err := small.Check(here); !errors.As(err, &no) || no.Smallest == nil || no.Smallest.Change != "training.offload: activations" || no.Smallest.Host != r.Host.Total {
		t.Errorf("the refusal is %v", err)
	}
	if _, err := with(512 << 20).Check(s); !errors.As(err, &no) || !strings.Contains(err.Error(), "of main memory for what training.offload keeps there, and there are 512 MiB") || no.Smallest == nil {
		t.Errorf("with little main memory: %v", err)
	}
	// If left to the planner, the fastest plan is used.
	auto := with(0)
	auto.AutoOffload, here.Recompute = true, pass.RecomputeAuto
	chosen, err := auto.Check(here)
	if err != nil || chosen.Time.Update > r.Time.Update {
		t.Errorf("auto took %v (%v)", chosen.Run.Settings, err)
	}
}
