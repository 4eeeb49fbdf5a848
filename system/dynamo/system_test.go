package dynamo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/cli"
	"github.com/snug-ml/snug/data/safetensors"
)

// snug runs the command line and returns what it prints.
func snug(t *testing.T, want int, in string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(args, strings.NewReader(in), &out, &errs); code != want {
		t.Fatalf("snug %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

func file(t *testing.T, dir, name string, lines ...string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// tiny writes a configuration of two tasks and their data: colors are good or bad, and words are written
// backwards.
func tiny(t *testing.T) string {
	dir := t.TempDir()
	var colours, words, prose []string
	for i := range 120 {
		good := i % 2
		colours = append(colours, fmt.Sprintf(`{"input":"the colour %s is number %d","output":%d}`, [2]string{"red", "green"}[good], i, good))
		a, b := fmt.Sprintf("x%d", i%7), fmt.Sprintf("y%d", i%11)
		words = append(words, fmt.Sprintf(`{"input":"%s %s","output":"%s %s"}`, a, b, b, a))
		prose = append(prose, fmt.Sprintf(`{"text":"the colour red is number %d and x%d y%d comes after green"}`, i, i%7, i%11))
	}
	return file(t, dir, "run.yaml", fmt.Sprintf(`
system: dynamo
model: {d_model: 16, n_layers: 1, n_heads: 2, d_ff: 32, max_seq_len: 24, tasks: [sentiment, translation], decoder_layers: 1, head_dropout: 0.1}
router: {hidden: [16], dropout: 0.1}
phases: {encoder_steps: 6, router_steps: 6, joint_steps: 6, min_encoder_gain: -10, min_gain: -10, min_routing: 0}
tasks:
  sentiment: {rank: 2, alpha: 4, steps: 6, train: [%s]}
  translation: {rank: 2, alpha: 4, steps: 6, train: [%s], target_length: 12, beams: 2}
training: {batch_size: 8, gradient_accumulation_steps: 2, beta2: 0.99, mixed_precision: fp32, save_steps: 2, eval_steps: 0, log_steps: 100}
data: {source: [%s], held_out_fraction: 0.2, tokenizer: {vocab_size: 300}}
hardware: {threads: 1}
`, file(t, dir, "colours.jsonl", colours...), file(t, dir, "words.jsonl", words...), file(t, dir, "prose.jsonl", prose...)))
}

// TestPhases: the phases run one after the other. A run that is stopped and resumed in every phase ends with
// the same bits. The results can be used for prediction and export.
func TestPhases(t *testing.T) {
	config := tiny(t)
	whole := filepath.Join(t.TempDir(), "whole")
	snug(t, 0, "", "train", "--config", config, "--out", whole)
	stages := []string{"phase0-encoder", "phase1-sentiment", "phase1-translation", "phase2-router", "phase3-joint"}

	parts := filepath.Join(t.TempDir(), "parts")
	snug(t, 2, "", "train", "--config", config, "--out", parts, "--phase", "2") // nothing is ready
	for i := range stages {
		// Exit code 4 means stopped, with the state saved.
		snug(t, 4, "", "train", "--config", config, "--out", parts, "--resume", "--until", "3")
		snug(t, 4, "", "train", "--resume", "--out", filepath.Join(parts, stages[i]), "--until", "5")
		snug(t, 0, "", "train", "--resume", "--out", filepath.Join(parts, stages[i]))
	}
	if out := snug(t, 0, "", "train", "--config", config, "--out", parts, "--resume"); strings.Count(out, ": done\n") != len(stages) {
		t.Errorf("a finished run is trained again:\n%s", out)
	}
	for _, s := range stages {
		for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
			step := filepath.Join(s, "checkpoints", "step-00000006", name)
			a, err := os.ReadFile(filepath.Join(whole, step))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(parts, step))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Errorf("%s: a resumed run ends with other bits", step)
			}
		}
		for _, name := range []string{"result.json", "report.html"} {
			if _, err := os.Stat(filepath.Join(whole, s, name)); err != nil {
				t.Error(err)
			}
		}
	}

	if out := snug(t, 0, "", "eval", whole); !strings.Contains(out, "phase3-joint") || !strings.Contains(out, "routing accuracy") {
		t.Errorf("eval of the whole says\n%s", out)
	}
	answers := snug(t, 0, `{"text":"the colour green is number 3"}`+"\n"+`{"text":"x1 y2"}`+"\n", "predict", whole, "--stdin-format", "jsonl")
	for line := range strings.Lines(answers) {
		var a struct {
			Task   string
			Answer any
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Task != "sentiment" && a.Task != "translation" || a.Answer == nil {
			t.Errorf("answer %s: %v", line, err)
		}
	}
	if strings.Count(answers, `"task"`) != 2 {
		t.Errorf("two texts are answered by\n%s", answers)
	}
	exports(t, whole)
}

// exports checks that a merged encoder differs from the plain one only where the adapter is.
func exports(t *testing.T, run string) {
	dir := t.TempDir()
	snug(t, 0, "", "export", filepath.Join(run, "phase1-sentiment"), filepath.Join(dir, "plain"))
	snug(t, 0, "", "export", "--merge", filepath.Join(run, "phase1-sentiment"), filepath.Join(dir, "merged"))
	open := func(name string) *safetensors.File {
		f, err := safetensors.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		return f
	}
	plain, merged := open("plain/model.safetensors"), open("merged/model.safetensors")
	changed := 0
	for _, x := range plain.Tensors() {
		a, err := plain.Tensor(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := merged.Tensor(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		adapted := strings.Contains(x.Name, ".layer.") && strings.HasSuffix(x.Name, ".weight") && !strings.Contains(x.Name, "LayerNorm")
		if bytes.Equal(a.Data, b.Data) == adapted {
			t.Errorf("%s: adapted %v, changed %v", x.Name, adapted, !adapted)
		}
		if adapted {
			changed++
		}
	}
	if adapter := open("plain/adapter.safetensors"); changed != 6 || len(adapter.Tensors()) != 12 {
		t.Errorf("%d weights changed, the adapter has %d tensors; want 6 and 12", changed, len(adapter.Tensors()))
	}
	if head := open("merged/head.safetensors"); len(head.Tensors()) != 4 {
		t.Errorf("the head has %d tensors, want 4", len(head.Tensors()))
	}
	snug(t, 0, "", "export", "--merge", run, filepath.Join(dir, "all"))
	for _, name := range []string{"all/sentiment/model.safetensors", "all/translation/head.safetensors"} {
		open(name)
	}
}

// TestRealData trains the tasks on SST-2, a part of SQuAD, MBPP and Multi30k, and prints what was learned. It
// takes many minutes, and needs SNUG_LONG=1 and the data sets of SNUG_SHARED (or ../shared next to the
// repository).
func TestRealData(t *testing.T) {
	shared := os.Getenv("SNUG_SHARED")
	if shared == "" {
		shared = "../../../shared"
	}
	data, err := filepath.Abs(filepath.Join(shared, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(data); err != nil || os.Getenv("SNUG_LONG") != "1" {
		t.Skip("wants SNUG_LONG=1 and the shared data sets")
	}
	config := file(t, t.TempDir(), "run.yaml", strings.ReplaceAll(realData, "DATA", data))
	out := filepath.Join(t.TempDir(), "run")
	snug(t, 0, "", "train", "--config", config, "--out", out)
	for _, phase := range []string{"phase1-sentiment", "phase1-qa", "phase1-code_generation", "phase1-translation", "phase2-router", "phase3-joint"} {
		var res struct {
			Goal        string
			Value, Gain float64
			Metrics     map[string]float64
			Systems     map[string]map[string]float64
		}
		raw, err := os.ReadFile(filepath.Join(out, phase, "result.json"))
		if err == nil {
			err = json.Unmarshal(raw, &res)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s %.4f, %.4f better than its baseline; %v", phase, res.Goal, res.Value, res.Gain, res.Metrics)
		if res.Gain <= 0 {
			t.Errorf("%s: no better than its baseline", phase)
		}
		if strings.HasPrefix(phase, "phase2") && res.Value < .95 {
			t.Errorf("the router finds the task of %.3f of the texts, want 0.95", res.Value)
		}
		for name, scores := range res.Systems {
			t.Logf("  %-30s %v", name, scores)
		}
	}
}

// realData is the configuration of TestRealData: a small encoder that is first trained on the same texts.
const realData = `
system: dynamo
model: {d_model: 128, n_layers: 3, n_heads: 4, d_ff: 512, max_seq_len: 128, tasks: [sentiment, qa, code_generation, translation], decoder_layers: 2, init_std: 0.06}
router: {hidden: [256, 128]}
phases: {encoder_steps: 1500, encoder_lr: 2e-3, adapter_lr: 2e-3, router_steps: 600, router_lr: 2e-3, joint_steps: 60, joint_lr: 1e-3, joint_adapters: 0.3, min_gain: 0, min_routing: 0.9}
tasks:
  sentiment: {rank: 16, alpha: 32, steps: 800, length: 64, format: records, no_header: true, input_field: "1", output_field: "2", train: [DATA/sst2/train.tsv], validation: [DATA/sst2/dev.tsv]}
  qa: {rank: 24, alpha: 48, steps: 600, format: squad, train: [DATA/squad/squad-v1.1-part.json]}
  code_generation: {rank: 32, alpha: 64, steps: 400, target_length: 64, format: records, input_field: prompt, output_field: code, train: [DATA/mbpp/mbpp-sanitized.json], held_out: 64}
  translation: {rank: 32, alpha: 64, steps: 1500, length: 48, target_length: 32, format: lines, train: [DATA/multi30k/train.de.gz, DATA/multi30k/train.en.gz], validation: [DATA/multi30k/val.de.gz, DATA/multi30k/val.en.gz], held_out: 256}
training: {batch_size: 32, warmup_steps: 50, lr_scheduler: linear, min_lr_ratio: 0, weight_decay: 0.01, beta2: 0.98, eval_steps: 0, save_steps: 0, log_steps: 100}
data: {source: [DATA/multi30k/train.de.gz, DATA/multi30k/train.en.gz, DATA/tinyshakespeare.txt], documents: chunk, seq_len: 128, held_out_fraction: 0.2, tokenizer: {vocab_size: 4096}}
`
