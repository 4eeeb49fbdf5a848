package session

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// TestEvaluationsMerge: an evaluation done in parts and merged in any order, including parts sent by another
// process, gives the figures of the whole, bit for bit, in every system and every phase that evaluates.
func TestEvaluationsMerge(t *testing.T) {
	for name, yaml := range tinyConfigs(t) {
		t.Run(name, func(t *testing.T) {
			merges(t, filepath.Join(t.TempDir(), "config.yaml"), yaml)
		})
	}
}

// tinyConfigs returns configurations of every system and each of its phases, with data of their own.
func tinyConfigs(t *testing.T) map[string]string {
	dir := t.TempDir()
	lines := func(name string, line func(i int) string) string {
		path := filepath.Join(dir, name)
		var b strings.Builder
		for i := range 120 {
			b.WriteString(line(i) + "\n")
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	colors := lines("colors.jsonl", func(i int) string {
		return fmt.Sprintf(`{"text":"the color %s is number %d","input":"the color %[1]s is number %d","label":%d,"output":%[3]d}`, []string{"red", "green"}[i%2], i, i%2)
	})
	words := lines("words.jsonl", func(i int) string {
		return fmt.Sprintf(`{"input":"x%d y%d","output":"y%[2]d x%[1]d"}`, i, i%11)
	})
	talks := lines("talks.jsonl", func(i int) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":"x%d"},{"role":"assistant","content":"y%d"}]}`, i, i%11)
	})
	folder := modelFolder(t, dir, colors)
	const training = "training: {mixed_precision: fp32, batch_size: 4, max_steps: 8}\n"
	dynamo := func(stage string) string {
		return `system: dynamo
model: {d_model: 16, n_layers: 1, n_heads: 2, d_ff: 32, max_seq_len: 24, tasks: [sentiment, translation], decoder_layers: 1}
router: {hidden: [16]}
tasks:
  sentiment: {rank: 2, alpha: 4, train: ["` + colors + `"]}
  translation: {rank: 2, alpha: 4, train: ["` + words + `"], target_length: 12}
` + training + `data: {source: ["` + colors + `"], held_out_fraction: 0.2, tokenizer: {vocab_size: 300}}
phases: {stage: ` + stage + `, encoder_steps: 4}
`
	}
	cloudbase := func(run string) string {
		return `system: cloudbase
model: {height: 16, width: 16, frames: 3, channels: [4, 8], mask_patch: 4}
` + training + `data: {source: [synthetic], cbh_min: 0, held_out_fraction: 0.3}
split: {validation: [flight-03], calibration: [flight-04], test: [flight-05], confidence: 0.8}
phases: {run: ` + run + `}
synthetic: {flights: 5, bursts: 6, burst_frames: 4}
`
	}
	return map[string]string{
		"refocused": `system: refocused
model: {d_model: 32, n_layers: 1, n_heads: 2, d_ff: 64, max_seq_len: 16}
` + training + `data: {source: ["` + colors + `"], held_out_fraction: 0.4, seq_len: 16, tokenizer: {vocab_size: 300}}
`,
		"agiformer": `system: agiformer
model: {d_model: 32, n_layers: 1, n_heads: 2, d_ff: 48, max_seq_len: 40, n_experts: 2, expert_types: [standard, standard], memory_size: 16, memory_segment: 10, memory_writes: 2}
` + training + `data: {source: ["` + colors + `"], held_out_fraction: 0.4}
`,
		"moderation": `system: moderation
model: {d_model: 32, n_layers: 1, n_heads: 2, d_ff: 48, max_seq_len: 24, pooling: mean}
` + training + `data: {source: ["` + colors + `"], held_out_fraction: 0.3, buckets: [8, 16, 24], tokenizer: {vocab_size: 300}}
`,
		"finetune": `system: finetune
model: {folder: "` + folder + `"}
lora: {rank: 2}
` + training + `data: {source: ["` + talks + `"], held_out_fraction: 0.4, seq_len: 64, chat_template: chatml}
`,
		"dynamo/encoder": dynamo("encoder"), "dynamo/sentiment": dynamo("sentiment"), "dynamo/translation": dynamo("translation"),
		"dynamo/router": dynamo("router"), "dynamo/joint": dynamo("joint"),
		"cloudbase": cloudbase("final"), "cloudbase/mae": cloudbase("mae"),
	}
}

// merges checks the evaluation of an untrained model.
func merges(t *testing.T, file, yaml string) {
	if err := os.WriteFile(file, []byte(yaml), 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := Load(t.Context(), config.Sources{File: file, NeedData: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	home, err := rundir.Look(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Data(t.Context(), system.Env{Dir: home, Cache: t.TempDir(), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.compileEvaluation(s.Model.Training)
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.Load(s.Backend)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Initialize(1); err != nil {
		t.Fatal(err)
	}
	partsMakeTheWhole(t, d.Evaluator, x)
	if s.Model.Examination != nil {
		examines(t, s, d, x)
	}
	if err := CloseData(d); err != nil {
		t.Error(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := home.Close(); err != nil {
		t.Error(err)
	}
}

// examines checks that an examination has the same loss as the evaluation, to the bit, and that the report is
// written from it.
func examines(t *testing.T, s *Setup, d *system.Run, x *engine.Executable) {
	want, err := train.Evaluate(t.Context(), d.Evaluator, x, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.compileEvaluation(s.Model.Examination)
	if err != nil {
		t.Fatal(err)
	}
	y, err := p.Load(s.Backend)
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Initialize(1); err != nil {
		t.Fatal(err)
	}
	got, err := train.Evaluate(t.Context(), d.Evaluator, y, 0)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v: the examination gives %v, the evaluation %v", err, got, want)
	}
	dir := t.TempDir()
	to, err := rundir.Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Report(t.Context(), y, 1, to), to.Close(), y.Close()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, report.DataFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{fmt.Sprintf("%.3g in the mean", want["eval_loss"]), "Calibration of next tokens", "Loss by position", "predicted best and worst"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

func partsMakeTheWhole(t *testing.T, e train.Evaluator, x *engine.Executable) {
	want, err := train.Evaluate(t.Context(), e, x, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]int{{1, 0}, {0, 1}, {2, 0, 1}} {
		var whole train.EvalAccumulator
		for _, rank := range order {
			part, err := e.Accumulate(t.Context(), x, 0, train.Part{Rank: rank, World: len(order)})
			if err != nil {
				t.Fatal(err)
			}
			if whole == nil {
				whole = part
				if got, err := part.Metrics(); err == nil && maps.Equal(got, want) {
					t.Errorf("a part gives the figures of the whole: %v", got)
				}
				continue
			}
			if rank == 0 { // as if from another process
				sent, e := part.MarshalBinary()
				if err = e; err == nil {
					err = whole.MergeBinary(sent)
				}
			} else {
				err = whole.Merge(part)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := whole.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("parts merged as %v give %v, the whole %v", order, got, want)
		}
	}
}

// modelFolder creates the model folder of a small Llama.
func modelFolder(t *testing.T, dir, texts string) string {
	t.Helper()
	file := filepath.Join(dir, "base.yaml")
	yaml := `system: refocused
model: {architecture: llama, d_model: 32, n_layers: 1, n_heads: 2, d_ff: 48, max_seq_len: 64}
training: {mixed_precision: fp32, batch_size: 4, max_steps: 1, sample: {tokens: 0}}
data: {source: ["` + texts + `"], held_out_fraction: 0, tokenizer: {vocab_size: 300}}
`
	if err := os.WriteFile(file, []byte(yaml), 0o666); err != nil {
		t.Fatal(err)
	}
	run, err := Train(t.Context(), Options{Dir: filepath.Join(dir, "base"), Sources: config.Sources{File: file, NeedData: true}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Sources{Systems: Configs(), File: file})
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder")
	if _, err := SystemOf(c).Export(c, run.Checkpoint, folder); err != nil {
		t.Fatal(err)
	}
	return folder
}
