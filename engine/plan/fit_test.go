package plan_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn/hf"
)

// planner returns a planner for m with sequences of t tokens.
func planner(m hf.NeoX, t int, target plan.Target) *plan.Planner {
	return &plan.Planner{Compile: against(m, t, target.Traits), Target: target, Clips: true,
		Facts: func(_ *engine.Program, s plan.Settings) (plan.Run, error) {
			return plan.Run{Tokens: int64(s.MicroBatch * t)}, nil
		}}
}

func TestRefusesProductionOnT4(t *testing.T) {
	p := planner(production(), 1024, onCard(t, "T4"))
	start := time.Now()
	_, err := p.Check(plan.Settings{MicroBatch: 4, Accumulation: 8, Precision: device.FP32})
	var no *plan.DoesNotFit
	if !errors.As(err, &no) || no.ExitCode() != 3 {
		t.Fatalf("got %v", err)
	}
	t.Logf("%v, %d compiled\n%s", time.Since(start), p.Compiled, no.Details())
	for _, want := range []string{"needs 33.", "T4 has 14.56 GiB", "16.0 bytes for each of 1,414,455,296 parameters"} {
		if !strings.Contains(no.Error(), want) {
			t.Errorf("the refusal does not say %q: %v", want, no)
		}
	}
	if no.Smallest != nil {
		t.Errorf("%v is said to fit", no.Smallest)
	}
}

// TestFitProduction: the searches of the presets run while a person waits, so they take at most a second.
func TestFitProduction(t *testing.T) {
	for _, name := range []string{"A100-40GB", "H100", "L4"} {
		p := planner(production(), 1024, onCard(t, name))
		start := time.Now()
		c, err := p.Fit(plan.Search{Effective: 32, Precisions: []device.Precision{device.BF16, device.FP32}})
		t.Logf("%s: %v, %d compiled", name, time.Since(start), p.Compiled)
		if name == "L4" {
			var no *plan.DoesNotFit
			if !errors.As(err, &no) || no.Tried == 0 || no.Smallest == nil || no.Smallest.Change != "training.clip_norm: two_passes" { // comes before changes that round gradients
				t.Errorf("L4: %v", err)
			}
			t.Log(err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Best.Run.Settings; s.Precision != device.BF16 || s.Effective() != 32 || !c.Best.Fits {
			t.Errorf("%s: chose %v, fits %v", name, s, c.Best.Fits)
		}
		if testing.Verbose() {
			t.Logf("\n%v", c)
		}
		if p.Compiled > 30 {
			t.Errorf("%s: %d programs compiled", name, p.Compiled)
		}
	}
}

// TestSmallestChange: a refusal names the smallest change that fits, and that change does fit.
func TestSmallestChange(t *testing.T) {
	m := production()
	m.Layers, m.Heads, m.D, m.FF, m.Vocab = 4, 4, 128, 512, 3001
	asked := plan.Settings{MicroBatch: 8, Accumulation: 2, Precision: device.FP32}
	whole, err := planner(m, 64, host(0)).Plan(asked)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for percent := int64(99); percent > 30; percent -= 6 {
		budget := whole.Total - whole.Arena + whole.Arena*percent/100
		p := planner(m, 64, host(budget))
		_, err := p.Check(asked)
		var no *plan.DoesNotFit
		if !errors.As(err, &no) {
			t.Fatalf("%d %%: %v", percent, err)
		}
		if !strings.Contains(no.Details(), size.Bytes(whole.Total).String()) {
			t.Errorf("the refusal does not say what is needed:\n%s", no.Details())
		}
		if no.Smallest == nil {
			continue
		}
		seen[no.Smallest.Change] = true
		if r, err := p.Check(no.Smallest.Settings); err != nil || r.Total != no.Smallest.Total {
			t.Errorf("%d %%: %s is said to fit: %v", percent, no.Smallest.Change, err)
		}
	}
	t.Log(seen)
	if len(seen) < 3 {
		t.Errorf("the smallest changes are %v: want more of them over these budgets", seen)
	}
}
