package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
)

// TestLargest: the search finds the same value as trying all of them would, with few plans.
func TestLargest(t *testing.T) {
	for i := range 3 * 2 {
		step := []int{1, 8}[i%2]
		// Proportional, in steps, and with a square, as with activations that grow with attention.
		total := []func(n int) int64{
			func(n int) int64 { return int64(1000 + 10*n) }, func(n int) int64 { return int64(n / 9) }, func(n int) int64 { return int64(10*n + n*n) },
		}[i/2]
		for most := 1; most < 70; most += 3 {
			for limit := range 80 {
				want := 0
				for n := step; n < most+step; n += step {
					if v := min(n, most); v <= limit {
						want = v
					}
				}
				tried := map[int]bool{}
				x, err := largest(Extent{}, step, most, func(n int) (*plan.Report, error) {
					if tried[n] {
						t.Errorf("%d is planned twice", n)
					}
					tried[n] = true
					if n > 4*limit {
						return nil, &plan.Hopeless{}
					}
					return &plan.Report{Fits: n <= limit, Total: total(n), Capacity: total(limit)}, nil
				})
				if err != nil || x.Largest != want || want > 0 && x.Total != total(want) || len(tried) > 16 {
					t.Fatalf("of %d in steps of %d, with room for %d: %+v by %d plans, %v; want %d", most, step, limit, x, len(tried), err, want)
				}
			}
		}
	}
	failure := errors.New("broken")
	if _, err := largest(Extent{}, 1, 9, func(int) (*plan.Report, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
}

// TestSmallerFormats: the refusal of frozen weights in float32 names the widest format that fits, and it does
// fit.
func TestSmallerFormats(t *testing.T) {
	folder := t.TempDir()
	shape := `{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 256, "intermediate_size": 512,
		"max_position_embeddings": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 6, "rms_norm_eps": 1e-5, "vocab_size": 300}`
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(shape), 0o666); err != nil {
		t.Fatal(err)
	}
	card, err := device.Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	in := func(base string, budget int64) (*plan.Report, *plan.DoesNotFit) {
		t.Helper()
		c, err := config.Load(config.Sources{Systems: Configs(), Overrides: []config.Override{
			{Key: "system", Text: "finetune"}, {Key: "model.folder", Text: folder}, {Key: "model.base_weights", Text: base}, {Key: "lora.rank", Text: "2"},
			{Key: "training.batch_size", Text: "1"}, {Key: "training.gradient_checkpointing", Text: "full"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Resolve(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		target := plan.OnCard(card, backend.Lower(card))
		target.Budget = budget
		report, no, err := s.Plan(target)
		if err != nil {
			t.Fatal(err)
		}
		return report, no
	}
	var last int64
	for _, base := range []string{"fp32", "fp16", "int8", "nf4"} {
		r, no := in(base, 0)
		if no != nil || last > 0 && r.Total >= last {
			t.Fatalf("%s needs %d, the format before %d", base, r.Total, last)
		}
		if last = r.Total; base == "fp32" {
			continue
		}
		_, no = in("fp32", r.Total)
		if no == nil {
			t.Fatalf("fp32 fits where %s does", base)
		}
		if no.Smallest == nil || no.Smallest.Change != "model.base_weights: "+base || no.Smallest.Total != r.Total {
			t.Errorf("where %s fits, the smallest change is %+v", base, no.Smallest)
		}
	}
	if _, no := in("nf4", last-1); no == nil || strings.Contains(no.Error(), "base_weights") {
		t.Errorf("a byte less than nf4 takes: %v", no)
	}
}

// TestAutoComputesElementwiseResultsAgain where that is faster than to store them, although everything fits: on cards,
// whose loops take in batch normalizations, and not on the CPU. So does fit.
func TestAutoComputesElementwiseResultsAgain(t *testing.T) {
	card, err := device.Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{Systems: Configs(), Presets: configs.FS, Preset: "cloudbase-memory-optimised"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Resolve(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	onCard := plan.OnCard(card, backend.Lower(card))
	for _, on := range []struct {
		target plan.Target
		want   pass.Recompute
	}{{onCard, pass.RecomputeActivation}, {plan.OnHost(device.Host{}, ratesAt(4e11)), pass.RecomputeNone}} {
		settings, err := s.Settings(device.FP16)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Planner(on.target)
		auto, err := p.Plan(settings)
		if err != nil {
			t.Fatal(err)
		}
		settings.Recompute = pass.RecomputeNone
		none, err := p.Plan(settings)
		if err != nil {
			t.Fatal(err)
		}
		if got := auto.Run.Settings.Recompute; got != on.want || !none.Fits {
			t.Errorf("%s: auto takes %v, want %v; %d bytes fit without: %v", on.target.Name, got, on.want, none.Total, none.Fits)
		}
		if on.want != pass.RecomputeNone && (auto.Time.Update >= none.Time.Update || auto.Total >= none.Total) {
			t.Errorf("%s: %v s and %d bytes with auto, %v s and %d bytes without recomputation", on.target.Name, auto.Time.Update, auto.Total, none.Time.Update, none.Total)
		}
		best, err := p.Fit(plan.Search{Effective: 16, Precisions: []device.Precision{device.FP16}})
		if err != nil {
			t.Fatal(err)
		}
		if got := best.Best.Run.Settings; got.Recompute != on.want || best.Candidates[0].Settings != got {
			t.Errorf("%s: fit takes %v, want %v", on.target.Name, got, on.want)
		}
	}
}

// TestLargestFolder: the largest folder is the model with as many blocks as fit. One with that many fits, and
// one with another block does not.
func TestLargestFolder(t *testing.T) {
	folder := t.TempDir()
	write := func(blocks int) {
		shape := fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 128,
			"max_position_embeddings": 64, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": %d, "rms_norm_eps": 1e-5, "vocab_size": 300}`, blocks)
		if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(shape), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	card, err := device.Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	target := plan.OnCard(card, backend.Lower(card))
	extents := func() (*plan.Report, Extent) {
		c, err := config.Load(config.Sources{Systems: Configs(), Overrides: []config.Override{
			{Key: "system", Text: "finetune"}, {Key: "model.folder", Text: folder}, {Key: "training.batch_size", Text: "1"}, {Key: "training.gradient_checkpointing", Text: "full"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := Resolve(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := s.Settings(device.FP16)
		if err != nil {
			t.Fatal(err)
		}
		report, err := s.Planner(target).Plan(settings) // without the changes that a refusal tries
		if err != nil {
			t.Fatal(err)
		}
		x, err := s.extent(s.System.Extents(c)[0], target, report.Run.Settings)
		if err != nil || x.Key != system.FolderKey || x.Unit != "parameters" {
			t.Fatalf("%+v, %v", x, err)
		}
		return report, x
	}
	write(10)
	report, _ := extents()
	target.Budget = report.Total + 30<<10
	for _, blocks := range []int{2, 20} { // a plan with this many blocks is refused
		write(blocks)
		_, x := extents()
		n, _, _ := strings.Cut(x.Of, " ")
		if most, err := strconv.Atoi(n); err != nil || most < 10 || most >= 20 {
			t.Fatalf("the largest is %+v", x)
		} else {
			for more := range 2 {
				write(most + more)
				if r, _ := extents(); r.Fits != (more == 0) || more == 0 && (r.Total != x.Total || int64(x.Largest) < r.Parameters/2) {
					t.Errorf("the largest is %+v, but with %d blocks %d are needed of %d", x, most+more, r.Total, target.Budget)
				}
			}
		}
	}
}

// TestSlicesHaveOneBound: the key accepts what the planner tries.
func TestSlicesHaveOneBound(t *testing.T) {
	if most := config.QuantityOf("parts").Most; most != plan.MostSlices {
		t.Errorf("training.checkpoint_slices takes up to %v, the planner tries up to %d", most, plan.MostSlices)
	}
}
