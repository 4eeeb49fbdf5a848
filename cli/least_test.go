package cli

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/session"
)

// described resolves a configuration for this machine.
func described(t *testing.T, preset string, settings ...string) *session.Setup {
	t.Helper()
	o, rest := config.SplitFlags(settings)
	if len(rest) > 0 {
		t.Fatalf("no settings: %q", rest)
	}
	quiet := &stream{w: io.Discard}
	a := &app{ctx: t.Context(), out: quiet, err: quiet, overrides: o}
	s, err := a.load(choice{Preset: preset}, nil, false)
	if err != nil {
		t.Fatalf("%s %q: %v", preset, settings, err)
	}
	return s
}

// combination is what states depend on besides the model.
type combination struct {
	accumulation int
	traits       engine.Traits
	precision    device.Precision
}

// holds checks that no plan of s needs less than the estimate before planning, and that the estimate is
// useful: it counts at least the given share of the parameters.
func holds(t *testing.T, s *session.Setup, what string, share float64, in ...combination) {
	t.Helper()
	counted := 0.0
	for _, p := range s.Model.Least {
		if p.Of != plan.EachRow {
			counted += p.Count
		}
	}
	for _, k := range in {
		c := plan.Settings{
			MicroBatch: s.Model.Shape.MicroBatch, Accumulation: k.accumulation, Recompute: pass.RecomputeFull, Precision: k.precision, CEChunk: 16,
		}
		p, err := s.Compile(c, k.traits, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if least := s.Model.Least.Bytes(c); least > float64(p.Layout.Bytes) {
			t.Errorf("%s, %v: the plan needs %d bytes, and the least is said to be %.0f", what, c, p.Layout.Bytes, least)
		}
		if all, _ := p.Parameters(); counted > float64(all) || counted < share*float64(all) {
			t.Errorf("%s, %v: %.0f of %d parameters are counted", what, c, counted, all)
		}
	}
}

// thrifty is the combination that needs least memory.
var thrifty = combination{1, engine.CUDA, device.FP16}

func TestNoPresetNeedsLessThanTheLeast(t *testing.T) {
	presets, err := config.ListPresets(configs.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range presets {
		s := described(t, p.Name)
		holds(t, s, p.Name, 0.5, thrifty)
		if s.System.Phases != nil {
			for _, phase := range s.System.Phases(s.Config, t.TempDir()) {
				var settings []string
				for _, o := range phase.Settings {
					settings = append(settings, "--"+o.Key+"="+o.Text)
				}
				holds(t, described(t, p.Name, settings...), p.Name+" "+phase.Name, 0.5, thrifty)
			}
		}
	}
}

func TestNoSmallModelNeedsLessThanTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...any) any { return of[r.IntN(len(of))] }
	for i := range 12 {
		for preset, keys := range map[string]map[string]any{
			"quickstart": {
				"model.d_model": pick(16, 64), "model.d_ff": pick(32, 300), "model.n_heads": pick(2, 4), "model.n_layers": pick(1, 3), "model.tie_embeddings": pick(true, false),
				"model.max_seq_len": pick(8, 1000), "data.tokenizer.vocab_size": pick(258, 3000), "model.rotary_pct": 0.5,
			},
			"moderation-quickstart": {
				"model.d_model": pick(16, 64), "model.d_ff": pick(32, 300), "model.n_layers": pick(1, 3), "model.max_seq_len": pick(8, 300), "model.wide_rows": pick(0, 5000),
				"data.tokenizer.vocab_size": pick(258, 3000), "model.token_types": pick(1, 9), "model.architecture": pick("bert", "roberta"),
			},
			"agiformer-quickstart": {
				"model.d_model": pick(16, 64), "model.d_ff": pick(32, 300), "model.n_layers": pick(1, 2), "model.n_experts": pick(5, 7), "model.positions": pick("rotary", "learned"),
				"model.use_memory": pick(true, false), "model.memory_size": pick(3, 700), "model.expert_types": pick("[standard]", "[spatial, logic]", "[causal, standard, language]"), "model.conv_kernel": pick(1, 5),
				"model.use_introspection": pick(true, false), "model.language.d_model": 16, "model.d_relation": pick(0, 100),
			},
			"dynamo-quickstart": {
				"model.d_model": pick(16, 64), "model.d_ff": pick(32, 300), "model.n_layers": pick(1, 2), "model.max_seq_len": pick(16, 200), "model.decoder_ff": pick(0, 50),
				"data.tokenizer.vocab_size": pick(258, 3000), "tasks.sentiment.length": 0, "tasks.qa.length": 0, "tasks.sentiment.rank": pick(1, 40), "tasks.translation.target_length": pick(2, 100), "model.tasks": pick("[sentiment]", "[qa, translation]"),
				"router.dispatch": pick("soft", "hard"), "phases.stage": pick("", "encoder", "router", "joint"), "router.hidden": pick("[]", "[7]", "[300, 5]"),
			},
			"cloudbase-quickstart": {
				"model.architecture": pick("attention", "transformer", "ssm", "gnn", "cnn"), "model.height": pick(16, 40), "model.frames": pick(2, 5), "model.view": pick(1, 2), "model.channels": pick("[8, 16]", "[16, 48, 64]"),
				"model.layers": pick(1, 3), "model.state_size": pick(1, 40), "phases.run": pick("final", "mae"), "model.mask_patch": 8, "model.width": 32,
			},
		} {
			settings := []string{"--training.batch_size=" + fmt.Sprint(pick(2, 5, 40))}
			for k, v := range keys {
				settings = append(settings, fmt.Sprintf("--%s=%v", k, v))
			}
			s := described(t, preset, settings...)
			// Heads and routers, which the estimate leaves out, weigh more in small models.
			holds(t, s, fmt.Sprintf("%d: %s %q", i, preset, settings), 0.1, thrifty, combination{2, engine.CPU, device.FP32})
		}
	}
}

func TestNoOptimizerNeedsLessThanTheLeast(t *testing.T) {
	for _, rule := range []string{"adamw", "adamw8bit", "lion", "adafactor", "muon"} {
		for _, weights := range []string{"fp32", "stochastic", "compensated"} {
			settings := []string{"--training.optimizer=" + rule, "--training.master_weights=" + weights}
			holds(t, described(t, "quickstart", settings...), rule+" "+weights, 0.5, thrifty)
		}
	}
}
