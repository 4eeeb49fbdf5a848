package hf

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

var folders = []string{
	"neox", "neox-old", "neox-sharded", "gpt2", "llama", "llama-biases", "qwen3", "bert", "bert-classifier", "bert-masked",
	"roberta", "roberta-classifier", "roberta-masked",
}

// folder is a model of testdata with transformers' outputs for it.
type folder struct {
	*Config
	dir      string
	expected *safetensors.File
}

func openFolder(t *testing.T, name string) *folder {
	t.Helper()
	f := &folder{dir: filepath.Join("testdata", name)}
	var err error
	if f.Config, err = ReadConfig(f.dir); err != nil {
		t.Fatal(err)
	}
	if f.expected, err = safetensors.Open(filepath.Join(f.dir, "expected.safetensors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.expected.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// given returns an integer tensor of expected.safetensors, nil if there is none.
func (f *folder) given(name string) []int32 {
	x, err := f.expected.Tensor(name)
	if err != nil {
		return nil
	}
	return engine.Tensor{Data: slices.Clone(x.Data)}.I32()
}

// want returns a floating-point tensor of it.
func (f *folder) want(name string) []float32 {
	x, err := f.expected.Tensor(name)
	if err != nil {
		return nil
	}
	out := make([]float32, len(x.Data)/4)
	if err := x.Float32s(out); err != nil {
		return nil
	}
	return out
}

// lens returns the lengths of the rows, places the rows of RoBERTa's position table as counted
// by transformers.
func (f *folder) lens(batch, time int) []int32 {
	mask := f.given("attention_mask")
	lens := make([]int32, batch)
	for i := range lens {
		lens[i] = int32(time)
		if mask != nil {
			lens[i] = 0
			for _, m := range mask[i*time : (i+1)*time] {
				lens[i] += m
			}
		}
	}
	return lens
}

func places(lens []int32, time, pad int) []int32 {
	var rows []int32
	for _, n := range lens {
		for i := range time {
			if i < int(n) {
				rows = append(rows, int32(pad+1+i))
			} else {
				rows = append(rows, int32(pad))
			}
		}
	}
	return rows
}

// arm compiles and loads the forward half that build builds.
func arm(t *testing.T, build func(b *graph.Builder)) *engine.Executable {
	t.Helper()
	b := graph.NewBuilder("forward")
	if err := graph.Catch(func() { build(b) }); err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileForward(engine.CompileOptions{Verify: true}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	return armed(t, p)
}

func armed(t *testing.T, p *engine.Program) *engine.Executable {
	t.Helper()
	r, err := p.Load(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Initialize(1); err != nil {
		t.Fatal(err)
	}
	return r
}

func memory(r *engine.Executable) func(name string) []float32 {
	return func(name string) []float32 {
		x, _ := r.State(name)
		return x.F32()
	}
}

func load(t *testing.T, c *Config, dir string, r *engine.Executable, o LoadOptions) *Report {
	t.Helper()
	report, err := c.Load(dir, r.Program().States, r.ChangeState, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func setI32(t *testing.T, r *engine.Executable, name string, x []int32) {
	t.Helper()
	in, ok := r.Input(0, name)
	if !ok || len(in.I32()) != len(x) {
		t.Fatalf("input %s takes %d, got %d", name, len(in.I32()), len(x))
	}
	copy(in.I32(), x)
}

func run(t *testing.T, r *engine.Executable, fn string) {
	t.Helper()
	if err := r.Run(fn, 0); err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, r *engine.Executable, fn, name string) []float32 {
	t.Helper()
	x, err := r.Output(fn, name)
	if err != nil {
		t.Fatalf("%s has no output %s", fn, name)
	}
	return slices.Clone(x.F32())
}

// far returns the largest difference over rows [from, to) of the given width.
func far(a, b []float32) float64 {
	worst := 0.0
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if math.IsNaN(d) {
			return math.Inf(1)
		}
		worst = max(worst, d)
	}
	return worst
}

// forward runs the model like transformers was run: padding masked, and with exact set
// its rows of the position table as transformers counts them.
func (f *folder) forward(t *testing.T, exact bool) (r *engine.Executable, report *Report) {
	t.Helper()
	ids := f.given("input_ids")
	const batch = 2
	time := len(ids) / batch
	r = arm(t, func(b *graph.Builder) {
		in := Input{IDs: b.Input("ids", graph.T(graph.I32, batch, time))}
		if f.given("attention_mask") != nil {
			in.Lens = b.Input("lens", graph.T(graph.I32, batch))
		}
		if f.given("token_type_ids") != nil {
			in.Types = b.Input("types", graph.T(graph.I32, batch, time))
		}
		if m, ok := f.Model.(BERT); ok && m.RoBERTa && exact {
			in.Positions = b.Input("positions", graph.T(graph.I32, batch, time))
		}
		res := f.Forward(b, in)
		for name, v := range map[string]*graph.Value{"logits": res.Logits, "pooler_output": res.Pooled, "last_hidden_state": res.Hidden} {
			if v != nil {
				b.Output(name, v)
			}
		}
	})
	report = load(t, f.Config, f.dir, r, LoadOptions{})
	setI32(t, r, "ids", ids)
	lens := f.lens(batch, time)
	for name, x := range map[string][]int32{"lens": lens, "types": f.given("token_type_ids")} {
		if _, ok := r.Input(0, name); ok {
			setI32(t, r, name, x)
		}
	}
	if m, ok := f.Model.(BERT); ok && m.RoBERTa && exact {
		setI32(t, r, "positions", places(lens, time, m.Pad))
	}
	run(t, r, "forward")
	return r, report
}

// Each folder gives the same outputs as in transformers.
func TestFolders(t *testing.T) {
	for _, name := range folders {
		t.Run(name, func(t *testing.T) {
			f := openFolder(t, name)
			r, report := f.forward(t, true)
			seen := 0
			for _, out := range []string{"logits", "pooler_output", "last_hidden_state"} {
				want := f.want(out)
				if want == nil {
					continue
				}
				got := output(t, r, "forward", out)
				if len(got) != len(want) {
					t.Fatalf("%s has %d elements, transformers %d", out, len(got), len(want))
				}
				worst := far(got, want)
				t.Logf("%s: worst difference %.2g", out, worst)
				if worst > 1e-4 {
					t.Errorf("%s differs from transformers' by %g", out, worst)
				}
				seen++
			}
			if seen < 2 {
				t.Errorf("only %d outputs were compared", seen)
			}
			t.Log(report.Lines())
		})
	}
}

// Without positions from outside, RoBERTa's own give the same for real ids.
func TestPaddingCountsOn(t *testing.T) {
	f := openFolder(t, "roberta-masked")
	r, _ := f.forward(t, false)
	want, got := f.want("logits"), output(t, r, "forward", "logits")
	vocab := f.Model.(BERT).Vocab
	time := len(want) / vocab / 2
	for i, n := range f.lens(2, time) {
		at, to := i*time*vocab, (i*time+int(n))*vocab
		if d := far(got[at:to], want[at:to]); d > 1e-4 {
			t.Errorf("row %d differs by %g", i, d)
		}
	}
}
