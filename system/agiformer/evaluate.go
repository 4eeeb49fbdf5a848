package agiformer

import (
	"context"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// heldOut is data to evaluate on.
type heldOut interface {
	// pass returns micro-batches of rows, at most limit of them (0: all).
	pass(rows, limit int, read reader) train.Batches[tally]
	// perByte returns the number of labels per byte of text.
	perByte() float64
}

// reader returns the tally of a micro-batch with these labels.
type reader func(labels []int32, weights []float32, out train.Outputs) (tally, error)

// tally sums the program's outputs over tokens.
type tally struct {
	Weight, Loss  float64
	Characters    float64 // number of characters that the counted tokens spell, if tokens are bytes
	Wanted, Taken []float64
	Entropy       []float64
	Gates         []float64 // the last one is the strength of the writes, summed over batches
	// These slices have a value for each counted token, if the model has heads.
	Losses, Errors, Confidence []float64
	Right                      []bool
}

// totals is the result of an evaluation.
type totals struct {
	tally
	net                          Net
	batches                      float64
	perByte                      float64 // tokens per byte of text
	hasHeads, hasExperts, memory bool
}

// evaluation measures a program on held-out text, in at most limit micro-batches of rows (0: all).
func (m Net) evaluation(text heldOut, rows, limit int) *train.Evaluation[tally] {
	return &train.Evaluation[tally]{
		Batches: text.pass(rows, limit, m.read),
		Metrics: func(_ *engine.Executable, parts []tally) (map[string]float64, error) {
			return m.total(text, parts).metrics(), nil
		},
	}
}

// total sums up micro-batches.
func (m Net) total(text heldOut, parts []tally) *totals {
	f := &totals{net: m, perByte: text.perByte(), batches: float64(len(parts))}
	tokens := 0
	for i := range parts {
		tokens += len(parts[i].Losses)
	}
	f.reserve(tokens)
	for i := range parts {
		f.add(&parts[i])
	}
	f.hasExperts, f.memory, f.hasHeads = f.Wanted != nil, f.Gates != nil, f.Losses != nil
	return f
}

// measure runs an evaluation over the first limit micro-batches of text.
func (m Net) measure(ctx context.Context, x *engine.Executable, text heldOut, rows, limit int) (*totals, error) {
	found, err := m.evaluation(text, rows, limit).Records(ctx, x, 0, train.Part{})
	if err != nil {
		return nil, err
	}
	return m.total(text, found.List()), nil
}

// windows adapts packed text to evaluations.
type windows struct{ *data.Windows }

func (w windows) perByte() float64 { return w.Weight() / float64(w.Corpus().Bytes()) }

func (w windows) pass(rows, limit int, read reader) train.Batches[tally] {
	return corpus.Pass(w.Windows, data.LoaderOptions{BatchSize: rows}, limit, func(_ int, u *data.Update) train.EvalBatch[tally] {
		b := &u.Micro[0]
		return train.EvalBatch[tally]{
			Fill: func(in train.Inputs) error { return corpus.Fill(b, in) },
			Read: func(out train.Outputs) (tally, error) { return read(b.Labels, b.Weights, out) },
		}
	})
}

// read returns the tally of the program's output for a micro-batch.
func (m Net) read(labels []int32, weights []float32, out train.Outputs) (t tally, err error) {
	if t.Loss, err = out.Sum(); err != nil {
		return t, err
	}
	// The result is nil for an output that the model does not have.
	get := func(name string) (x []float32) {
		if err == nil && out.Has(name) {
			x, err = out.F32(name)
		}
		return x
	}
	t.Wanted, t.Taken, t.Entropy, t.Gates = float64s(get(outWanted)), float64s(get(outTaken)), float64s(get(outEntropy)), float64s(get(outGates))
	losses, estimates, confidence, right := get(outLosses), get(outErrors), get(outConf), get(outRight)
	if err != nil {
		return t, err
	}
	if losses != nil {
		counted := 0
		for _, w := range weights {
			if w != 0 {
				counted++
			}
		}
		t.reserve(counted)
	}
	for i, w := range weights {
		if w == 0 {
			continue
		}
		t.Weight += float64(w)
		// Every byte that is not a continuation byte starts a character.
		if m.Vocab == byteVocabulary && labels[i] < 256 && labels[i]&0xC0 != 0x80 {
			t.Characters++
		}
		if losses != nil {
			t.Losses, t.Errors = append(t.Losses, float64(losses[i])), append(t.Errors, float64(estimates[i]))
			t.Confidence, t.Right = append(t.Confidence, float64(confidence[i])), append(t.Right, right[i] != 0)
		}
	}
	return t, nil
}

// reserve allocates space for n tokens in advance, because there are hundreds of thousands.
func (t *tally) reserve(n int) {
	if n > 0 {
		t.Losses, t.Errors = make([]float64, 0, n), make([]float64, 0, n)
		t.Confidence, t.Right = make([]float64, 0, n), make([]bool, 0, n)
	}
}

func float64s(x []float32) (y []float64) {
	for _, v := range x {
		y = append(y, float64(v))
	}
	return y
}

// add adds a micro-batch.
func (t *tally) add(b *tally) {
	t.Weight, t.Loss, t.Characters = t.Weight+b.Weight, t.Loss+b.Loss, t.Characters+b.Characters
	for _, s := range []struct {
		to *[]float64
		by []float64
	}{{&t.Wanted, b.Wanted}, {&t.Taken, b.Taken}, {&t.Entropy, b.Entropy}, {&t.Gates, b.Gates}} {
		if *s.to == nil && s.by != nil {
			*s.to = make([]float64, len(s.by))
		}
		for i, v := range s.by {
			(*s.to)[i] += v
		}
	}
	t.Losses, t.Errors = append(t.Losses, b.Losses...), append(t.Errors, b.Errors...)
	t.Confidence, t.Right = append(t.Confidence, b.Confidence...), append(t.Right, b.Right...)
}

// bins is the number of bins of the reliability curve.
const bins = 10

// metrics returns the metrics of an evaluation.
func (f *totals) metrics() map[string]float64 {
	loss := f.Loss / f.Weight
	m := map[string]float64{
		"eval_loss": loss, "perplexity": math.Exp(loss), "bits_per_byte": loss / math.Ln2 * f.perByte,
	}
	if f.Characters > 0 {
		m["bits_per_character"] = f.Loss / math.Ln2 / f.Characters
	}
	if f.hasExperts {
		f.expertMetrics(m)
	}
	if f.memory {
		for i, name := range []string{"gate_working", "gate_bank", "gate_written"} {
			m[name] = f.Gates[i] / f.Weight
		}
		m["gate_write"] = f.Gates[3] / f.batches
	}
	if f.hasHeads {
		hits := 0
		outcome := make([]float64, len(f.Right))
		for i, ok := range f.Right {
			if ok {
				hits++
				outcome[i] = 1
			}
		}
		m["accuracy"] = float64(hits) / float64(max(1, len(f.Right)))
		m["confidence"] = mean(f.Confidence)
		m["confidence_ece"] = metric.ECE(metric.Reliability(f.Confidence, f.Right, bins))
		m["confidence_brier"] = metric.Brier(f.Confidence, f.Right)
		m["confidence_correlation"] = correlation(f.Confidence, outcome)
		m["error_estimate"] = mean(f.Errors)
		m["error_correlation"] = correlation(f.Errors, f.Losses)
	}
	return m
}

// expertMetrics sums counts by kind of expert over all layers.
func (f *totals) expertMetrics(m map[string]float64) {
	kinds := f.net.Experts.Kinds
	var wanted, taken, busiest float64
	for l := range f.Entropy {
		layer, most := 0.0, 0.0
		for e, k := range kinds {
			n := f.Wanted[l*len(kinds)+e]
			wanted, taken = wanted+n, taken+f.Taken[l*len(kinds)+e]
			m["tokens_"+string(k)] += f.Taken[l*len(kinds)+e]
			layer, most = layer+n, max(most, n)
		}
		busiest = max(busiest, most*float64(len(kinds))/layer)
	}
	m["dropped_tokens"] = wanted - taken
	m["dropped_share"] = (wanted - taken) / wanted
	m["busiest_expert"] = busiest // relative to the mean load, in the worst layer
	total := 0.0
	for _, h := range f.Entropy {
		total += h
	}
	m["router_entropy"] = total / f.Weight / float64(len(f.Entropy))
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}

// correlation returns Pearson's correlation, or 0 if x or y does not vary.
func correlation(x, y []float64) float64 {
	mx, my := mean(x), mean(y)
	var xy, xx, yy float64
	for i := range x {
		dx, dy := x[i]-mx, y[i]-my
		xy, xx, yy = xy+dx*dy, xx+dx*dx, yy+dy*dy
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}
