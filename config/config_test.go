package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLayers(t *testing.T) {
	c := mustLoad(t, "small", "training:\n  batch_size: 16\n  max_steps: 1e4 # ten thousand\n", "--training.max_steps", "2_000", "--model.dropout=.1")
	m := Of[neoxModel](c)
	if c.System != "neox" || c.Preset != "small" || m.DModel != 128 || m.NLayers != 4 || m.Dropout != 0.1 {
		t.Errorf("model: %+v", m)
	}
	if c.Training.LearningRate != 1e-3 || c.Training.BatchSize != 16 || c.Training.MaxSteps != 2000 || c.Training.Seed != 42 {
		t.Errorf("training: %+v", c.Training)
	}
	for path, want := range map[string]string{
		"model.n_layers":           "default",
		"model.d_model":            "preset small:5",
		"training.learning_rate":   "preset small:7",
		"training.batch_size":      "run.yaml:2",
		"training.max_steps":       "--training.max_steps",
		"model.dropout":            "--model.dropout",
		"data.source":              "preset small:10",
		"data.seq_len":             "from model.max_seq_len",
		"data.tokenizer.path":      "default",
		"training.loss_scale.init": "default",
	} {
		if o, ok := c.Origin(path); !ok || o.String() != want {
			t.Errorf("%s comes from %q, want %q", path, o, want)
		}
	}
	if c.Data.SeqLen != 256 || c.Data.ShuffleSeed != 42 {
		t.Errorf("open values: seq_len %d, shuffle_seed %d", c.Data.SeqLen, c.Data.ShuffleSeed)
	}
}

func TestTypes(t *testing.T) {
	c := mustLoad(t, "", `
system: other
model:
  widths: [32, 1e2]
  experts: logic
  lora: {rank: 4}
  flights:
    - {name: "a b", weight: 2}
    - name: 30Oct24
  scale: 0.1
data: {source: &s [x, y], rows: , cache: 1.5GiB}
hardware:
  memory_budget: 14 GiB
  device: cuda:1
checkpoint:
  grace: 1m30s
  keep_best: False
phases:
training:
  learning_rate: .5e-3
  seed: 18446744073709551615
`)
	m, d := Of[otherModel](c), Of[otherData](c)
	if !slices.Equal(m.Widths, []int{32, 100}) || !slices.Equal(m.Experts, []string{"logic"}) || m.LoRA != (lora{4, 16}) || m.Scale != 0.1 {
		t.Errorf("model: %+v", m)
	}
	if !slices.Equal(m.Flights, []flight{{"a b", 2}, {"30Oct24", 0}}) {
		t.Errorf("flights: %+v", m.Flights)
	}
	if !slices.Equal(c.Data.Source, []string{"x", "y"}) || len(d.Rows) != 0 || d.Cache != 3<<29 {
		t.Errorf("data: %+v %+v", c.Data, d)
	}
	if c.Hardware.MemoryBudget != 14<<30 || c.Hardware.Device != "cuda:1" || c.Checkpoint.Grace != 90*time.Second || c.Checkpoint.KeepBest {
		t.Errorf("%+v %+v", c.Hardware, c.Checkpoint)
	}
	if c.Training.LearningRate != 5e-4 || c.Training.Seed != 1<<64-1 {
		t.Errorf("training: %+v", c.Training)
	}

	c = mustLoad(t, "wide", "", "--model.widths", "1, 2,3", "--model.experts=[logic, causal]", "--model.flights", "[{name: x}]",
		"--data.source", "a b.txt", "--checkpoint.keep_best=false", "--data.segment_mask", "--phases.only", "3")
	m = Of[otherModel](c)
	if !slices.Equal(m.Widths, []int{1, 2, 3}) || !slices.Equal(m.Experts, []string{"logic", "causal"}) || !slices.Equal(m.Flights, []flight{{"x", 0}}) ||
		!slices.Equal(c.Data.Source, []string{"a b.txt"}) || c.Checkpoint.KeepBest || !c.Data.SegmentMask || Of[otherPhases](c).Only != 3 {
		t.Errorf("from flags: %+v %+v", m, c.Data)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, preset, text string
		args               []string
		want               string
	}{
		{name: "nothing given", want: "system: not given: name a preset, or set it to one of neox, other"},
		{name: "a file without a system", text: "training: {max_steps: 3}\n", want: "run.yaml: system: not given: name a preset, or set it to one of neox, other"},
		{name: "an empty file", text: "# later\n", want: "run.yaml: system: not given, and the file is empty: name a preset, or set it to one of neox, other"},
		{name: "a preset in a file", text: "training: {max_steps: 3}\npreset: small\n", want: "run.yaml:2: preset: unknown key: a preset is named on the command line: snug train small --config run.yaml"},
		{name: "unknown preset", preset: "smal", want: "preset smal: no such preset; did you mean small? there are bad, small, wide; a file is given by --config FILE"},
		{name: "fault in a preset", preset: "bad", args: []string{"--data.source", "x"}, want: "preset bad:3: model.d_modle: unknown key, did you mean model.d_model?"},
		{name: "unknown system", text: "system: neo\n", want: `run.yaml:1: system: want one of neox, other, got "neo", did you mean neox?`},
		{name: "not YAML", text: "training:\n  batch_size: [1\nmodel:\n", want: "run.yaml:3: not valid YAML: did not find expected ',' or ']'"},
		{name: "a tab", text: "training:\n\tbatch_size: 1\n", want: "run.yaml:2: not valid YAML: the line is indented by a tab, want spaces"},
		{name: "not a mapping", text: "- a\n", want: "run.yaml:1: want sections such as model: and training:, got a list"},
		{name: "two documents", text: "system: neox\n---\nsystem: neox\n", want: "run.yaml: not valid YAML: want one document, got 2"},
		{name: "several at once", preset: "small", text: `
training:
  batch_size: many
  learning_rate: "3e-4"
  batch_sizes: 4
  mixed_precision: fp61
  warmup_steps: -1
  max_steps: 2.5
model:
  dropout: 1
  parallel_residual: yes
hardware: fast
`, args: []string{"--training.batch_size=0"}, want: `run.yaml:3: training.batch_size: want a whole number of at least 1, got "many"
run.yaml:4: training.learning_rate: want a number above 0, got the text "3e-4": remove the quotes
run.yaml:5: training.batch_sizes: unknown key, did you mean training.batch_size?
run.yaml:6: training.mixed_precision: want one of auto, fp32, tf32, bf16, fp16, got "fp61", did you mean fp16?
run.yaml:7: training.warmup_steps: want a whole number of at least 0, got "-1"
run.yaml:8: training.max_steps: want a whole number of at least 1, got "2.5"
run.yaml:10: model.dropout: want a number of at least 0 and below 1, got "1"
run.yaml:11: model.parallel_residual: want true or false, got "yes"
run.yaml:12: hardware: want a mapping of keys, got "fast"
--training.batch_size: want a whole number of at least 1, got "0"`},
		{name: "guides", preset: "small", text: `
training:
  use_amp: true
  gradient_clip: 1.0
  epochs: 3
  gradient_checkpointing: true
  lr: 3e-4
hardware:
  mixed_precision: true
  pytorch_cuda_alloc_conf: "expandable_segments:True"
torch_compile: true
debug:
  check_nan: true
  verbose: true
`, want: `run.yaml:3: training.use_amp: "true" is taken as training.mixed_precision auto (auto is the best format that the device has)
run.yaml:4: training.gradient_clip: taken as training.max_grad_norm 1.0 (the global norm to clip to; 0 never clips)
run.yaml:5: training.epochs: written training.max_steps here: runs are counted in updates, not epochs: epochs x examples / (batch_size x gradient_accumulation_steps)
run.yaml:6: training.gradient_checkpointing: "true" is taken as full
run.yaml:7: training.lr: taken as training.learning_rate 3e-4
run.yaml:9: hardware.mixed_precision: unknown key; it is training.mixed_precision
run.yaml:10: hardware.pytorch_cuda_alloc_conf: left out: all memory is one arena, planned before the first step
run.yaml:11: torch_compile: left out: the training step is always compiled
run.yaml:13: debug.check_nan: left out: memory, utilization and non-finite values are always watched
run.yaml:14: debug.verbose: unknown key; the sections are system, model, training, data, hardware, checkpoint, metrics, run`},
		{name: "shapes", preset: "wide", text: `
model:
  widths: {a: 1}
  lora: 3
  scale: [1]
  experts: [logic, magic]
  flights:
    - {nam: x, weight: -1}
    - 7
data:
  cache: big
  source: [a, ]
  text_field:
checkpoint:
  grace: 30
  grace: 31s
training.batch_size: 3
phase: {only: 1}
<<: {a: 1}
`, want: `run.yaml:3: model.widths: want a list, each a whole number of at least 1, got a mapping
run.yaml:4: model.lora: want a mapping of keys, got "3"
run.yaml:5: model.scale: want a number, got a list
run.yaml:6: model.experts[1]: want one of language, logic, spatial, causal, got "magic"
run.yaml:8: model.flights[0].nam: unknown key, did you mean name?
run.yaml:8: model.flights[0].weight: want a number of at least 0, got "-1"
run.yaml:9: model.flights[1]: want a mapping, got "7"
run.yaml:11: data.cache: want a size such as 14GiB or 512MiB, got "big"
run.yaml:13: data.text_field: want a text, got nothing
run.yaml:15: checkpoint.grace: want a duration such as 30s or 5m, got "30"
run.yaml:16: checkpoint.grace: given twice, first on line 15
run.yaml:17: training.batch_size: write it nested in a file: training: batch_size
run.yaml:18: phase: unknown section, did you mean phases?
run.yaml:19: <<: merging mappings is not supported: write the keys out`},
		{name: "another system's key", preset: "small", args: []string{"--model.widths", "3", "--phases.only", "1"},
			want: "--model.widths: unknown key: it belongs to the system other, this is neox\n--phases.only: unknown key: it belongs to the system other, this is neox"},
		{name: "flags", preset: "small", args: []string{"--training.max_steps", "--data.shuffle=maybe", "--training.lr", "1", "--training.seed", "1", "--training.seed=2"},
			want: "--training.max_steps: want a whole number of at least 1, got no value\n" +
				"--data.shuffle: want true or false, got \"maybe\"\n--training.seed: given twice\n--training.lr: taken as training.learning_rate 1"},
		{name: "seeds", preset: "small", args: []string{"--training.seed", "-1"}, want: "--training.seed: want a whole number of at least 0, got \"-1\""},
		{name: "seeds beyond 64 bits", preset: "small", args: []string{"--training.seed", "18446744073709551617000"},
			want: "--training.seed: want at most 18446744073709551615 (any number is a seed), got \"18446744073709551617000\""},
		{name: "far from anything", preset: "small", text: "training:\n  momentum_queue_of_doom: 1\nzzzzzz: 2\n", want: "run.yaml:2: training.momentum_queue_of_doom: unknown key; training has activation_compression, batch_size, beta1, beta2, ce_chunk, checkpoint_slices, clip_norm, diloco, early_stopping_min_delta, early_stopping_patience, eps, eval_batch_size, eval_batches, eval_steps, gradient_accumulation_steps, gradient_checkpointing, gradient_dtype, gradient_exchange, gradient_sums, learning_rate, learning_rate_width, log_steps, loss_scale, lr_scheduler, master_weights, max_grad_norm, max_steps, min_lr_ratio, mixed_precision, offload, optimizer, plateau, sample, save_steps, seed, warmup_steps, weight_decay, zero\n" +
			"run.yaml:3: zzzzzz: unknown key; the sections are system, model, training, data, hardware, checkpoint, metrics, run"},
		{name: "processes on their own", preset: "small", text: "system: neox\ntraining:\n  zero: 1\n  gradient_exchange: bf16\n  gradient_sums: fast\n  gradient_dtype: bf16\n  master_weights: stochastic\n  eval_steps: 100\n  save_steps: 20\n  diloco: {inner_steps: 30}\n",
			want: "run.yaml:3: training.zero: processes that train on their own, with training.diloco.inner_steps, each need a whole optimizer: want 0\n" +
				"run.yaml:4: training.gradient_exchange: with training.diloco.inner_steps no gradients are exchanged: want fp32, and training.diloco.exchange: int8 to send less\n" +
				"run.yaml:5: training.gradient_sums: with training.diloco.inner_steps no gradients are exchanged: omit it\n" +
				"run.yaml:6: training.gradient_dtype: with training.diloco.inner_steps the memory of gradients holds what weights changed by, which takes more bits than 16: want fp32\n" +
				"run.yaml:7: training.master_weights: with training.diloco.inner_steps processes exchange what weights changed by, which takes more bits than 16: want fp32\n" +
				"run.yaml:8: training.eval_steps: evaluates every 100 updates, but processes have the same weights every 30 updates (training.diloco.inner_steps): want 90 or 120\n" +
				"run.yaml:9: training.save_steps: saves every 20 updates, but processes have the same weights every 30 updates (training.diloco.inner_steps): want 30"},
		{name: "rules between keys", preset: "small", text: "system: neox\ndata: {source: [], seq_len: 512}\ntraining: {lr_scheduler: plateau, eval_steps: 0}\nhardware: {device: tpu}\n",
			args: []string{"--model.n_heads", "3"},
			want: "preset small:5: model.d_model: want a multiple of model.n_heads (3), got 128\n" +
				"run.yaml:2: data.source: want at least one file, folder or glob pattern: name yours with --data.source\n" +
				"run.yaml:2: data.seq_len: want at most model.max_seq_len (256), got 512\n" +
				"run.yaml:3: training.lr_scheduler: plateau follows the evaluations: set training.eval_steps\n" +
				"run.yaml:4: hardware.device: want auto, cpu, cuda, cuda:N or reference, got \"tpu\""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.preset, c.text, c.args...)
			if err == nil {
				t.Fatal("no error")
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.ExitCode() != 2 {
				t.Errorf("%T is not an *Error with exit code 2", err)
			}
			if err.Error() != c.want {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestNeedData(t *testing.T) {
	s := Sources{Systems: testSystems()[:1]}
	if _, err := Load(s); err != nil {
		t.Errorf("a plan needs no data: %v", err)
	}
	s.NeedData = true
	if _, err := Load(s); err == nil || err.Error() != "data.source: want at least one file, folder or glob pattern: name yours with --data.source" {
		t.Errorf("training needs data: %v", err)
	}
	s.Overrides = []Override{{Key: "data.format", Text: "gotree"}}
	if _, err := Load(s); err != nil {
		t.Errorf("the Go tree is data: %v", err)
	}
	s.Overrides = append(s.Overrides, Override{Key: "data.source", Text: "x"})
	if _, err := Load(s); err == nil || !strings.Contains(err.Error(), "reads the Go installation") {
		t.Errorf("two sources: %v", err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Sources{Systems: testSystems(), Presets: testPresets, Preset: "small", File: "/nowhere/run.yaml"})
	if err == nil || err.Error() != "/nowhere/run.yaml: no such file or directory" {
		t.Errorf("got %v", err)
	}
}

func TestManyErrorsAreCut(t *testing.T) {
	text := "training:\n"
	for i := range 41 {
		text += fmt.Sprintf("  quux%d: 1\n", i)
	}
	_, err := load(t, "small", text)
	if err == nil || !strings.HasSuffix(err.Error(), "\nand 21 more") || strings.Count(err.Error(), "\n") != shown {
		t.Errorf("got %v", err)
	}
}

func TestWarnings(t *testing.T) {
	c := mustLoad(t, "small", "", "--training.warmup_steps=500")
	if len(c.Warnings) != 1 || c.Warnings[0].String() != "--training.warmup_steps: warm-up takes 50 % of the 1,000 updates (training.max_steps); 1 to 10 % is usual" {
		t.Errorf("warnings: %v", c.Warnings)
	}
	if c := mustLoad(t, "small", "", "--training.warmup_steps=200"); len(c.Warnings) != 0 {
		t.Errorf("warnings at 20 %%: %v", c.Warnings)
	}
	// A number of slices implies slices.
	c = mustLoad(t, "small", "", "--training.checkpoint_slices=2")
	if o, _ := c.Origin("training.gradient_checkpointing"); c.Training.GradientCheckpointing != "slices" || o.String() != "from training.checkpoint_slices" {
		t.Errorf("2 slices make gradient_checkpointing %s, %v", c.Training.GradientCheckpointing, o)
	}
	c = mustLoad(t, "small", "", "--training.checkpoint_slices=2", "--training.gradient_checkpointing=full")
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].String(), "--training.checkpoint_slices: 2 parts are those of training.gradient_checkpointing: slices, which is full") {
		t.Errorf("warnings: %v", c.Warnings)
	}
	// A longer table of positions does not make rows longer.
	c = mustLoad(t, "small", "data: {seq_len: 128}\n", "--model.max_seq_len=512")
	if len(c.Warnings) != 1 || c.Warnings[0].String() != "--model.max_seq_len: rows stay at data.seq_len (128, run.yaml:1): give --data.seq_len 512 too if they are to be as long" {
		t.Errorf("warnings: %v", c.Warnings)
	}
	for _, args := range [][]string{{"--model.max_seq_len=512", "--data.seq_len=128"}, {"--data.seq_len=128"}, {"--model.max_seq_len=128"}} {
		if c := mustLoad(t, "small", "data: {seq_len: 128}\n", args...); len(c.Warnings) != 0 {
			t.Errorf("warnings with %v: %v", args, c.Warnings)
		}
	}
}

// TestAliases checks that every answer names an existing key, and that no spelling hides a real key.
func TestAliases(t *testing.T) {
	c := newConfig(testSystems()[0])
	for _, a := range aliases {
		if a.key == "" && a.why == "" {
			t.Errorf("no answer to %v", a.from)
		}
		if a.system == "" && a.key != "" && c.byPath[a.key] == nil { // those of a single system are tested with the commands of the guides
			t.Errorf("%v are answered by %s, which is no key", a.from, a.key)
		}
		for _, f := range a.from {
			if f != strings.ToLower(f) {
				t.Errorf("%s must be in lower case to be found", f)
			}
			for _, k := range c.keys {
				if a.system == "" && strings.HasSuffix(k.path, "."+f) && strings.Count(k.path, ".") == 1 {
					t.Errorf("%s is the key %s", f, k.path)
				}
			}
		}
	}
}

func TestFlagHint(t *testing.T) {
	s := testSystems()[0]
	for name, want := range map[string]string{
		"--lr": "write --training.learning_rate", "--batch-size": "write --training.batch_size",
		"--use_amp": "write --training.mixed_precision: auto is the best format that the device has; one of auto, fp32, tf32, bf16, fp16",
		"d_model":   "write --model.d_model", "--verbose": "",
	} {
		if hint, ok := FlagHint(name, s); hint != want || ok != (want != "") {
			t.Errorf("%s: %q, want %q", name, hint, want)
		}
	}
}

func TestSplitFlags(t *testing.T) {
	got, rest := SplitFlags([]string{"train", "small", "--out", "dir", "--a.b", "-1", "--a.c=x=y", "--a.d", "--a.e", "--json", "--", "--a.f", "1"})
	want := []Override{{Key: "a.b", Text: "-1"}, {Key: "a.c", Text: "x=y"}, {Key: "a.d", Bare: true}, {Key: "a.e", Bare: true}}
	if !slices.Equal(got, want) {
		t.Errorf("overrides %+v, want %+v", got, want)
	}
	if want := []string{"train", "small", "--out", "dir", "--json", "--", "--a.f", "1"}; !slices.Equal(rest, want) {
		t.Errorf("rest %q, want %q", rest, want)
	}
}

func TestDump(t *testing.T) {
	c := mustLoad(t, "small", "training:\n  batch_size: 16\n", "--training.sample.prompt=// a: \"b\" #c\n\x7f€")
	var b strings.Builder
	if err := c.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nsystem: neox  # preset small:3\n",
		"\n\nmodel:\n  d_model: 128  # preset small:5\n",
		"\n  batch_size: 16  # run.yaml:2\n",
		"\n  learning_rate: 0.001  # preset small:7\n",
		"\n  loss_scale:\n    init: 65536  # default\n",
		"\n    prompt: \"// a: \\\"b\\\" #c\\n\\x7f€\"  # --training.sample.prompt\n",
		"\n  source: [corpus/*.txt]  # preset small:10\n",
		"\n  grace: 30s  # default\n",
		"\n  seq_len: 256  # from model.max_seq_len\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	again := reload(t, c)
	if again.Hash() != c.Hash() || !reflect.DeepEqual(again.Training, c.Training) || *Of[neoxModel](again) != *Of[neoxModel](c) {
		t.Errorf("loads back as something else:\n%+v\n%+v", c.Training, again.Training)
	}
	if o, _ := again.Origin("training.batch_size"); o.Kind != File || o.Line == 0 {
		t.Errorf("origin after loading back: %v", o)
	}
}

func TestHash(t *testing.T) {
	a, b := mustLoad(t, "small", ""), mustLoad(t, "small", "training: {batch_size: 4}\n")
	if a.Hash() != b.Hash() || len(a.Hash()) != 64 {
		t.Error("the origin must not count")
	}
	c := mustLoad(t, "small", "", "--run.out", "x")
	if a.Hash() == c.Hash() || a.Hash("model", "training") != c.Hash("model", "training") {
		t.Error("run.out must change the whole hash, not that of model and training")
	}
	if d := mustLoad(t, "small", "", "--model.dropout=0.1"); a.Hash("model") == d.Hash("model") {
		t.Error("dropout must change the hash of model")
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "512": 512, "1KiB": 1024, "14GiB": 14 << 30, "14 gib": 14 << 30, "1.5 MiB": 3 << 19, "16GB": 16e9, "2 TB": 2e12, "100B": 100,
	} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err != nil || b != want {
			t.Errorf("%q: %d, %v; want %d", text, b, err, want)
		}
		var again Bytes
		if err := again.UnmarshalText([]byte(b.String())); err != nil || again != b {
			t.Errorf("%d prints as %q, which reads as %d, %v", b, b, again, err)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "-1GiB", "x", "1e30", "9999999TiB", "NaN", "Inf", "1 G i B"} {
		var b Bytes
		if err := b.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q reads as %d", text, b)
		}
	}
}

// TestDefaultsAreValid loads the defaults of each system, which must obey their own tags.
func TestDefaultsAreValid(t *testing.T) {
	for _, s := range testSystems() {
		for _, k := range newConfig(s).keys {
			if k.help == "" {
				t.Errorf("%s has no help", k.path)
			}
			var ps problems
			if k.value.Kind() != reflect.Slice {
				text := k.text()
				if k.value.Kind() == reflect.String {
					text = k.value.String()
				}
				if k.setText(text, Origin{}, &ps); len(ps) > 0 {
					t.Errorf("default of %s: %v", k.path, ps[0])
				}
			}
		}
	}
}

func TestReference(t *testing.T) {
	text := Reference(testSystems()[0])
	for _, want := range []string{
		"MODEL\n  --model.d_model 256\n        width of the residual stream (at least 1)\n",
		"\n\nTRAINING\n  --training.batch_size 8\n",
		"  training.loss_scale: dynamic loss scaling, used with fp16\n  --training.loss_scale.init 65536\n",
		"  --training.mixed_precision auto\n        format of matmuls; auto: the best that the device supports (auto, fp32, tf32, bf16, fp16)\n",
		"  --hardware.memory_budget 0\n        most memory that the run may use; 0: what the device has (a size such as 14GiB or 512MiB)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > 101 {
			t.Errorf("long line %q", line)
		}
	}
}

func TestJSONSchema(t *testing.T) {
	text, err := JSONSchema(testSystems()[1])
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		AdditionalProperties bool
		Properties           map[string]struct {
			Const      string
			Properties map[string]struct {
				Type             any
				Enum             []string
				Minimum          *float64
				ExclusiveMinimum *float64
				Default          any
				Items            struct {
					Type       string
					Enum       []string
					Properties map[string]any
				}
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	training, model := s.Properties["training"].Properties, s.Properties["model"].Properties
	if s.AdditionalProperties || s.Properties["system"].Const != "other" {
		t.Errorf("top: %s", text)
	}
	if b := training["batch_size"]; b.Type != "integer" || *b.Minimum != 1 || b.Default != 8.0 {
		t.Errorf("batch_size: %+v", b)
	}
	if r := training["learning_rate"]; r.Type != "number" || *r.ExclusiveMinimum != 0 {
		t.Errorf("learning_rate: %+v", r)
	}
	if p := training["mixed_precision"]; len(p.Enum) != 5 {
		t.Errorf("mixed_precision: %+v", p)
	}
	if e := model["experts"]; e.Type != "array" || e.Items.Type != "string" || len(e.Items.Enum) != 4 {
		t.Errorf("experts: %+v", e)
	}
	if f := model["flights"]; f.Items.Type != "object" || f.Items.Properties["name"] == nil {
		t.Errorf("flights: %+v", f)
	}
	if l := model["lora"]; l.Properties["rank"] == nil {
		t.Errorf("lora: %+v", l)
	}
	if g := s.Properties["checkpoint"].Properties["grace"]; g.Default != "30s" {
		t.Errorf("grace: %+v", g)
	}
}

func TestListPresets(t *testing.T) {
	got, err := ListPresets(testPresets)
	want := []PresetInfo{{"bad", ""}, {"small", "A small model. For tests."}, {"wide", "Another system."}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestOfPanicsOnAnotherSystemsSection(t *testing.T) {
	c := mustLoad(t, "small", "")
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Of[otherModel](c)
}

func TestDerive(t *testing.T) {
	c := mustLoad(t, "small", "")
	if err := c.Derive("training.mixed_precision", "bf16", "the CPU, which multiplies bf16"); err != nil {
		t.Fatal(err)
	}
	if o, _ := c.Origin("training.mixed_precision"); c.Training.MixedPrecision != "bf16" || o.String() != "from the CPU, which multiplies bf16" {
		t.Errorf("%s, %v", c.Training.MixedPrecision, o)
	}
	for _, bad := range [][2]string{{"training.mixed_precision", "fp8"}, {"training.nothing", "1"}} {
		if err := c.Derive(bad[0], bad[1], "x"); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}
func TestNothingIsNamedAsAValue(t *testing.T) {
	if got, want := expects(reflect.TypeFor[string](), rule{enum: []string{"", "svg"}}), `one of "", svg`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
