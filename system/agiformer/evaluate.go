package agiformer

import (
	"context"
	"errors"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// heldOut is what an evaluation runs on.
type heldOut interface {
	// batches calls each with micro-batches of rows, at most limit (0: all).
	batches(ctx context.Context, rows, limit int, each func(b batch) error) error
	// perByte is how many labels a byte of text has.
	perByte() float64
}

// batch is a micro-batch: what it counts, and how it comes into the program.
type batch struct {
	labels  []int32
	weights []float32
	fill    func(in train.Inputs) error
}

// evaluation measures a program on held-out text.
type evaluation struct {
	net  Net
	text heldOut
	rows int // of a micro-batch
}

// findings are what an evaluation found, summed over its tokens.
type findings struct {
	net                Net
	weight, loss       float64
	characters         float64 // that the tokens counted spell, where tokens are bytes
	perByte            float64 // tokens of a byte of text
	wanted, taken      []float64
	entropy            []float64
	gates              []float64 // strength of the writes last, summed over batches
	batches            float64
	losses, errors     []float64 // of each token counted
	confidence         []float64
	right              []bool
	bytes, hasHeads    bool
	hasExperts, memory bool
}

// measure runs at most limit micro-batches (0: all) through the slot.
func (e *evaluation) measure(ctx context.Context, r *engine.Executable, slot, limit int) (*findings, error) {
	f := &findings{net: e.net, bytes: e.net.Vocab == byteVocabulary, perByte: e.text.perByte()}
	return f, e.text.batches(ctx, e.rows, limit, func(b batch) error {
		if err := b.fill(train.Inputs{Runner: r, Slot: slot}); err != nil {
			return err
		}
		if err := r.Run(engine.FuncEval, slot); err != nil {
			return err
		}
		return f.add(r, b)
	})
}

// windows are packed text as an evaluation wants it.
type windows struct{ *data.Windows }

func (w windows) perByte() float64 { return w.Weight() / float64(w.Corpus().Bytes()) }

func (w windows) batches(ctx context.Context, rows, limit int, each func(b batch) error) error {
	l, err := data.NewLoader(w.Windows, data.LoaderOptions{MicroBatches: 1, BatchSize: rows, Shuffle: limit > 0, Seed: 1, Epochs: 1})
	if err != nil {
		return err
	}
	for u, err := range data.Pass(ctx, l, limit) {
		if err != nil {
			return err
		}
		b := &u.Micro[0]
		err = each(batch{labels: b.Labels, weights: b.Weights, fill: func(in train.Inputs) error { return corpus.Fill(b, in) }})
		if err != nil {
			return err
		}
	}
	return nil
}

// add reads what the program said of a batch.
func (f *findings) add(r *engine.Executable, b batch) error {
	var failed error
	read := func(name string) []float32 {
		if r.Program().Func(engine.FuncEval).F.Output(name) == nil {
			return nil
		}
		x, err := r.OutputF32(engine.FuncEval, name)
		failed = errors.Join(failed, err)
		return x
	}
	sum := func(to *[]float64, name string) bool {
		x := read(name)
		if *to == nil {
			*to = make([]float64, len(x))
		}
		for i, v := range x {
			(*to)[i] += float64(v)
		}
		return x != nil
	}
	loss := read(engine.OutputSum)
	f.hasExperts = sum(&f.wanted, outWanted)
	sum(&f.taken, outTaken)
	sum(&f.entropy, outEntropy)
	f.memory = sum(&f.gates, outGates)
	losses, estimates, confidence, right := read(outLosses), read(outErrors), read(outConf), read(outRight)
	if failed != nil {
		return failed
	}
	f.loss += float64(loss[0])
	f.batches++
	f.hasHeads = losses != nil
	for i, w := range b.weights {
		if w == 0 {
			continue
		}
		f.weight += float64(w)
		// A character begins with every byte that does not continue one.
		if f.bytes && b.labels[i] < 256 && b.labels[i]&0xC0 != 0x80 {
			f.characters++
		}
		if f.hasHeads {
			f.losses, f.errors = append(f.losses, float64(losses[i])), append(f.errors, float64(estimates[i]))
			f.confidence, f.right = append(f.confidence, float64(confidence[i])), append(f.right, right[i] != 0)
		}
	}
	return nil
}

// bins is in how many the reliability curve is drawn.
const bins = 10

// metrics sums the findings up.
func (f *findings) metrics() map[string]float64 {
	loss := f.loss / f.weight
	m := map[string]float64{
		"eval_loss": loss, "perplexity": math.Exp(loss), "bits_per_byte": loss / math.Ln2 * f.perByte,
	}
	if f.characters > 0 {
		m["bits_per_character"] = f.loss / math.Ln2 / f.characters
	}
	if f.hasExperts {
		f.expertMetrics(m)
	}
	if f.memory {
		for i, name := range []string{"gate_working", "gate_bank", "gate_written"} {
			m[name] = f.gates[i] / f.weight
		}
		m["gate_write"] = f.gates[3] / f.batches
	}
	if f.hasHeads {
		hits := 0
		outcome := make([]float64, len(f.right))
		for i, ok := range f.right {
			if ok {
				hits++
				outcome[i] = 1
			}
		}
		m["accuracy"] = float64(hits) / float64(max(1, len(f.right)))
		m["confidence"] = mean(f.confidence)
		m["confidence_ece"] = metric.ECE(metric.Reliability(f.confidence, f.right, bins))
		m["confidence_brier"] = metric.Brier(f.confidence, f.right)
		m["confidence_correlation"] = correlation(f.confidence, outcome)
		m["error_estimate"] = mean(f.errors)
		m["error_correlation"] = correlation(f.errors, f.losses)
	}
	return m
}

// expertMetrics adds counts by kind of expert over all layers.
func (f *findings) expertMetrics(m map[string]float64) {
	kinds := f.net.Experts.Kinds
	var wanted, taken, busiest float64
	for l := range f.entropy {
		layer, most := 0.0, 0.0
		for e, k := range kinds {
			n := f.wanted[l*len(kinds)+e]
			wanted, taken = wanted+n, taken+f.taken[l*len(kinds)+e]
			m["tokens_"+string(k)] += f.taken[l*len(kinds)+e]
			layer, most = layer+n, max(most, n)
		}
		busiest = max(busiest, most*float64(len(kinds))/layer)
	}
	m["dropped_tokens"] = wanted - taken
	m["dropped_share"] = (wanted - taken) / wanted
	m["busiest_expert"] = busiest // times the mean load, in the worst layer
	total := 0.0
	for _, h := range f.entropy {
		total += h
	}
	m["router_entropy"] = total / f.weight / float64(len(f.entropy))
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(max(1, len(x)))
}

// correlation is Pearson's; 0 where one of both does not vary.
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
