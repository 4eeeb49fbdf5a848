package session

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/plan"
)

// The search finds what trying every value would, in few plans.
func TestLargest(t *testing.T) {
	for _, step := range []int{1, 8} {
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
					return &plan.Report{Fits: n <= limit, Total: int64(10 * n)}, nil
				})
				if err != nil || x.Largest != want || x.Total != int64(10*want) || len(tried) > 14 {
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

// A refusal of frozen weights in float32 names the widest format that fits, which does.
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
		target := plan.OnCard(card)
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
