package dynamo

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// goldenWeight returns the total weight of the losses of an update.
func (g golden) goldenWeight(task string) func(u int) float32 {
	if kindOf(task) != write {
		return func(int) float32 { return 4 }
	}
	w := g.f32("in.weights")
	return func(u int) float32 {
		sum, n := float32(0), len(w)/30
		for _, x := range w[u*n : (u+1)*n] {
			sum += x
		}
		return sum
	}
}

// prepare gives a loaded program the golden's weights.
func (g golden) prepare(task string, o engine.CompileOptions) *engine.Executable {
	g.t.Helper()
	c := goldenConfig(g.t, task)
	r := armed(g.t, c, o)
	g.weights(c, r)
	if kindOf(task) != write {
		setF32(g.t, r, at(inputWeights, ""), 1, 1, 1, 1)
	}
	return r
}

// TestCurvesEqualPyTorch: the heads' first outputs and the loss of each of 30 updates equal PyTorch's for the
// same weights and batches.
func TestCurvesEqualPyTorch(t *testing.T) {
	for _, task := range []string{nameSentiment, nameQA, nameTranslation} {
		t.Run(task, func(t *testing.T) {
			g := openGolden(t, task)
			r := g.prepare(task, engine.CompileOptions{})
			g.put(r, 0)
			run(t, r, engine.FuncEval)
			for _, out := range map[string][]string{nameSentiment: {outputLogits}, nameQA: {outputStart, outputEnd}}[task] {
				if d := far(result32(t, r, engine.FuncEval, out), g.f32("out."+out)); d > 1e-4 {
					t.Errorf("%s differs from PyTorch by %g", out, d)
				}
			}
			want := g.f32("loss")
			got := g.losses(r, len(want), g.goldenWeight(task))
			worst := far(got, want)
			if worst > 1e-3 {
				t.Errorf("losses differ by %g: %v, PyTorch has %v", worst, got, want)
			}
			t.Logf("%v -> %v, PyTorch %v -> %v, worst difference %.2g", got[0], got[len(got)-1], want[0], want[len(want)-1], worst)
		})
	}
}

// TestRouterEqualsPyTorch: the router's probabilities equal PyTorch's.
func TestRouterEqualsPyTorch(t *testing.T) {
	g := openGolden(t, "router")
	c := goldenConfig(t, stageRouter)
	r := armed(t, c, engine.CompileOptions{})
	// The temperature is not trained here, so the golden has it together with the weights.
	l := loader{c, "", nil, func(string, ...any) {}, r.Program().States, r.ChangeState}
	if err := l.encoder(); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Program().States {
		if s.Role == graph.Weight || s.Name == "router.temperature" {
			if err := r.SetFloats(s.Name, g.f32("weight."+s.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	setI32(t, r, at(inputIDs, ""), g.i32("in.ids")...)
	setI32(t, r, at(inputLens, ""), g.i32("in.lens")...)
	run(t, r, engine.FuncEval)
	if d := far(result32(t, r, engine.FuncEval, outputRouting), g.f32("out.routing")); d > 1e-5 {
		t.Errorf("routing differs from PyTorch by %g", d)
	}
}

// TestPassesKeepTheCurve: recomputation changes no bit of the losses, and bf16 stays close.
func TestPassesKeepTheCurve(t *testing.T) {
	for _, task := range []string{nameSentiment, nameTranslation} {
		g := openGolden(t, task)
		weight := g.goldenWeight(task)
		want := g.losses(g.prepare(task, engine.CompileOptions{}), 10, weight)
		for _, mode := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeFull} {
			got := g.losses(g.prepare(task, engine.CompileOptions{Recompute: mode}), 10, weight)
			if far(got, want) != 0 {
				t.Errorf("%s: recompute %v: losses %v, without %v", task, mode, got, want)
			}
		}
		got := g.losses(g.prepare(task, engine.CompileOptions{ComputeDType: graph.BF16}), 10, weight)
		for u := range got {
			if math.Abs(float64(got[u]-want[u])) > .05*math.Max(1, float64(want[u])) {
				t.Errorf("%s: bf16, update %d: loss %v, in float32 %v", task, u, got[u], want[u])
			}
		}
	}
}

// TestAccumulation: an update in two micro-batches equals one with a micro-batch of twice the rows.
func TestAccumulation(t *testing.T) {
	g := openGolden(t, nameSentiment)
	want := g.losses(g.prepare(nameSentiment, engine.CompileOptions{}), 10, g.goldenWeight(nameSentiment))
	c := goldenConfig(t, nameSentiment)
	c.Training.BatchSize, c.Training.GradientAccumulationSteps = 2, 2
	r := armed(t, c, engine.CompileOptions{})
	g.weights(c, r)
	setF32(t, r, at(inputWeights, ""), 1, 1)
	setF32(t, r, engine.InputLR, 3e-3)
	setF32(t, r, engine.InputInvWeight, .25)
	for u := range want {
		loss := float32(0)
		for m := range 2 {
			from := 4*u + 2*m
			setI32(t, r, at(inputIDs, ""), g.i32("in.ids")[12*from:12*(from+2)]...)
			setI32(t, r, at(inputLens, ""), g.i32("in.lens")[from:from+2]...)
			setI32(t, r, at(inputLabel, ""), g.i32("in.label")[from:from+2]...)
			run(t, r, engine.FuncMicro)
			loss += result32(t, r, engine.FuncMicro, engine.OutputLoss)[0]
		}
		run(t, r, engine.FuncUpdate)
		if d := loss - want[u]; d > 1e-5 || d < -1e-5 {
			t.Errorf("update %d: loss %v in two parts, %v in one", u, loss, want[u])
		}
	}
}
