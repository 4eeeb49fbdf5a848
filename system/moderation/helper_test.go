package moderation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// settings returns a configuration given by "key", "value" pairs. The key "preset" names a preset to start
// from.
func settings(t testing.TB, pairs ...string) *config.Config {
	t.Helper()
	c, err := load(pairs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func load(pairs []string) (*config.Config, error) {
	s := config.Sources{Systems: []config.System{System.Config}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "preset" {
			s.Presets, s.Preset = configs.FS, pairs[i+1]
			continue
		}
		s.Overrides = append(s.Overrides, config.Override{Key: pairs[i], Text: pairs[i+1]})
	}
	return config.Load(s)
}

// small returns the settings of a model that trains in a moment.
func small(more ...string) []string {
	return dedupe(append([]string{
		"model.d_model", "32", "model.n_layers", "2", "model.n_heads", "2", "model.d_ff", "64", "model.max_seq_len", "48",
		"model.pooling", "mean", "data.tokenizer.vocab_size", "320", "data.buckets", "12,24,48", "training.batch_size", "8",
		"training.learning_rate", "3e-3", "training.eval_steps", "20", "training.save_steps", "20", "decision.baseline", "true",
	}, more...))
}

// comments writes a CSV file of n texts. A quarter of them are to be flagged, for words that usually give
// them away.
func comments(t testing.TB, name string, n int, seed uint64) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	polite := strings.Fields("good room near park quiet clean thanks please family garden light morning")
	rude := strings.Fields("idiot trash scam shut hate stupid")
	var b strings.Builder
	b.WriteString("text,label\n")
	for range n {
		flagged := rng.IntN(4) == 0
		var words []string
		for range 3 + rng.IntN(12) {
			words = append(words, polite[rng.IntN(len(polite))])
		}
		if flagged {
			for range 1 + rng.IntN(2) {
				words[rng.IntN(len(words))] = rude[rng.IntN(len(rude))]
			}
		}
		fmt.Fprintf(&b, "\"%s, no. %d\",%d\n", strings.Join(words, " "), rng.IntN(1000), class(flagged))
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// prepared is a system ready to train in its own folder.
type prepared struct {
	c     *config.Config
	model *system.Model
	run   *system.Run
	dir   string
}

func prepareRun(t testing.TB, pairs ...string) *prepared {
	t.Helper()
	p := &prepared{c: settings(t, pairs...), dir: t.TempDir()}
	var err error
	if p.model, err = describe(p.c); err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Look(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() }) // there is nothing to lose
	p.run, err = open(context.Background(), p.c, p.model, system.Env{Dir: run, Cache: t.TempDir(), Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.run.Loader.Close)
	return p
}

// arm compiles the training program and initializes its weights.
func (p *prepared) arm(t testing.TB, o engine.CompileOptions) *engine.Executable {
	t.Helper()
	s := p.model.Shape
	s.LossScaling = o.ComputeDType == graph.F16
	o.Verify = true
	prog, err := engine.CompileTraining(p.model.Training(s), o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := prog.Load(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Initialize(p.c.Training.Seed); err != nil {
		t.Fatal(err)
	}
	if err := p.run.Load(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// job returns a job that trains for the given number of updates.
func (p *prepared) job(r *engine.Executable, updates int64, watch func(train.Event)) *train.Job {
	t := &p.c.Training
	return &train.Job{
		Runner: r, Loader: p.run.Loader, Updates: updates, Seed: t.Seed,
		Schedule: &train.Schedule{Kind: train.Linear, Peak: t.LearningRate, Total: updates},
		Eval:     train.EvalOptions{Evaluator: p.run.Evaluator, Monitor: p.run.Monitor, Every: int64(t.EvalSteps)},
		Save:     train.SaveOptions{Every: int64(t.SaveSteps)}, OnEvent: watch,
	}
}

// losses trains and returns the loss of each update.
func (p *prepared) losses(t testing.TB, r *engine.Executable, updates int64) (loss []float64) {
	t.Helper()
	job := p.job(r, updates, func(e train.Event) {
		if s, ok := e.(train.Step); ok {
			loss = append(loss, s.Loss)
		}
	})
	if _, err := job.Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	return loss
}

// trained trains the small model, writes the report, and returns the folder of the reported checkpoint.
func (p *prepared) trained(t testing.TB, updates int64) (dir string) {
	t.Helper()
	r := p.arm(t, engine.CompileOptions{})
	store, err := checkpoint.Open(p.dir, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	job := p.job(r, updates, nil)
	job.Save.Store, job.Save.Run.Files = store, p.run.Files
	res, err := job.Run(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.run.Report(context.Background(), r, res.Update, store.Run()); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(p.dir, checkpoint.Folder, checkpoint.Name(res.Update))
}

func mustClassifier(t testing.TB, c *config.Config, dir string) *Classifier {
	t.Helper()
	k, err := LoadClassifier(c, dir, backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// dedupe keeps the last of settings with the same key.
func dedupe(pairs []string) (out []string) {
	seen := map[string]bool{}
	for i := len(pairs) - 2; i >= 0; i -= 2 {
		if !seen[pairs[i]] {
			seen[pairs[i]] = true
			out = append(out, pairs[i], pairs[i+1])
		}
	}
	return out
}

// scoresOf evaluates the weights of a checkpoint folder.
func scoresOf(t testing.TB, p *prepared, r *engine.Executable, dir string) map[string]float64 {
	t.Helper()
	c, err := checkpoint.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := train.LoadStates(r, c, graph.Weight); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := train.Evaluate(context.Background(), p.run.Evaluator, r, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
