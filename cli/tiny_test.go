package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train/checkpoint"
)

// said is the output of a command.
type said struct {
	code     int
	out, err string
}

// snug runs a command in this process.
func snug(t *testing.T, in string, args ...string) said {
	t.Helper()
	var out, errw bytes.Buffer
	code := Main(args, strings.NewReader(in), &out, &errw)
	return said{code, out.String(), errw.String()}
}

// wants checks the exit code of a command, and that its output contains all parts.
func wants(t *testing.T, x said, code int, parts ...string) {
	t.Helper()
	if x.code != code {
		t.Errorf("exit code %d, want %d\n%s", x.code, code, x.err)
	}
	for _, p := range parts {
		if !strings.Contains(x.out+x.err, p) {
			t.Errorf("%q is not in:\n%s%s", p, x.out, x.err)
		}
	}
}

// done runs a command that must succeed.
func done(t *testing.T, args ...string) said {
	t.Helper()
	s := snug(t, "", args...)
	if s.code != 0 {
		t.Fatalf("snug %s: exit code %d\n%s%s", strings.Join(args, " "), s.code, s.out, s.err)
	}
	return s
}

// systemRun is a run of a system that takes about a second.
type systemRun struct {
	config string // path of the file
	// phases lists the folders of its runs below the run directory, with the one whose model is used last;
	// nil if it is a single run.
	phases []string
	// input is the input for predict and generate; empty if the system has neither.
	input string
}

// runs returns the folders of the runs in the run directory dir.
func (r systemRun) runs(dir string) []string {
	if r.phases == nil {
		return []string{dir}
	}
	var out []string
	for _, p := range r.phases {
		out = append(out, filepath.Join(dir, p))
	}
	return out
}

// everySystem writes the data and the configuration of a tiny run of every system.
func everySystem(t *testing.T) map[string]systemRun {
	t.Helper()
	dir := t.TempDir()
	if err := tiny(dir); err != nil {
		t.Fatal(err)
	}
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
	colours := lines("colours.jsonl", func(i int) string {
		return fmt.Sprintf(`{"text":"the colour %s is number %d","input":"the colour %[1]s is number %d","label":%d,"output":%[3]d}`, []string{"red", "green"}[i%2], i, i%2)
	})
	words := lines("words.jsonl", func(i int) string {
		return fmt.Sprintf(`{"input":"x%d y%d","output":"y%[2]d x%[1]d"}`, i%7, i%11)
	})
	corpus := filepath.Join(dir, "corpus", "*.txt")
	clock := "mixed_precision: fp32, batch_size: 4, gradient_accumulation_steps: 2, max_steps: 4, learning_rate: 3e-3, warmup_steps: 1, log_steps: 1, eval_steps: 2, save_steps: 2"
	const sample = ", sample: {tokens: 4}"
	out := map[string]systemRun{}
	add := func(name, yaml, input string, phases ...string) {
		path := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(path, []byte("system: "+name+"\nhardware: {threads: 1}\n"+yaml), 0o666); err != nil {
			t.Fatal(err)
		}
		out[name] = systemRun{path, phases, input}
	}
	add("refocused", `model: {d_model: 32, n_layers: 2, n_heads: 2, d_ff: 64, max_seq_len: 32}
training: {`+clock+sample+`, eval_batches: 2}
data: {source: ["`+corpus+`"], held_out_fraction: 0.2, tokenizer: {vocab_size: 300}}
`, "the quick")
	add("agiformer", `model: {d_model: 32, n_layers: 1, n_heads: 2, d_ff: 48, max_seq_len: 40, n_experts: 2, expert_types: [standard, standard], memory_size: 16, memory_segment: 10, memory_writes: 2, dropout: 0.1}
training: {`+clock+sample+`, eval_batches: 2}
data: {source: ["`+corpus+`"], held_out_fraction: 0.2}
`, "the quick")
	add("moderation", `model: {d_model: 32, n_layers: 1, n_heads: 2, d_ff: 48, max_seq_len: 24, pooling: mean, wide_rows: 64}
training: {`+clock+`}
data: {source: ["`+colours+`"], held_out_fraction: 0.3, buckets: [8, 16, 24], tokenizer: {vocab_size: 300}}
`, "the colour red is number 7")
	add("dynamo", `model: {d_model: 16, n_layers: 1, n_heads: 2, d_ff: 32, max_seq_len: 24, tasks: [sentiment, translation], decoder_layers: 1}
router: {hidden: [16]}
phases: {encoder_steps: 4, router_steps: 4, joint_steps: 4, min_gain: -10, min_encoder_gain: -10, min_routing: 0}
tasks:
  sentiment: {rank: 2, alpha: 4, steps: 4, train: ["`+colours+`"]}
  translation: {rank: 2, alpha: 4, steps: 4, train: ["`+words+`"], target_length: 12}
training: {mixed_precision: fp32, batch_size: 4, gradient_accumulation_steps: 2, log_steps: 1, eval_steps: 2, save_steps: 2}
data: {source: ["`+colours+`"], held_out_fraction: 0.2, tokenizer: {vocab_size: 300}}
`, "the colour red is number 7", "phase0-encoder", "phase1-sentiment", "phase1-translation", "phase2-router", "phase3-joint")
	add("cloudbase", `model: {height: 16, width: 16, frames: 3, channels: [4, 8], dropout: 0.1, dense_dropout: [0.1, 0.1], mask_patch: 4}
training: {`+clock+`}
data: {source: [synthetic], cbh_min: 0, held_out_fraction: 0.3}
split: {validation: [flight-03], calibration: [flight-04], test: [flight-05], confidence: 0.8}
phases: {run: all, masked: true, pretrain_flight: flight-01}
synthetic: {flights: 5, bursts: 4, burst_frames: 4}
`, "", "masked", "pretrain", "final")
	add("finetune", `model: {folder: "`+tinyFolder(t, dir, corpus)+`"}
lora: {rank: 2, dropout: 0.1}
training: {`+clock+sample+`}
data: {source: ["`+lines("chat.jsonl", func(i int) string {
		return fmt.Sprintf(`{"messages": [{"role": "user", "content": "say %d"}, {"role": "assistant", "content": "%[1]d"}]}`, i)
	})+`"], held_out_fraction: 0.2, seq_len: 64}
`, "say 3")
	if len(out) != len(session.Systems) {
		t.Fatalf("%d tiny runs for %d systems", len(out), len(session.Systems))
	}
	return out
}

// tinyFolder creates the model folder of a Llama with a chat template.
func tinyFolder(t *testing.T, dir, corpus string) string {
	t.Helper()
	file, run, folder := filepath.Join(dir, "tiny-llama.yaml"), filepath.Join(dir, "tiny-llama"), filepath.Join(dir, "tiny-folder")
	if err := os.WriteFile(file, []byte(`system: refocused
hardware: {threads: 1}
model: {architecture: llama, d_model: 32, n_layers: 2, n_heads: 4, n_kv_heads: 2, d_ff: 48, max_seq_len: 64}
training: {max_steps: 1, batch_size: 2, sample: {tokens: 0}}
data: {source: ["`+corpus+`"], held_out_fraction: 0, tokenizer: {vocab_size: 300}}
`), 0o666); err != nil {
		t.Fatal(err)
	}
	done(t, "train", "--config", file, "--out", run)
	done(t, "export", run, folder)
	template := "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
	if err := os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o666); err != nil {
		t.Fatal(err)
	}
	return folder
}

// measurement is an evaluation in a run's log.
type measurement struct {
	Event   string
	Update  int64
	Best    bool
	Metrics map[string]checkpoint.Float
}

func measurements(t *testing.T, run string) (out []measurement) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(run, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var m measurement
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v", run, err)
		}
		if m.Metrics != nil {
			out = append(out, m)
		}
	}
	return out
}

// files returns the contents of the files directly in a folder, except for logs.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range list {
		if e.Type().IsRegular() {
			raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(raw)
		}
	}
	return out
}
