package pass_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// randomModel draws a model: chains of elementwise functions with broadcasts, matmuls,
// attention, norms with running statistics, reductions, views, slices, dropout, values
// with many readers, states that are written along the way, in blocks. The same seed and
// size give the same model, however often it is built.
type randomModel struct {
	seed  uint64
	size  int // operations
	clip  float64
	train bool
	// gradients is [engine.Optimizer.Gradients].
	gradients graph.DType

	b       *graph.Builder
	rng     *rand.Rand
	pool    []*graph.Value // values to continue from
	buffers []*graph.Value // current versions of states
	names   int
}

const (
	modelB, modelT = 2, 5
	modelVocab     = 23
)

var modelWidths = []int{6, 16, 19}

// training is the training step of the model.
func (m randomModel) training(accumulation int) engine.Training {
	return engine.Training{
		Accumulation: accumulation,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: m.clip, Gradients: m.gradients},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			m := m
			m.train = mode.Train
			return m.build(b)
		},
	}
}

// forward is the model without its gradients.
func (m randomModel) forward() *graph.Func {
	b := graph.NewBuilder("forward")
	m.train = true
	o := m.build(b)
	b.Output("sum", o.Sum)
	b.F.Outputs = append(b.F.Outputs, o.Outputs...)
	return b.F
}

func (m randomModel) build(b *graph.Builder) engine.Objective {
	m.b, m.rng = b, rand.New(rand.NewPCG(m.seed, 1))
	table := m.param(modelVocab, modelWidths[0])
	ids := b.Input("ids", graph.T(graph.I32, modelB, modelT))
	m.pool = append(m.pool, b.Embedding(table, ids), b.Input("x", graph.T(graph.F32, modelB, modelT, modelWidths[1])))
	for i := range 2 {
		m.buffers = append(m.buffers, b.State(&graph.State{Name: fmt.Sprint("buffer", i),
			Type: graph.T(graph.F32, modelWidths[i]), Role: graph.Buffer, Init: graph.Const(.5)}))
	}
	for i := 0; i < m.size; {
		if m.rng.IntN(3) > 0 {
			m.step()
			i++
			continue
		}
		b.Block(fmt.Sprint(i), func() {
			for range 1 + m.rng.IntN(6) {
				m.step()
				i++
			}
		})
	}
	// The loss reads the last values, one of them against the embedding's own table.
	n := modelB * modelT
	h := b.Reshape(m.width(m.pool[len(m.pool)-1], modelWidths[0]), n, modelWidths[0])
	w := table
	if m.rng.IntN(2) == 0 {
		w = m.param(modelVocab, modelWidths[0])
	}
	loss := b.LinearCrossEntropy(h, w, b.Reshape(ids, n), b.Input("weights", graph.T(graph.F32, n)), 4)
	for _, v := range m.pool[max(0, len(m.pool)-3):] {
		loss = b.Add(loss, b.Mean(b.Square(v)))
	}
	o := engine.Objective{Sum: loss}
	for i, v := range m.buffers {
		o.Outputs = append(o.Outputs, graph.Output{Name: fmt.Sprint("buffer", i), Value: b.MulC(v, 1.5)})
	}
	o.Outputs = append(o.Outputs, graph.Output{Name: "last", Value: b.AddC(m.pool[len(m.pool)-1], 1)})
	return o
}

func (m *randomModel) param(dims ...int) *graph.Value {
	m.names++
	return m.b.Param(fmt.Sprint("w", m.names), graph.Normal(.4), dims...)
}

func (m *randomModel) pick() *graph.Value {
	// Recent values more often, so that chains form.
	i := len(m.pool) - 1 - min(m.rng.IntN(len(m.pool)), m.rng.IntN(len(m.pool)))
	return m.pool[i]
}

// like is a value of the shape of v that can be combined with it.
func (m *randomModel) like(v *graph.Value) *graph.Value {
	var same []*graph.Value
	for _, w := range m.pool {
		if w.Shape().Elems() == v.Shape().Elems() {
			same = append(same, w)
		}
	}
	return m.b.Reshape(same[m.rng.IntN(len(same))], v.Shape()...)
}

// width brings v, whose rows count B*T, to width d.
func (m *randomModel) width(v *graph.Value, d int) *graph.Value {
	if v.Shape().Last() == d {
		return v
	}
	return m.b.Linear(v, m.param(d, v.Shape().Last()), nil)
}

// step adds an operation on a value [B, T, D] or [B*T, D].
func (m *randomModel) step() {
	b, x := m.b, m.pick()
	s := x.Shape()
	d := s.Last()
	y := x
	switch m.rng.IntN(22) {
	case 0, 1:
		fns := []graph.Fn{graph.FnTanh, graph.FnGELU, graph.FnSigmoid, graph.FnRelu, graph.FnSiLU, graph.FnSin, graph.FnAbs, graph.FnGELUTanh}
		y = b.Apply(fns[m.rng.IntN(len(fns))], x)
	case 2:
		y = b.MulC(b.Add(x, m.like(x)), .7)
	case 3:
		y = b.Tanh(b.Mul(x, m.like(x)))
	case 4:
		y = b.Sub(m.like(x), b.AddC(x, .25))
	case 5:
		y = b.Add(x, m.param(d))
	case 6:
		y = b.Mul(b.BroadcastTo(m.param(d), s...), x)
	case 7:
		y = b.Sub(x, b.MeanKeep(x, -1))
	case 8, 9, 10:
		var bias *graph.Value
		if m.rng.IntN(2) == 0 {
			bias = m.param(modelWidths[m.rng.IntN(len(modelWidths))])
			d = bias.Shape()[0]
		}
		y = b.Linear(x, m.param(d, s.Last()), bias)
	case 11:
		y = b.LayerNorm(x, m.param(d), m.param(d), 1e-3)
		if m.rng.IntN(2) == 0 {
			y = b.Add(y, x)
		}
	case 12:
		y = b.RMSNorm(x, m.param(d), 1e-3)
	case 13:
		y = b.Softmax(x)
	case 14:
		if m.train {
			y = b.Dropout(x, .3, 77)
		}
	case 15:
		shapes := []graph.Shape{{modelB, modelT, d}, {modelB * modelT, d}, {modelT, modelB, d}}
		y = b.Reshape(x, shapes[m.rng.IntN(len(shapes))]...)
	case 16:
		half := d / 2
		y = b.Concat(len(s)-1, b.Slice(x, len(s)-1, half, d-half), b.Slice(b.Tanh(x), len(s)-1, 0, half))
	case 17:
		m.write(x)
		return
	case 18:
		q := b.Reshape(x, modelB, modelT, d)
		op := graph.Attention{Heads: 1, Causal: true, Scale: .5}
		if m.train {
			op.Drop, op.Seed, op.Stream = .2, 77, b.Stream()
			y = b.Attention(op, q, b.Tanh(q), q, b.Input(graph.RunCounter, graph.T(graph.I32, 2)))
		} else {
			y = b.Attention(op, q, b.Tanh(q), q)
		}
		if m.rng.IntN(2) == 0 {
			y = b.Add(q, y)
		}
	case 19:
		y = m.batchNorm(x)
	case 20:
		y = m.parts(x)
	case 21:
		y = m.maxima(x)
	}
	m.pool = append(m.pool, y)
}

func (m *randomModel) batchNorm(x *graph.Value) *graph.Value {
	m.names++
	d := x.Shape().Last()
	stat := func(name string) *graph.Value {
		return m.b.State(&graph.State{Name: fmt.Sprint(name, m.names), Type: graph.T(graph.F32, d), Role: graph.Buffer})
	}
	return m.b.BatchNorm(x, m.param(d), m.param(d), stat("mean"), stat("var"), .1, 1e-3)
}

// maxima computes something of x as images, and adds the maxima of its rows by twos.
func (m *randomModel) maxima(x *graph.Value) *graph.Value {
	b, d := m.b, x.Shape().Last()
	images := b.Reshape(x, modelB*modelT/2, 1, 2, d)
	y := images
	if m.rng.IntN(2) == 0 {
		y = m.batchNorm(y)
	}
	if m.rng.IntN(2) == 0 {
		y = b.LeakyRelu(y, .1)
	}
	if m.rng.IntN(2) == 0 { // another scale for each image, as FiLM has
		scale := b.Slice(b.Reshape(x, modelB*modelT/2, 2, d), 1, 0, 1)
		y = b.Reshape(b.Mul(b.Reshape(y, modelB*modelT/2, 2, d), scale), images.Shape()...)
	}
	most := b.Emit(graph.Pool2D{Kernel: [2]int{1, 2}, Stride: [2]int{1, 2}}, y)[0]
	return b.Reshape(b.Add(images, most), x.Shape()...)
}

// parts computes something else of each part of the rows of x, as adapters of several tasks do; it may leave one
// out, and read one twice.
func (m *randomModel) parts(x *graph.Value) *graph.Value {
	b, d := m.b, x.Shape().Last()
	rows := b.Reshape(x, modelB*modelT, d)
	var out []*graph.Value
	for from := 0; from < modelB*modelT; from += 4 { // 4 rows of 16 elements are aligned
		n := min(4, modelB*modelT-from)
		switch part := b.Slice(rows, 0, from, n); m.rng.IntN(4) {
		case 0:
			out = append(out, b.BroadcastTo(b.Scalar(.5), n, d))
		case 1:
			out = append(out, b.Mul(part, b.Tanh(b.Slice(rows, 0, from, n))))
		default:
			out = append(out, b.Linear(part, m.param(d, d), nil))
		}
	}
	y := b.Concat(0, out...)
	if m.rng.IntN(2) == 0 {
		y = b.Add(b.Linear(rows, m.param(d, d), nil), y)
	}
	return b.Reshape(y, x.Shape()...)
}

// write changes a state by the rows of x and continues with its next version.
func (m *randomModel) write(x *graph.Value) {
	b := m.b
	i := m.rng.IntN(len(m.buffers))
	old := m.buffers[i]
	rows := b.Reshape(m.width(x, old.Shape()[0]), -1, old.Shape()[0])
	mean := b.Tanh(b.Mean(rows, 0))
	read := b.Add(rows, old) // of the old version
	if m.rng.IntN(2) == 0 {
		m.buffers[i] = b.Accumulate(old, mean)
	} else {
		m.buffers[i] = b.Assign(old, b.Add(b.MulC(old, .9), mean))
	}
	m.pool = append(m.pool, read)
	// A sum, whose gradient does not need the version again.
	if m.rng.IntN(2) == 0 {
		m.pool = append(m.pool, b.Sub(rows, m.buffers[i]))
	}
}

// run is what a program computes in two updates: every output and every state.
type run struct {
	names []string
	data  map[string][]byte
	temps int64
}

// execute runs the functions named, twice, on inputs that depend on nothing
// but their names.
func execute(p *engine.Program, fns ...string) (*run, error) {
	return executeOn(backend.CPU(1), p, fns...)
}

func executeOn(b engine.Backend, p *engine.Program, fns ...string) (*run, error) {
	r, err := p.Load(b)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := r.Initialize(3); err != nil {
		return nil, err
	}
	res := &run{data: map[string][]byte{}, temps: p.Layout.Temps.Bytes}
	keep := func(name string, x []byte) {
		res.names = append(res.names, name)
		res.data[name] = slices.Clone(x)
	}
	for round := range 2 {
		for _, v := range p.Inputs {
			t, _ := r.Input(0, v.Name)
			rng := rand.New(rand.NewPCG(uint64(len(v.Name))<<8+uint64(v.Name[0]), uint64(round)))
			if v.Type.DType == graph.I32 {
				for i := range t.I32() {
					t.I32()[i] = int32(rng.IntN(modelVocab))
				}
				continue
			}
			for i := range t.F32() {
				t.F32()[i] = rng.Float32() - .3
			}
		}
		for _, fn := range fns {
			if err := r.Run(fn, 0); err != nil {
				return nil, err
			}
			for _, o := range p.Func(fn).F.Outputs {
				t, _ := r.Output(fn, o.Name)
				keep(fmt.Sprintf("update %d: %s/%s", round, fn, o.Name), t.Data)
			}
		}
	}
	for _, s := range p.States {
		if s.Role == graph.Rounded {
			continue // only some programs have it
		}
		t, _ := r.State(s.Name)
		keep("state "+s.Name, t.Data)
	}
	if used := r.ArenaUsed(); used != p.Layout.Bytes {
		return nil, fmt.Errorf("the plan says %d bytes of arena, kernels were given %d", p.Layout.Bytes, used)
	}
	return res, nil
}
