package cpu

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// selectiveScan works on vectors of channels: a task handles a strip of channels of one
// row of the batch, all its states and all its steps. States are [S,strip].
type selectiveScan struct {
	batch, steps, ch, states, chunk int
	u, dt, a, b, c, d               ref
	strip                           int // channels of each task
}

// scanStrip is how many channels a task handles: its states and those of a chunk of steps
// stay in the caches.
const scanStrip = 128

func (c *compiler) newScan(in []*graph.Value, chunk int) *selectiveScan {
	s := in[0].Shape()
	k := &selectiveScan{
		batch: s[0], steps: s[1], ch: s[2], states: in[2].Shape()[1], chunk: min(chunk, s[1]),
		u: c.ref(in[0]), dt: c.ref(in[1]), a: c.ref(in[2]), b: c.ref(in[3]), c: c.ref(in[4]), d: c.ref(in[5]),
	}
	k.strip = min(k.ch, scanStrip)
	c.need(k.states*k.ch*4, 0)
	return k
}

func (k *selectiveScan) strips() int { return (k.ch + k.strip - 1) / k.strip }

// turn transposes A [D,S] to [S,D], at the beginning of the shared workspace.
func (k *selectiveScan) turn(code *Code) phase {
	return phase{1, func(_, _ int) {
		simd.Transpose(floats(code.m.shared, 0, k.states*k.ch), k.ch, k.a.f32(), k.states, k.ch, k.states)
	}}
}

// lane is one strip of channels of one row of the batch.
type lane struct {
	*selectiveScan
	row, first, n int
	turned        []float32 // A [S,D]
}

func (k *selectiveScan) lane(task int, code *Code) lane {
	l := lane{selectiveScan: k, row: task / k.strips(), first: task % k.strips() * k.strip}
	l.n = min(k.strip, k.ch-l.first)
	l.turned = floats(code.m.shared, 0, k.states*k.ch)
	return l
}

// in returns the strip of step t of a tensor [B,T,D].
func (l *lane) in(x ref, t int) []float32 {
	at := (l.row*l.steps+t)*l.ch + l.first
	return x.f32()[at : at+l.n]
}

// mix returns step t of B or C.
func (l *lane) mix(x ref, t int) []float32 {
	at := (l.row*l.steps + t) * l.states
	return x.f32()[at : at+l.states]
}

// rate returns the strip of A for state s.
func (l *lane) rate(s int) []float32 { return l.turned[s*l.ch+l.first : s*l.ch+l.first+l.n] }

// keep returns where the states before a chunk are kept.
func (l *lane) keep(kept ref, chunk, s int) []float32 {
	chunks := (l.steps + l.chunk - 1) / l.chunk
	at := ((l.row*chunks+chunk)*l.states+s)*l.ch + l.first
	return kept.f32()[at : at+l.n]
}

// step advances the states h [S,n] by step t, into next. It leaves the decays exp(dt*A)
// and the input dt*u.
func (l *lane) step(t int, h, next, decay, input []float32) {
	dt := l.in(l.dt, t)
	simd.Mul(input, dt, l.in(l.u, t))
	for s := range l.states {
		simd.Mul(decay[s*l.n:(s+1)*l.n], dt, l.rate(s))
	}
	simd.Exp(decay, decay)
	simd.Mul(next, decay, h)
	for s, b := range l.mix(l.b, t) {
		simd.Axpy(next[s*l.n:(s+1)*l.n], input, b)
	}
}

func (c *compiler) selectiveScan(n *graph.Node, op graph.SelectiveScan) ([]phase, error) {
	k := c.newScan(n.In, op.Chunk)
	y, kept, code := c.ref(n.Out[0]), c.ref(n.Out[1]), c.code
	size := k.states * k.strip
	c.need(0, (2*size+k.strip)*4)
	return []phase{k.turn(code), {k.batch * k.strips(), func(task, w int) {
		l := k.lane(task, code)
		mem := floats(code.worker(w), 0, 2*size+k.strip)
		h, decay, input := mem[:l.states*l.n], mem[size:size+l.states*l.n], mem[2*size:2*size+l.n]
		clear(h)
		for t := range l.steps {
			if t%l.chunk == 0 {
				for s := range l.states {
					copy(l.keep(kept, t/l.chunk, s), h[s*l.n:])
				}
			}
			l.step(t, h, h, decay, input)
			out := l.in(y, t)
			simd.Mul(out, l.in(l.u, t), l.d.f32()[l.first:l.first+l.n])
			for s, v := range l.mix(l.c, t) {
				simd.Axpy(out, h[s*l.n:(s+1)*l.n], v)
			}
		}
	}}}, nil
}

// selectiveScanGrad goes back in time chunk by chunk: it recomputes the states of a
// chunk and carries dh, their gradient. The contributions of each strip of channels
// to B and C, and of each row of the batch to A and D, are added in order.
func (c *compiler) selectiveScanGrad(n *graph.Node, op graph.SelectiveScanGrad) ([]phase, error) {
	g := &scanGrad{selectiveScan: c.newScan(n.In[2:], op.Chunk), dy: c.ref(n.In[0]), kept: c.ref(n.In[1]), out: c.refs(n.Out)}
	k := g.selectiveScan
	mix := k.batch * k.steps * k.states
	g.partA = k.states * k.ch * 4
	g.partD = g.partA + k.batch*k.states*k.ch*4
	g.partB = g.partD + k.batch*k.ch*4
	g.partC = g.partB + k.strips()*mix*4
	size := k.states * k.strip
	c.need(g.partC+k.strips()*mix*4, ((2*k.chunk+1)*size+2*size+(k.chunk+1)*k.strip)*4)
	code := c.code
	sum := func(out []float32, part func(i int) []float32, n int) {
		copy(out, part(0))
		for i := 1; i < n; i++ {
			simd.Add(out, out, part(i))
		}
	}
	return []phase{k.turn(code), {k.batch * k.strips(), func(task, w int) {
		l := k.lane(task, code)
		g.lane(&l, task%k.strips(), code.m.shared, floats(code.worker(w), 0, (2*k.chunk+1)*size+2*size+(k.chunk+1)*k.strip))
	}}, {4, func(task, _ int) {
		parts := func(at, size int) func(i int) []float32 {
			return func(i int) []float32 { return floats(code.m.shared, at+i*size*4, size) }
		}
		switch task {
		case 0:
			rows := k.states * k.ch
			total := parts(g.partA, rows)(0)
			for b := 1; b < k.batch; b++ {
				simd.Add(total, total, parts(g.partA, rows)(b))
			}
			simd.Transpose(g.out[2].f32(), k.states, total, k.ch, k.states, k.ch)
		case 1:
			sum(g.out[3].f32(), parts(g.partB, mix), k.strips())
		case 2:
			sum(g.out[4].f32(), parts(g.partC, mix), k.strips())
		case 3:
			sum(g.out[5].f32(), parts(g.partD, k.ch), k.batch)
		}
	}}}, nil
}

type scanGrad struct {
	*selectiveScan
	dy, kept                   ref
	out                        []ref // du, ddt, dA, dB, dC, dD
	partA, partB, partC, partD int   // offsets of the partial sums in the shared workspace
}

func (g *scanGrad) lane(l *lane, strip int, shared []byte, mem []float32) {
	cut := func(n int) []float32 {
		x := mem[:n:n]
		mem = mem[n:]
		return x
	}
	size := l.states * l.n
	states, decays, inputs := cut((l.chunk+1)*size), cut(l.chunk*size), cut(l.chunk*l.n)
	dh, prod, tmp := cut(size), cut(size), cut(l.n)
	clear(dh)
	dA := floats(shared, g.partA+l.row*l.states*l.ch*4, l.states*l.ch)
	dD := floats(shared, g.partD+(l.row*l.ch+l.first)*4, l.n)
	for s := range l.states {
		clear(dA[s*l.ch+l.first : s*l.ch+l.first+l.n])
	}
	clear(dD)
	mix := l.batch * l.steps * l.states
	for chunk := (l.steps - 1) / l.chunk; chunk >= 0; chunk-- {
		t0, t1 := chunk*l.chunk, min((chunk+1)*l.chunk, l.steps)
		for s := range l.states {
			copy(states[s*l.n:(s+1)*l.n], l.keep(g.kept, chunk, s))
		}
		for t := t0; t < t1; t++ {
			i := t - t0
			l.step(t, states[i*size:(i+1)*size], states[(i+1)*size:(i+2)*size], decays[i*size:(i+1)*size], inputs[i*l.n:(i+1)*l.n])
		}
		for t := t1 - 1; t >= t0; t-- {
			i := t - t0
			before, now := states[i*size:(i+1)*size], states[(i+1)*size:(i+2)*size]
			decay, input := decays[i*size:(i+1)*size], inputs[i*l.n:(i+1)*l.n]
			dy, u, dt := l.in(g.dy, t), l.in(l.u, t), l.in(l.dt, t)
			du, ddt := l.in(g.out[0], t), l.in(g.out[1], t)
			at := (l.row*l.steps+t)*l.states*4 + strip*mix*4
			dB, dC := floats(shared, g.partB+at, l.states), floats(shared, g.partC+at, l.states)
			simd.Mul(tmp, dy, u)
			simd.Add(dD, dD, tmp)
			clear(tmp) // the gradient of dt*u
			bs, cs := l.mix(l.b, t), l.mix(l.c, t)
			for s := range l.states {
				part := dh[s*l.n : (s+1)*l.n]
				dC[s] = simd.Dot(dy, now[s*l.n:(s+1)*l.n])
				simd.Axpy(part, dy, cs[s])
				dB[s] = simd.Dot(part, input)
				simd.Axpy(tmp, part, bs[s])
			}
			simd.Mul(dh, dh, decay) // now the gradient of the previous states
			simd.Mul(prod, dh, before)
			// prod is the gradient of dt*A.
			clear(ddt)
			for s := range l.states {
				part, rate := prod[s*l.n:(s+1)*l.n], dA[s*l.ch+l.first:s*l.ch+l.first+l.n]
				simd.Mul(du, part, l.rate(s))
				simd.Add(ddt, ddt, du)
				simd.Mul(part, part, dt)
				simd.Add(rate, rate, part)
			}
			simd.Mul(du, tmp, u)
			simd.Add(ddt, ddt, du)
			simd.Mul(tmp, tmp, dt)
			simd.Mul(du, dy, l.d.f32()[l.first:l.first+l.n])
			simd.Add(du, du, tmp)
		}
	}
}
