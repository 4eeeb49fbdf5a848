package moderation

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/train"
)

// TestPaddingAndCompany: a text gets the same probability in every bucket that fits it and in any batch.
// Padding and the other rows of a micro-batch have no influence.
func TestPaddingAndCompany(t *testing.T) {
	for _, pairs := range [][]string{
		{"model.pooling", "first"}, {"model.pooling", "mean", "model.wide_rows", "64"}, {"model.pooling", "first", "model.architecture", "bert"},
	} {
		t.Run(strings.Join(pairs, " "), func(t *testing.T) {
			p := prepareRun(t, append(small(pairs...), "data.source", comments(t, "train.csv", 200, 1), "data.held_out_fraction", "0.2")...)
			dir := p.trained(t, 20)
			short := mustClassifier(t, p.c, dir)
			defer func() { _ = short.Close() }()
			texts := []string{"good idiot", "room near park quiet", "thanks", strings.Repeat("light ", 7)}
			var alone []float64
			for _, text := range texts {
				alone = append(alone, probabilities(t, short, text)...)
			}
			if slices.Max(alone)-slices.Min(alone) < 1e-4 {
				t.Fatalf("the probabilities are all alike: %v", alone)
			}
			// Other texts lead to micro-batches of 4 and 16 rows.
			var many []string
			for range 5 {
				many = append(many, texts...)
			}
			for i, got := range probabilities(t, short, many...) {
				if want := alone[i%len(texts)]; math.Abs(got-want) > 1e-6 {
					t.Errorf("text %d in company has %v, alone %v", i%len(texts), got, want)
				}
			}
			// The text is padded to 48 instead of 12 or 24.
			long := *short
			long.lengths = []int{48}
			for i, got := range probabilities(t, &long, texts...) {
				if math.Abs(got-alone[i]) > 1e-6 {
					t.Errorf("text %d padded to 48 has %v, in its bucket %v", i, got, alone[i])
				}
			}
		})
	}
}

func probabilities(t testing.TB, k *Classifier, texts ...string) []float64 {
	t.Helper()
	var encoded []*Encoded
	for _, text := range texts {
		encoded = append(encoded, encodedText(t, k, text))
	}
	p, err := k.Probabilities(context.Background(), encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLabelsAreNoInputs: the logits do not change when labels and weights change.
func TestLabelsAreNoInputs(t *testing.T) {
	p := prepareRun(t, small("data.source", comments(t, "train.csv", 120, 1), "data.held_out_fraction", "0.2")...)
	r := p.arm(t, engine.CompileOptions{})
	u, err := p.run.Loader.Next()
	if err != nil {
		t.Fatal(err)
	}
	in := train.Inputs{Runner: r}
	if err := u.Fill(0, in); err != nil {
		t.Fatal(err)
	}
	v := u.Variants[0]
	run := func() []float32 {
		fn := engine.Variant(engine.FuncEval, v)
		if err := r.Run(fn, 0); err != nil {
			t.Fatal(err)
		}
		out, _ := r.Output(fn, outputLogits)
		return slices.Clone(out.F32())
	}
	before := run()
	l, err := in.I32(at(inputLabels, v))
	if err != nil {
		t.Fatal(err)
	}
	w, err := in.F32(at(inputWeights, v))
	if err != nil {
		t.Fatal(err)
	}
	for i := range l {
		l[i], w[i] = 1-l[i], 7
	}
	if !slices.Equal(run(), before) {
		t.Error("other labels gave other logits")
	}
	ids, err := in.I32(at(inputIDs, v))
	if err != nil {
		t.Fatal(err)
	}
	ids[1] = (ids[1] + 100) % 300
	if slices.Equal(run(), before) {
		t.Error("another text gave the same logits")
	}
}

// TestGradientsReachEverything: every parameter gets a gradient, whatever the shape of the model.
func TestGradientsReachEverything(t *testing.T) {
	source := comments(t, "train.csv", 150, 1)
	for _, pairs := range [][]string{
		{"model.architecture", "bert"}, {"model.architecture", "roberta", "model.wide_rows", "64"}, {"model.pooling", "first"},
	} {
		p := prepareRun(t, append(small(pairs...), "data.source", source, "data.held_out_fraction", "0.2")...)
		r := p.arm(t, engine.CompileOptions{})
		p.losses(t, r, 1)
		if u := r.Program().Untrained; len(u) > 0 {
			t.Errorf("%v: not trained: %v", pairs, u)
		}
		for _, s := range r.Program().TrainedWeights() {
			m, _ := r.State(engine.Moment2 + s.Name)
			if !slices.ContainsFunc(m.F32(), func(x float32) bool { return x != 0 }) {
				t.Errorf("%v: %s got no gradient", pairs, s.Name)
			}
		}
	}
}

// TestAccumulation: an update does not depend on how it is cut into micro-batches, because the loss is the
// mean by class weight over the whole update.
func TestAccumulation(t *testing.T) {
	source := comments(t, "train.csv", 200, 2)
	common := []string{"data.source", source, "data.held_out_fraction", "0.2", "data.buckets", "48", "data.shuffle", "false",
		"model.dropout", "0", "model.attention_dropout", "0", "model.classifier_dropout", "0"}
	curve := func(rows, accumulation string) []float64 {
		p := prepareRun(t, small(append(common, "training.batch_size", rows, "training.gradient_accumulation_steps", accumulation)...)...)
		return p.losses(t, p.arm(t, engine.CompileOptions{}), 10)
	}
	whole := curve("8", "1")
	for _, cut := range [][2]string{{"4", "2"}, {"2", "4"}} {
		for u, loss := range curve(cut[0], cut[1]) {
			if math.Abs(loss-whole[u]) > 2e-4 {
				t.Errorf("%s micro-batches of %s: loss of update %d is %v, of the whole %v", cut[1], cut[0], u+1, loss, whole[u])
			}
		}
	}
}

// TestRecomputeAndPrecision: with length buckets and accumulation, recomputation changes no bit, and 16-bit
// matmuls stay close.
func TestRecomputeAndPrecision(t *testing.T) {
	source := comments(t, "train.csv", 200, 2)
	curve := func(o engine.CompileOptions) []float64 {
		p := prepareRun(t, small("data.source", source, "data.held_out_fraction", "0.2", "training.gradient_accumulation_steps", "2")...)
		return p.losses(t, p.arm(t, o), 12)
	}
	plain := curve(engine.CompileOptions{})
	if again := curve(engine.CompileOptions{}); !slices.Equal(again, plain) {
		t.Errorf("a second run differs: %v, %v", again, plain)
	}
	if full := curve(engine.CompileOptions{Recompute: pass.RecomputeFull}); !slices.Equal(full, plain) {
		t.Errorf("recomputation changed the losses: %v, %v", full, plain)
	}
	for _, low := range []graph.DType{graph.BF16, graph.F16} {
		for u, loss := range curve(engine.CompileOptions{ComputeDType: low}) {
			if math.Abs(loss-plain[u]) > 0.05 {
				t.Errorf("%v: loss of update %d is %v, in float32 %v", low, u+1, loss, plain[u])
			}
		}
	}
}

// TestParameterCount: the plan of the guide's configuration has the parameter count of PhoBERT.
func TestParameterCount(t *testing.T) {
	c := settings(t, "model.architecture", "roberta", "model.d_model", "768", "model.n_layers", "12", "model.n_heads", "12", "model.d_ff", "3072",
		"model.vocab_size", "64001", "model.max_seq_len", "256", "data.seq_len", "192", "data.buckets", "192", "data.tokenizer.vocab_size", "64001")
	m, err := describe(c)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	b := graph.NewBuilder("count")
	if err := graph.Catch(func() { m.Training(m.Shape).Model(b, engine.Mode{Variant: "192"}) }); err != nil {
		t.Fatal(err)
	}
	for _, s := range b.F.States {
		n += s.State.Type.Shape.Elems()
	}
	if got := fmt.Sprintf("%.1f M", float64(n)/1e6); got != "135.0 M" {
		t.Errorf("%s parameters, want 135.0 M", got)
	}
}

// TestCheck: nonsensical settings are rejected by key.
func TestCheck(t *testing.T) {
	for want, pairs := range map[string][]string{
		"model.n_heads":             {"model.d_model", "30", "model.n_heads", "4"},
		"model.vocab_size":          {"model.vocab_size", "300", "data.tokenizer.vocab_size", "400"},
		"data.seq_len":              {"data.seq_len", "2"},
		"data.buckets":              {"data.buckets", "16,8", "data.seq_len", "16"},
		"the last is":               {"data.buckets", "8", "data.seq_len", "16"},
		"data.positive_labels":      {"data.positive_labels", "bad", "data.negative_labels", "Bad"},
		"data.held_out_fraction":    {"data.held_out_fraction", "0"},
		"data.test_fraction":        {"data.held_out_fraction", "0.5", "data.test_fraction", "0.5"},
		"data.documents":            {"data.documents", "line"},
		"data.overlap":              {"data.overlap", "8"},
		"data.segment_mask":         {"data.segment_mask", "true"},
		"a text file has no labels": {"data.format", "text"},
		"is not a model folder":     {"model.folder", t.TempDir()},
		"want an encoder":           {"model.folder", "../../nn/hf/testdata/neox"},
		"padding id":                {"model.architecture", "roberta", "model.pad_id", "99999"},
		"unknown activation":        {"model.activation", "square"},
		"want at most":              {"data.seq_len", "400", "model.max_seq_len", "128"},
	} {
		s := []string{"data.source", "x.csv"}
		_, err := load(append(s, pairs...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", pairs, err, want)
		}
	}
}

// TestFolder: a model folder determines the sizes, which are later known without it.
func TestFolder(t *testing.T) {
	c := settings(t, "model.folder", "testdata/curve/bert", "data.seq_len", "16")
	m := c.Values()
	got := map[string]string{}
	for _, v := range m {
		got[v.Key] = v.Text
	}
	for key, want := range map[string]string{"model.architecture": "bert", "model.d_model": "32", "model.n_layers": "2", "model.d_ff": "48", "model.vocab_size": "61", "model.token_types": "2", "model.max_seq_len": "20"} {
		if got[key] != want {
			t.Errorf("%s is %s, want %s", key, got[key], want)
		}
	}
	if o, _ := c.Origin("model.d_model"); !strings.Contains(o.String(), "config.json") {
		t.Errorf("model.d_model comes from %v", o)
	}
}

// TestLadder: the ladder of buckets ends at the longest text and pads by less than half.
func TestLadder(t *testing.T) {
	if got, want := ladder(192), []int{16, 24, 32, 48, 64, 96, 128, 192}; !slices.Equal(got, want) {
		t.Errorf("ladder(192) is %v, want %v", got, want)
	}
	for longest := 3; longest < 600; longest++ {
		l := ladder(longest)
		if l[len(l)-1] != longest || !slices.IsSorted(l) {
			t.Fatalf("ladder(%d) is %v", longest, l)
		}
		for i := 1; i < len(l); i++ {
			if l[i] == l[i-1] || l[i] > 3*l[i-1]/2+l[i-1]/2 {
				t.Fatalf("ladder(%d) is %v", longest, l)
			}
		}
	}
}
