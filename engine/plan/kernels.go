package plan

import (
	"math"
	"slices"
	"sync"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/tiling"
)

// Kernels describes what a card's time depends on besides its rates: how the kernels of engine/cuda divide
// the work of a node.
type Kernels struct {
	SMs        int         `json:"multiprocessors"`
	HalfRate   device.Rate `json:"-"`                    // by size, for matmuls of 16-bit operands or in TF32
	FullRate   device.Rate `json:"-"`                    // the same for F32 operands
	RowTraffic float64     `json:"row_bytes_per_second"` // for norms, softmax and the loss
	Clock      float64     `json:"-"`                    // in Hz, if kernels were counted for the card; otherwise 0
	// Lower returns the kernels of nodes.
	Lower  engine.Lowering `json:"-"`
	prices prices
}

// prices are those of kernels, by [Speed.Launched].
type prices struct {
	lock  sync.Mutex
	known map[*engine.Kernel]Pipes
}

// of returns the price of k, calling price unless it is known.
func (l *prices) of(k *engine.Kernel, price func(k *engine.Kernel) Pipes) Pipes {
	l.lock.Lock()
	defer l.lock.Unlock()
	p, ok := l.known[k]
	if !ok {
		if l.known == nil {
			l.known = map[*engine.Kernel]Pipes{}
		}
		p = price(k)
		l.known[k] = p
	}
	return p
}

// The work of attention on a card. Both kernels of its gradient recompute the scores, so that no sum depends
// on timing.
const (
	gradProducts     = 5 // matmuls that [graph.AttentionGrad] counts
	gradProductsDone = 7
)

// cardCost returns the time of a node's kernels. The work of the first kernel is split into parts that
// overlap, of which the longest decides; that of further kernels is in nodeTime.passes.
func (s Speed) cardCost(n *graph.Node, c graph.Cost) nodeTime {
	t := nodeTime{traffic: over(c.Bytes, s.Bandwidth), launch: s.Launch}
	in, half := n.In, half(n)
	// Within a kernel, the arithmetic of an epilogue follows the matmul.
	vector := over(c.FLOPs-c.MatrixFLOPs, s.Vector)
	switch op := n.Op.(type) {
	case graph.MatMul:
		var p tiling.Product
		p.Batch, p.M, p.N, p.K = op.Dims([]graph.Type{in[0].Type, in[1].Type})
		t = s.product(p, half, c.Bytes, vector)
		if in[1].DType().Quantized() { // first decoded into the workspace
			t = t.then(s.pass(float64(in[1].Type.Bytes())+float64(in[1].Shape().Elems()*in[0].DType().Size()), s.Bandwidth))
		}
		if op.SumA {
			t = t.then(s.pass(float64(in[0].Type.Bytes()), s.Bandwidth))
		}
	case graph.LinearCrossEntropy:
		t = s.loss(n, op.Chunk, half, false, false)
	case graph.LinearCrossEntropyGrad:
		t = s.loss(n, op.Chunk, half, true, !op.Frozen)
	case graph.Attention:
		t.matmuls = over(c.MatrixFLOPs, s.rate(half)*s.Attention)
	case graph.AttentionGrad:
		t.matmuls = over(c.MatrixFLOPs*gradProductsDone/gradProducts, s.rate(half)*s.Attention)
		t.launch *= 2
	case graph.LayerNorm, graph.Softmax, graph.SoftmaxGrad, graph.CrossEntropyGrad:
		t.vector, t.traffic = vector, over(c.Bytes, s.Kernels.RowTraffic)
	case graph.CrossEntropy: // the largest logit of each row, then its sum
		t.vector, t.traffic = vector, over(c.Bytes+float64(in[0].Type.Bytes()), s.Kernels.RowTraffic)
		t.launch *= 2
	case graph.LayerNormGrad: // then the sums of the columns of blocks
		t.vector, t.traffic, t.launch = vector, over(c.Bytes, s.Kernels.RowTraffic), 2*s.Launch
	case graph.GlobalNorm: // the sums of all tensors, then the root
		t.vector, t.launch = vector, 2*s.Launch
	case graph.Adafactor: // sums, means, the mean of means, squares, their root, the step
		t.vector, t.launch = vector, 6*s.Launch
		if !op.Factored {
			t.launch -= s.Launch
		}
	default:
		t.vector = vector
		if c.MatrixFLOPs > 0 {
			t.matmuls, t.vector = over(c.MatrixFLOPs, s.matmulRate(half, c.MatrixFLOPs))+vector, 0
		}
	}
	return t
}

// shared returns the part of [Speed.Seconds] that a node saves when it runs right after before. A card
// updates consecutive parameters in one launch, except those whose step depends on sums over the parameter.
func (s Speed) shared(before, n *graph.Node) float64 {
	if s.Kernels == nil || before == nil {
		return 0
	}
	a, ok := before.Op.(graph.Optimizer)
	b, too := n.Op.(graph.Optimizer)
	if _, part := n.Op.(graph.StepPart); part {
		return 0
	}
	if _, sums := n.Op.(graph.Adafactor); sums || !ok || !too || a.Shared() != b.Shared() || !slices.Equal(before.In[2+a.States():], n.In[2+b.States():]) {
		return 0
	}
	return s.Launch
}

// then returns t with another kernel after it.
func (t nodeTime) then(pass nodeTime) nodeTime {
	t.passes += pass.total() - pass.launch
	t.launch += pass.launch
	return t
}

// pass returns the time of one kernel that goes over memory.
func (s Speed) pass(bytes, rate float64) nodeTime {
	return nodeTime{traffic: over(bytes, rate), launch: s.Launch}
}

// rate returns the rate of large matmuls.
func (s Speed) rate(half bool) float64 {
	if half {
		return s.Half
	}
	return s.Full
}

// matmulRate returns the rate of a matmul of the given FLOPs.
func (s Speed) matmulRate(half bool, work float64) float64 {
	if half {
		return s.Kernels.HalfRate.Of(work, s.Half)
	}
	return s.Kernels.FullRate.Of(work, s.Full)
}

// product prices a matmul as engine/cuda tiles it. bytes is its traffic, epilogue the time of the arithmetic
// that follows in the same kernel.
func (s Speed) product(p tiling.Product, half bool, bytes, epilogue float64) nodeTime {
	sms := max(1, s.Kernels.SMs)
	side := p.Tile(sms)
	tiles := p.Tiles(side)
	parts, _ := p.Split(sms, side)
	work := 2 * float64(p.Batch) * float64(p.M) * float64(p.N) * float64(p.K)
	padded := 2 * float64(tiles) * float64(side*side) * float64(p.K)
	busy := min(1, float64(tiles*parts)/float64(sms))
	t := nodeTime{matmuls: over(padded, s.matmulRate(half, work)*busy) + epilogue, traffic: over(bytes, s.Bandwidth), launch: s.Launch}
	if parts > 1 {
		result := 4 * float64(p.M) * float64(p.N)
		t = t.then(s.pass(result*float64(2*parts+1), s.Bandwidth)).then(s.pass(result, s.Bandwidth))
	}
	return t
}

// loss prices the cross-entropy of linear logits, a chunk of rows at a time. The matmul of each chunk stores
// parts of its rows, and for the gradient the exponentials of its logits, in the format of the factors. Once
// these have become the gradient of the logits, two matmuls read it.
func (s Speed) loss(n *graph.Node, chunk int, half, grad, dw bool) (t nodeTime) {
	x, w := n.In[0].Type, n.In[1].Type
	rows, width, classes := x.Shape[0], x.Shape[1], w.Shape[0]
	chunk = min(chunk, rows)
	size := float64(graph.LossScratch(chunk, x, w).DType.Size())
	matrix := func(a, b int) float64 { return size * float64(a) * float64(b) }
	add := func(p tiling.Product, bytes float64) {
		u := s.product(p, half, bytes, 0)
		t.matmuls += u.total() - u.launch
		t.launch += u.launch
	}
	h, weights, kept := matrix(chunk, width), matrix(classes, width), matrix(chunk, classes)
	const part, side = 8, 128 // bytes, and the columns of a tile
	parts := part * float64(chunk) * math.Ceil(float64(classes)/side)
	logits := h + weights + parts
	if grad {
		logits += kept
	}
	add(tiling.Product{Batch: 1, M: chunk, N: classes, K: width}, logits)
	t = t.then(s.pass(2*parts, s.Kernels.RowTraffic))
	if grad {
		t = t.then(s.pass(2*kept, s.Bandwidth))
		add(tiling.Product{Batch: 1, M: chunk, N: width, K: classes}, kept+weights+h)
	}
	if dw {
		add(tiling.Product{Batch: 1, M: classes, N: width, K: chunk}, kept+h+8*float64(classes)*float64(width))
	}
	chunks := float64(rows) / float64(chunk)
	t.matmuls *= chunks
	t.passes *= chunks
	t.launch = t.launch*math.Ceil(chunks) + s.Launch
	return t
}
