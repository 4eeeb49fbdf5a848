package dynamo

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
)

// load returns the configuration given by YAML text and flags.
func load(t *testing.T, text string, flags ...string) *config.Config {
	t.Helper()
	c, err := tryLoad(t, text, flags...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryLoad(t *testing.T, text string, flags ...string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("system: dynamo\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	overrides, rest := config.SplitFlags(flags)
	if len(rest) > 0 {
		t.Fatalf("flags not understood: %q", rest)
	}
	return config.Load(config.Sources{Systems: []config.System{System.Config}, File: path, Overrides: overrides})
}

// small is the configuration of a small encoder trained from scratch.
const small = `
model: {d_model: 32, n_layers: 2, n_heads: 4, d_ff: 64, max_seq_len: 24, vocab_size: 300, head_dropout: 0, decoder_layers: 2, init_std: 0.2}
router: {hidden: [16], dropout: 0}
tasks:
  sentiment: {rank: 4, alpha: 8, dropout: 0}
  qa: {rank: 3, alpha: 6, dropout: 0, targets: [query, value]}
  summarization: {rank: 2, alpha: 4, dropout: 0, target_length: 8}
  code_generation: {rank: 4, alpha: 8, dropout: 0, target_length: 8}
  translation: {rank: 4, alpha: 8, dropout: 0, target_length: 8, length: 16}
training: {batch_size: 10, gradient_accumulation_steps: 1, beta2: 0.999, weight_decay: 0.01, mixed_precision: fp32}
data: {format: gotree, tokenizer: {vocab_size: 300}}
`

// armed compiles and loads the training program of a configuration.
func armed(t *testing.T, c *config.Config, o engine.CompileOptions) *engine.Executable {
	t.Helper()
	m, err := describe(c)
	if err != nil {
		t.Fatal(err)
	}
	o.Verify = true
	p, err := engine.CompileTraining(m.Training(m.Shape), o)
	if err != nil {
		t.Fatal(err)
	}
	return arm(t, p)
}

func arm(t *testing.T, p *engine.Program) *engine.Executable {
	t.Helper()
	r, err := p.Load(backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Initialize(3); err != nil {
		t.Fatal(err)
	}
	return r
}

func held(t *testing.T, r *engine.Executable, name string) []float32 {
	t.Helper()
	s, err := r.State(name)
	if err != nil {
		t.Fatal(err)
	}
	return s.F32()
}

func setF32(t *testing.T, r *engine.Executable, name string, v ...float32) {
	t.Helper()
	x, ok := r.Input(0, name)
	if !ok {
		t.Fatalf("no input %s", name)
	}
	if n := copy(x.F32(), v); n != len(x.F32()) {
		t.Fatalf("input %s takes %d elements, got %d", name, len(x.F32()), n)
	}
}

func setI32(t *testing.T, r *engine.Executable, name string, v ...int32) {
	t.Helper()
	x, ok := r.Input(0, name)
	if !ok {
		t.Fatalf("no input %s", name)
	}
	if n := copy(x.I32(), v); n != len(x.I32()) {
		t.Fatalf("input %s takes %d elements, got %d", name, len(x.I32()), n)
	}
}

func result32(t *testing.T, r *engine.Executable, fn, name string) []float32 {
	t.Helper()
	x, err := r.Output(fn, name)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), x.F32()...)
}

func run(t *testing.T, r *engine.Executable, fn string) {
	t.Helper()
	if err := r.Run(fn, 0); err != nil {
		t.Fatal(err)
	}
}

func far(a, b []float32) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	worst := 0.0
	for i := range a {
		worst = max(worst, math.Abs(float64(a[i]-b[i])))
	}
	return worst
}

// golden is a file written by tools/goldens/dynamo.py.
type golden struct {
	*safetensors.File
	t *testing.T
}

func openGolden(t *testing.T, name string) golden {
	t.Helper()
	f, err := safetensors.Open(filepath.Join("testdata", name+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return golden{f, t}
}

func (g golden) f32(name string) []float32 {
	g.t.Helper()
	x, err := g.Tensor(name)
	if err != nil {
		g.t.Fatal(err)
	}
	out := make([]float32, len(x.Data)/4)
	if err := x.Float32s(out); err != nil {
		g.t.Fatal(err)
	}
	return out
}

func (g golden) i32(name string) []int32 {
	g.t.Helper()
	x, err := g.Tensor(name)
	if err != nil {
		g.t.Fatal(err)
	}
	return engine.Tensor{Data: append([]byte(nil), x.Data...)}.I32()
}

// weights copies the golden's weights and those of the encoder into a program.
func (g golden) weights(c *config.Config, r *engine.Executable) {
	g.t.Helper()
	l := loader{c, "", nil, func(string, ...any) {}, r.Program().States, r.ChangeState}
	if err := l.encoder(); err != nil {
		g.t.Fatal(err)
	}
	n := 0
	for _, x := range g.Tensors() {
		if name, ok := strings.CutPrefix(x.Name, "weight."); ok {
			if err := r.SetFloats(name, g.f32(x.Name)); err != nil {
				g.t.Fatal(err)
			}
			n++
		}
	}
	if want := len(r.Program().TrainedWeights()); want > 0 && n != want {
		g.t.Fatalf("the golden has %d weights, %d are trained", n, want)
	}
}

// losses returns the losses of the first updates with the golden's inputs.
func (g golden) losses(r *engine.Executable, updates int, weight func(u int) float32) []float32 {
	g.t.Helper()
	var out []float32
	for u := range updates {
		g.put(r, u)
		setF32(g.t, r, engine.InputLR, 3e-3)
		setF32(g.t, r, engine.InputInvWeight, 1/weight(u))
		run(g.t, r, engine.FuncStep)
		out = append(out, result32(g.t, r, engine.FuncStep, engine.OutputLoss)[0])
	}
	return out
}

// put writes the inputs of an update to a program.
func (g golden) put(r *engine.Executable, u int) {
	g.t.Helper()
	for _, x := range g.Tensors() {
		name, ok := strings.CutPrefix(x.Name, "in.")
		if !ok {
			continue
		}
		n := 1
		for _, d := range x.Shape[1:] {
			n *= d
		}
		if x.DType == safetensors.F32 {
			setF32(g.t, r, at(name, ""), g.f32(x.Name)[u*n:(u+1)*n]...)
		} else {
			setI32(g.t, r, at(name, ""), g.i32(x.Name)[u*n:(u+1)*n]...)
		}
	}
	if _, ok := r.Input(0, at(inputOutside, "")); ok {
		// The answer is among the real tokens after the second one.
		lens := g.i32("in.lens")[4*u : 4*u+4]
		x := make([]float32, 4*12)
		for i := range x {
			if i%12 < 2 || i%12 >= int(lens[i/12]) {
				x[i] = unlikely
			}
		}
		setF32(g.t, r, at(inputOutside, ""), x...)
	}
}

// goldenConfig returns the model of tools/goldens/dynamo.py.
func goldenConfig(t *testing.T, stage string) *config.Config {
	t.Helper()
	folder, err := filepath.Abs("../../nn/hf/testdata/roberta")
	if err != nil {
		t.Fatal(err)
	}
	return load(t, fmt.Sprintf(`
model: {folder: %s, tasks: [sentiment, qa, translation], head_dropout: 0, decoder_layers: 2}
router: {hidden: [20, 10], dropout: 0, learn_temperature: false, temperature: 0.7}
phases: {stage: %s}
tasks:
  sentiment: {rank: 4, alpha: 8, dropout: 0}
  qa: {rank: 4, alpha: 8, dropout: 0, targets: [query, value]}
  translation: {rank: 4, alpha: 8, dropout: 0, targets: [key, output], target_length: 7}
training: {batch_size: 4, beta2: 0.999, weight_decay: 0.01}
data: {format: gotree, seq_len: 12, tokenizer: {path: unused, vocab_size: 258}}
`, folder, stage))
}
