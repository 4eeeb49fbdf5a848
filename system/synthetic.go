package system

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train"
)

// Synthetic generates valid micro-batches for the program of a system, for measuring without data.
type Synthetic struct {
	// Variants lists the compiled shapes that micro-batches cycle through; nil means that the program has
	// only one.
	Variants []string
	// Fill writes one input of the program, and reports whether it knows that input. Inputs that belong
	// together agree by construction: the length of a text is [MadeLength] of its row.
	Fill func(rng *rand.Rand, name string, t engine.Tensor) (known bool)
	// Load sets the states that normally come from the data; nil if there are none.
	Load func(x *engine.Executable) error
}

// MadeLength returns how many tokens of a row of length are text in synthetic data: all, or up to a quarter
// less.
func MadeLength(row, length int) int { return length - row*5%(length/4+1) }

// FillIDs writes token ids below vocab other than pad, the padding id (-1 if there is none).
func FillIDs(rng *rand.Rand, ids []int32, vocab int, pad int32) {
	for i := range ids {
		if ids[i] = int32(rng.IntN(vocab)); ids[i] == pad {
			ids[i] = int32((int(pad) + 1) % vocab)
		}
	}
}

// PadIDs writes padding after the end of the text in each row of length tokens.
func PadIDs(ids []int32, length int, pad int32) {
	for i := range ids {
		if i%length >= MadeLength(i/length, length) {
			ids[i] = pad
		}
	}
}

// FillNormal writes values like those of normalized images, with mean 0 and deviation 1.
func FillNormal(rng *rand.Rand, x []float32) {
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
}

// ofEngine lists the inputs set by the trainer.
var ofEngine = []string{engine.InputInvWeight, engine.InputLR, engine.InputMicro, graph.RunCounter}

// weightsInput starts the names of the inputs with loss weights, and idsInput those of inputs with tokens.
const (
	weightsInput = "weights"
	idsInput     = "ids"
)

// madeBatch is a synthetic micro-batch.
type madeBatch struct {
	inputs []engine.Tensor
	weight float64
	units  int64
}

// madeLoader repeats one micro-batch of each shape, which takes almost no time.
type madeLoader struct {
	batches  map[string]*madeBatch
	variants []string
	micro    int
	done     int
}

// Loader makes a loader for a program, with micro micro-batches per update. It counts units in tokens, or
// else in rows.
func (s *Synthetic) Loader(p *engine.Program, micro int, unit string, seed uint64) (train.DataLoader, error) {
	l := &madeLoader{batches: map[string]*madeBatch{}, variants: s.Variants, micro: max(1, micro)}
	if l.variants == nil {
		l.variants = []string{""}
	}
	for _, v := range l.variants {
		if l.batches[v] != nil {
			continue
		}
		b, err := s.batch(p, v, unit, rand.New(rand.NewPCG(seed, 1)))
		if err != nil {
			return nil, err
		}
		l.batches[v] = b
	}
	return l, nil
}

// batch generates a micro-batch of a variant.
func (s *Synthetic) batch(p *engine.Program, variant, unit string, rng *rand.Rand) (*madeBatch, error) {
	i := slices.IndexFunc(p.Funcs, func(f *engine.Func) bool {
		return f.Name == engine.Variant(engine.FuncStep, variant) || f.Name == engine.Variant(engine.FuncMicro, variant)
	})
	if i < 0 {
		return nil, fmt.Errorf("the program has no shape %q to generate micro-batches for", variant)
	}
	b := &madeBatch{}
	for _, v := range p.Funcs[i].F.Inputs {
		if slices.Contains(ofEngine, v.Name) {
			continue
		}
		t := engine.Tensor{Name: v.Name, Type: v.Type, Data: make([]byte, v.Type.Bytes())}
		if !s.Fill(rng, v.Name, t) {
			return nil, fmt.Errorf("there is no rule to generate the input %q", v.Name)
		}
		b.inputs = append(b.inputs, t)
		name, _, _ := strings.Cut(v.Name, "@")
		switch name {
		case weightsInput:
			for _, w := range t.F32() {
				b.weight += float64(w)
			}
			if unit != "tokens" {
				b.units += int64(v.Type.Shape[0])
			}
		case idsInput:
			if unit == "tokens" {
				b.units += v.Type.Shape.Elems()
			}
		}
	}
	return b, nil
}

// Next implements [train.DataLoader].
func (l *madeLoader) Next() (train.Update, error) {
	u := train.Update{Micro: l.micro}
	micro := make([]*madeBatch, l.micro)
	for m := range micro {
		v := l.variants[(l.done+m)%len(l.variants)]
		b := l.batches[v]
		micro[m] = b
		u.Weight += b.weight
		u.Tokens += b.units
		if v != "" {
			u.Variants = append(u.Variants, v)
		}
	}
	l.done += l.micro
	u.Fill = func(m int, in train.Inputs) error {
		for _, t := range micro[m].inputs {
			dst, ok := in.Runner.Input(in.Slot, t.Name)
			if !ok || len(dst.Data) != len(t.Data) {
				return fmt.Errorf("the program has no input %q of %v", t.Name, t.Type)
			}
			copy(dst.Data, t.Data)
		}
		return nil
	}
	return u, nil
}

// Position implements [train.DataLoader].
func (l *madeLoader) Position() any { return l.done }

// Seek implements [train.DataLoader].
func (l *madeLoader) Seek(position json.RawMessage) error { return json.Unmarshal(position, &l.done) }

// Close implements [train.DataLoader].
func (l *madeLoader) Close() {}
