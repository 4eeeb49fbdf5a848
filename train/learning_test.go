package train

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// falls is a loss that goes from one value towards another, most of the way within the
// given number of updates.
func falls(from, to, updates float64) func(u float64) float64 {
	return func(u float64) float64 { return to + (from-to)*math.Exp(-3*u/updates) }
}

// A curve is the loss of each update, and what is expected of a watcher.
var curves = []struct {
	name    string
	updates int64
	loss    func(u float64) float64
	noise   float64
	goal    Metric
	floor   *Floor
	drifts  bool
	// evals are the values of the monitored metric, at equal distances up to the end.
	evals []float64
	// warnings during the run, and at its end; empty: nothing.
	told  []WarningKind
	ended WarningKind
}{
	{
		name: "real learning", updates: 1400, loss: falls(8.3, 4.4, 900), noise: 0.15,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{4.5},
	},
	{
		name: "a plateau at the frequencies", updates: 1400, loss: falls(8.3, 6.28, 100), noise: 0.15,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{6.29},
		told: []WarningKind{Unlearned}, ended: Unlearned,
	},
	{
		name: "a plateau above them", updates: 300, loss: falls(8.3, 7, 50), noise: 0.1,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{7.1},
		told: []WarningKind{Unlearned}, ended: Unlearned,
	},
	{
		name: "a plateau that is left late", updates: 2000, noise: 0.1,
		loss: func(u float64) float64 {
			if u < 900 {
				return falls(8.3, 6.3, 100)(u)
			}
			return falls(6.3, 3, 500)(u - 900)
		},
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{3.1},
		told: []WarningKind{Unlearned},
	},
	{
		name: "slow but real learning", updates: 400, loss: func(u float64) float64 { return 8.3 - 1.6*u/400 }, noise: 0.1,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{6.8},
	},
	{
		name: "a rate of nothing", updates: 300, loss: falls(8.3, 8.29, 300), noise: 0.1,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{8.3},
		told: []WarningKind{Unmoved}, ended: Unmoved,
	},
	{
		name: "a rate far too high, that the schedule lowers", updates: 400, noise: 0.5,
		loss: func(u float64) float64 {
			if u < 20 {
				return 8.3
			}
			return falls(40, 6.9, 300)(u - 20)
		},
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{7},
		ended: Unlearned,
	},
	{
		name: "a spike without recovery", updates: 1000, noise: 0.1,
		loss: func(u float64) float64 {
			if u < 500 {
				return falls(8, 4, 300)(u)
			}
			return falls(11, 6, 60)(u - 500)
		},
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{4.1, 4.1, 6, 6},
		told: []WarningKind{Lost}, ended: Lost,
	},
	{
		name: "a spike shortly before the end", updates: 1000, noise: 0.1,
		loss: func(u float64) float64 {
			if u < 850 {
				return falls(8, 4, 300)(u)
			}
			return 7
		},
		goal: Metric{Name: "eval_loss"}, ended: Lost,
	},
	{
		name: "a spike with recovery", updates: 1000, noise: 0.1,
		loss: func(u float64) float64 {
			if u < 500 {
				return falls(8, 4, 300)(u)
			}
			return falls(11, 3.9, 100)(u - 500)
		},
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{4.1, 3.9},
	},
	{
		name: "single bad batches", updates: 1000, noise: 0.1,
		loss: func(u float64) float64 {
			if math.Mod(u, 90) == 0 {
				return 15
			}
			return falls(8, 4, 300)(u)
		},
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{4.1},
	},
	{
		name: "noise about a good model", updates: 3000, loss: func(float64) float64 { return 2 }, noise: 0.4,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{2},
	},
	{
		name: "by heart", updates: 600, loss: falls(8, 0.2, 300), noise: 0.05,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{6.5, 6.9, 7.4},
		told: nil, ended: Memorized,
	},
	{
		name: "a score at chance", updates: 500, loss: falls(0.7, 0.69, 100), noise: 0.03,
		goal: Metric{Name: "f1", Higher: true}, floor: &Floor{"flag everything", 0.33}, evals: []float64{0.33, 0, 0.331, 0.33},
		told: []WarningKind{Unmoved}, ended: Unmoved,
	},
	{
		name: "a score by heart", updates: 500, loss: falls(0.7, 0.01, 150), noise: 0.01,
		goal: Metric{Name: "f1", Higher: true}, floor: &Floor{"flag everything", 0.33}, evals: []float64{0.2, 0.3, 0.31, 0.3},
		told: []WarningKind{Memorized}, ended: Memorized,
	},
	{
		name: "a score that was once good", updates: 500, loss: falls(0.7, 0.3, 300), noise: 0.03,
		goal: Metric{Name: "f1", Higher: true}, floor: &Floor{"flag everything", 0.33}, evals: []float64{0.2, 0.8, 0.31, 0.3},
	},
	{
		name: "an error that is no number", updates: 500, loss: falls(1, 0.9, 100), noise: 0.01,
		goal: Metric{Name: "rmse"}, floor: &Floor{"the mean", 0.5}, evals: []float64{0.5, math.NaN(), 0.51},
		told: []WarningKind{Unlearned}, ended: Unlearned,
	},
	{
		name: "a score whose model the first update destroys", updates: 160,
		loss: func(u float64) float64 {
			if u < 2 {
				return 0.69
			}
			return falls(60, 8, 20)(u)
		},
		noise: 0.1, goal: Metric{Name: "f1", Higher: true}, floor: &Floor{"flag everything", 0.45}, evals: []float64{0, 0.45, 0.45, 0.45},
		told: []WarningKind{Thrown}, ended: Thrown,
	},
	{
		name: "a loss that is another in the end", updates: 600, drifts: true, noise: 0.05,
		loss: func(u float64) float64 { return 1 + u/300 },
		goal: Metric{Name: "eval_loss"},
	},
	{
		name: "nothing to hold it against", updates: 300, loss: falls(8.3, 7, 50), noise: 0.1,
		goal: Metric{Name: "eval_loss"}, evals: []float64{7.1},
	},
	{
		name: "too few updates", updates: 60, loss: func(u float64) float64 { return 8 + u }, noise: 0.1,
		goal: Metric{Name: "eval_loss"}, floor: &Floor{"unigram", 6.3}, evals: []float64{60},
	},
}

// Every curve is judged correctly, whatever its noise and length, and stopping and
// resuming change no warning.
func TestLearning(t *testing.T) {
	for _, c := range curves {
		for _, times := range []int64{1, 7} {
			if c.updates < leastUpdates && times > 1 {
				continue
			}
			for seed := range uint64(8) {
				told, end := watchCurve(t, c.updates*times, times, seed, c.loss, c.noise, c.evals, &Learning{Monitor: c.goal, Floor: c.floor, Drifts: c.drifts, From: c.updates * times / 5})
				if !slices.Equal(told, c.told) {
					t.Errorf("%s, %d times, seed %d: told %v, want %v", c.name, times, seed, told, c.told)
				}
				kind := WarningKind("")
				if end != nil {
					kind = end.Kind
				}
				if kind != c.ended {
					t.Errorf("%s, %d times, seed %d: ended with %v, want %q", c.name, times, seed, end, c.ended)
				}
			}
		}
	}
}

// watchCurve runs a curve, stretched by times, through a Learning that is resumed
// from its state now and then.
func watchCurve(t *testing.T, updates, times int64, seed uint64, loss func(float64) float64, noise float64, evals []float64, l *Learning) (told []WarningKind, end *Warning) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, seed))
	for u := int64(1); u <= updates; u++ {
		if u%97 == 0 {
			raw, err := json.Marshal(l.memory)
			if err != nil {
				t.Fatal(err)
			}
			l.memory = learned{}
			if err := json.Unmarshal(raw, &l.memory); err != nil {
				t.Fatal(err)
			}
		}
		ask := l.Loss(u, loss(float64(u/times))+noise*rng.NormFloat64())
		for i, v := range evals {
			if u == int64(i+1)*updates/int64(len(evals)) {
				l.Evaluated(v)
			}
		}
		if !ask || u == updates {
			continue
		}
		if x := l.Running(u); x != nil {
			told = append(told, x.Kind)
		}
	}
	end, first := l.End(updates)
	if again, second := l.End(updates); !first || second || (again == nil) != (end == nil) {
		t.Errorf("asked again, the end is %v (first: %v), was %v (first: %v)", again, second, end, first)
	}
	return told, end
}

// The parts of a curve have the moments of all losses, however often they are
// joined.
func TestParts(t *testing.T) {
	var l Learning
	rng := rand.New(rand.NewPCG(2, 3))
	n, sum, squares := 3217.0, 0.0, 0.0
	for u := range int64(n) {
		x := 5 + rng.NormFloat64()
		sum, squares = sum+x, squares+x*x
		l.Loss(u+1, x)
		l.Loss(u+1, math.NaN())
	}
	count, mean := 0.0, 0.0
	for i, p := range l.memory.Parts {
		count, mean = count+float64(p.N), mean+p.Mean*float64(p.N)
		if want := 1 + int64(i)*l.memory.Each; p.First != want {
			t.Errorf("part %d begins at %d, want %d", i, p.First, want)
		}
	}
	mean /= count
	within := 0.0
	for _, p := range l.memory.Parts {
		within += p.M2 + float64(p.N)*(p.Mean-mean)*(p.Mean-mean)
	}
	if count != n || math.Abs(mean-sum/n) > 1e-9 || math.Abs(within-(squares-sum*sum/n)) > 1e-6 {
		t.Errorf("%v losses, mean %v, squares %v; want %v, %v, %v", count, mean, within, n, sum/n, squares-sum*sum/n)
	}
	if len(l.memory.Parts) > mostParts {
		t.Errorf("%d parts are kept", len(l.memory.Parts))
	}
}
