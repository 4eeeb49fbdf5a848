package plan

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
	"github.com/snug-ml/snug/internal/tiling"
)

// Pipes is what the units of a card take for an operation by the instructions that the
// interpreter counted in its kernels (package counts), in seconds: how long each would be
// busy, and Total, in which the units of a phase overlap and phases do not.
type Pipes struct {
	Tensor  float64 `json:"tensor_seconds"`
	FP32    float64 `json:"fp32_seconds"`
	Integer float64 `json:"integer_seconds"`
	XU      float64 `json:"xu_seconds"`
	Issue   float64 `json:"issue_seconds"`
	Shared  float64 `json:"shared_memory_seconds"` // with the sectors that come through the same path
	L2      float64 `json:"l2_seconds"`            // of tiles, which each block reads for itself
	Memory  float64 `json:"memory_seconds"`
	Power   float64 `json:"power_seconds"` // of matmuls at the rate that the card's power allows
	Launch  float64 `json:"launch_seconds"`
	Total   float64 `json:"seconds"`
	// Counted is how much of Total was counted; the rest is as the roofline has it.
	Counted float64 `json:"counted_seconds"`
}

// pipeNames are in the order of Pipes.units.
var pipeNames = [...]string{"tensor", "fp32", "integer", "xu", "issue", "shared memory", "L2", "memory", "power", "launch"}

func (p *Pipes) units() [10]*float64 {
	return [...]*float64{&p.Tensor, &p.FP32, &p.Integer, &p.XU, &p.Issue, &p.Shared, &p.L2, &p.Memory, &p.Power, &p.Launch}
}

// Limit names the unit that is busy longest.
func (p Pipes) Limit() string {
	best := 0
	units := p.units()
	for i, u := range units {
		if *u > *units[best] {
			best = i
		}
	}
	return pipeNames[best]
}

// add adds a kernel that runs so many times.
func (p *Pipes) add(o Pipes, times float64) {
	to, from := p.units(), o.units()
	for i := range to {
		*to[i] += times * *from[i]
	}
	p.Total += times * o.Total
	p.Counted += times * o.Counted
}

// What a multiprocessor of compute capability 7.5 does in a clock. Instructions are of a
// warp: four schedulers issue one each, to 64 lanes of float32, 64 of integers, 16 of
// the rest, and tensor cores that take two clocks for an m16n8k8. Shared memory and what
// loads and stores move share a path of 64 bytes (Jia
// et al. 2019, arXiv:1903.07486, measure 59 of them, and 1,270 GB/s of a T4's L2).
const (
	clocksTensor, clocksLanes, clocksXU, clocksIssue = 2, 0.5, 2, 0.25
	clocksWavefront, clocksSector                    = 2, 0.5
	clocksSectorL2                                   = 32. / 20
)

// phase is a part of a kernel whose units overlap: so many blocks with the same work each.
type phase struct {
	work  counts.Work
	tiles bool // what it reads comes from L2
}

// kernel is one launch: its phases follow one another, next to its traffic.
type kernel struct {
	phases        []phase
	blocks        float64 // 0: so many that no multiprocessor waits for the last
	bytes, matmul float64 // of memory; FLOPs
	rate          float64 // of memory
	times         float64 // how often it is launched; 0: once
}

// Pipes prices a node by what was counted. Where no kernel of a node was counted, and on
// cards without counts, it is as [Speed.Seconds] has it.
func (s Speed) Pipes(n *graph.Node) Pipes {
	c := n.Cost()
	t := s.cost(n, c)
	p := Pipes{Tensor: t.matmuls, Memory: t.traffic + t.passes, FP32: t.vector, Launch: t.launch, Total: t.total()}
	if s.Kernels == nil || s.Kernels.Clock == 0 || graph.IsView(n.Op) {
		return p
	}
	list, err := s.counted(n, c)
	if err != nil || len(list) == 0 {
		return p
	}
	p = Pipes{Launch: t.launch, Total: t.launch}
	for _, k := range list {
		p.add(s.kernel(k, half(n)), 1)
	}
	p.Counted = p.Total
	return p
}

func (s Speed) kernel(k kernel, half bool) (p Pipes) {
	sms := float64(s.Kernels.SMs)
	share := sms
	if k.blocks > 0 { // the multiprocessor with the most blocks ends last
		share = k.blocks / float64(int((k.blocks+sms-1)/sms))
	}
	perSM := 1 / (share * s.Kernels.Clock)
	var busy float64
	for _, f := range k.phases {
		w := f.work
		q := Pipes{
			Tensor: clocksTensor * w.Tensor, FP32: clocksLanes * w.FP32, Integer: clocksLanes * w.Integer, XU: clocksXU * w.XU,
			Issue: clocksIssue * w.Issued(), Shared: clocksWavefront*w.Shared + clocksSector*w.Sectors,
		}
		if f.tiles {
			q.L2 = clocksSectorL2 * w.Sectors
		}
		longest := 0.
		for _, u := range q.units() {
			*u *= perSM
			longest = max(longest, *u)
		}
		busy += longest
		p.add(q, 1)
	}
	p.Memory = over(k.bytes, k.rate)
	p.Power = over(k.matmul, s.matmulRate(half, k.matmul))
	p.Total = max(busy, p.Memory, p.Power)
	if k.times > 0 {
		for _, u := range p.units() {
			*u *= k.times
		}
		p.Total *= k.times
	}
	return p
}

// errUncounted is a kind of work that is not in the table.
type errUncounted string

func (e errUncounted) Error() string { return "there are no counts for " + string(e) }

func work(unit string) (counts.Work, error) {
	w, ok := counts.Of(unit)
	if !ok {
		return w, errUncounted(unit)
	}
	return w, nil
}

// grown is a multiple of a fixed part plus one of a part that grows.
func grown(name, fixed, each string, n, m float64) (w counts.Work, err error) {
	a, err := work(name + " " + fixed)
	if err != nil {
		return w, err
	}
	b, err := work(name + " " + each)
	return w.Plus(n, a).Plus(m, b), err
}

// counted are the kernels of a node by the table.
func (s Speed) counted(n *graph.Node, c graph.Cost) (list []kernel, err error) {
	in := make([]graph.Type, len(n.In))
	for i, v := range n.In {
		in[i] = v.Type
	}
	rows := func(name string, d graph.DType, t graph.Type, bytes float64) {
		r, e := float64(t.Shape.Rows()), float64(t.Shape.Elems())
		w, e2 := grown(fmt.Sprintf("%s_%v", name, d), "row", "element", r, e)
		err = e2
		list = append(list, kernel{phases: []phase{{work: w}}, bytes: bytes, rate: s.Kernels.RowTraffic})
	}
	switch op := n.Op.(type) {
	case graph.MatMul:
		var p tiling.Product
		p.Batch, p.M, p.N, p.K = op.Dims(in[:2])
		if op.MapA != (graph.Elementwise{}) || op.MapB != (graph.Elementwise{}) || in[0].DType != in[1].DType {
			return nil, errUncounted("operand functions")
		}
		body, err := bodyWork(op.Body, float64(p.Batch)*float64(p.M)*float64(p.N))
		if err != nil {
			return nil, err
		}
		list, err = s.gemm(p, op.TransA, op.TransB, in[0].DType, c.Bytes, body)
		if op.SumA {
			list = append(list, kernel{bytes: float64(in[0].Bytes()), rate: s.Bandwidth})
		}
		return list, err
	case graph.LinearCrossEntropy:
		return s.lossKernels(in, op.Chunk, false, false)
	case graph.LinearCrossEntropyGrad:
		return s.lossKernels(in, op.Chunk, true, !op.Frozen)
	case graph.Attention:
		k, err := s.attention(op, in, "attention", c)
		return []kernel{k}, err
	case graph.AttentionGrad:
		for _, part := range []struct {
			name     string
			products float64
		}{{"attention_dq", 3}, {"attention_dkv", 4}} {
			k, err := s.attention(graph.Attention(op), in[3:], part.name, graph.Cost{Bytes: c.Bytes / 2, MatrixFLOPs: c.MatrixFLOPs * part.products / gradProducts})
			if err != nil {
				return nil, err
			}
			list = append(list, k)
		}
		return list, nil
	case graph.LayerNorm:
		rows(op.Name()+"_"+rowGroup(in[0].Shape.Last()), in[0].DType, in[0], c.Bytes)
	case graph.LayerNormGrad: // of which the sums of columns are a kernel that reads dy and x too
		rows(op.Name()+"_"+rowGroup(in[1].Shape.Last()), in[1].DType, in[1], c.Bytes+float64(in[0].Bytes()+in[1].Bytes()))
	case graph.Softmax, graph.SoftmaxGrad:
		rows(op.Name()+"_"+rowGroup(in[0].Shape.Last()), in[0].DType, in[0], c.Bytes)
	case graph.CrossEntropy:
		rows(op.Name(), in[0].DType, in[0], c.Bytes+float64(in[0].Bytes()))
	case graph.CrossEntropyGrad:
		rows(op.Name(), in[0].DType, in[0], c.Bytes)
	case graph.Embedding:
		rows(op.Name(), n.Out[0].DType(), n.Out[0].Type, c.Bytes)
	case graph.Reduce:
		if outer, r, cols, ok := op.Matrices(in[0].Shape); !ok || outer != 1 || cols == 1 || r == 1 {
			return nil, errUncounted("reductions other than over columns")
		}
		rows("sum_rows", in[0].DType, in[0], c.Bytes)
	case graph.Fused, graph.Elementwise, graph.Dropout, graph.Expand:
		return s.loopKernels(n, c)
	}
	return list, err
}

// rowGroup is the kernels' name for rows of n elements, as engine/cuda has it.
func rowGroup(n int) string {
	switch {
	case n%4 == 0 && n <= 256:
		return "w256"
	case n%4 == 0 && n <= 1024:
		return "w1024"
	}
	return "block"
}

// gemm is a matmul as engine/cuda tiles it; body is its epilogue.
func (s Speed) gemm(p tiling.Product, transA, transB bool, d graph.DType, bytes float64, body counts.Work) ([]kernel, error) {
	whole := func(trans bool, across int) bool { return trans && across%8 == 0 || !trans && p.K%8 == 0 }
	side := p.Tile(s.Kernels.SMs)
	parts, size := p.Split(s.Kernels.SMs, side)
	tiled := fmt.Sprint(side)
	if d.Half() && (transA && transB || !whole(transA, p.M) || !whole(!transB, p.N)) {
		tiled, side = "any", 64 // for rows that do not begin at multiples of 16 bytes
	}
	trans := map[bool]string{false: "n", true: "t"}
	if d == graph.F32 && transA && transB {
		transB = false // its kernel is one for all
	}
	name := fmt.Sprintf("gemm_%s_%s%s_%v", tiled, trans[transA], trans[transB], d)
	blocks := float64(p.Tiles(side) * parts)
	step, err := work(name + " step")
	if err != nil {
		return nil, err
	}
	tile, err := work(name + " tile")
	if err != nil {
		return nil, err
	}
	steps := counts.Work{}.Plus(blocks*float64((size+31)/32), step)
	ends := counts.Work{}.Plus(blocks, tile)
	flops := 2 * float64(p.Batch) * float64(p.M) * float64(p.N) * float64(p.K)
	if parts == 1 {
		ends = ends.Plus(1, body)
	}
	list := []kernel{{phases: []phase{{steps, true}, {work: ends}}, blocks: blocks, bytes: bytes, rate: s.Bandwidth, matmul: flops}}
	if parts > 1 {
		result := 4 * float64(p.M) * float64(p.N)
		list = append(list, kernel{bytes: result * float64(2*parts+1), rate: s.Bandwidth}, kernel{phases: []phase{{work: body}}, bytes: result, rate: s.Bandwidth})
	}
	return list, nil
}

// attention is one of its kernels.
func (s Speed) attention(op graph.Attention, in []graph.Type, part string, c graph.Cost) (k kernel, err error) {
	const tile = 64
	batch, tq, tk, size := op.Geometry(in)
	suffix, scale := "", 1.
	for _, have := range []int{16, 32, 64, 80, 96, 128} {
		suffix = fmt.Sprintf("_%v_%d", in[0].DType, have)
		if _, ok := counts.Of(part + suffix + " tile"); ok && size <= have {
			if in[0].DType == graph.F32 {
				scale = float64(size) / float64(have)
			}
			break
		}
	}
	own, other := (tq+tile-1)/tile, (tk+tile-1)/tile
	if part == "attention_dkv" {
		own, other = other, own
	}
	heads := float64(batch * op.Heads)
	pairs := float64(own * other)
	if op.Causal && tq == tk {
		pairs = float64(own*(own+1)) / 2
	}
	w, err := grown(part+suffix, "tile", "pair", heads*float64(own), heads*pairs*scale)
	// Tiles of a causal row are of different lengths and come in the order of the grid: no
	// multiprocessor waits long for the last.
	return kernel{phases: []phase{{w, true}}, bytes: c.Bytes, rate: s.Bandwidth, matmul: c.MatrixFLOPs}, err
}

// lossKernels are those of the cross-entropy of linear logits, see [Speed.loss].
func (s Speed) lossKernels(in []graph.Type, chunk int, grad, dw bool) (list []kernel, err error) {
	x, w := in[0], in[1]
	rows, width, classes := x.Shape[0], x.Shape[1], w.Shape[0]
	if x.DType != w.DType {
		return nil, errUncounted("a loss in mixed formats")
	}
	chunk = min(chunk, rows)
	logits, size := float64(chunk)*float64(classes), float64(x.DType.Size())
	matrix := func(a, b int) float64 { return size * float64(a) * float64(b) }
	product := func(p tiling.Product, transA, transB bool, bytes float64) {
		k, e := s.gemm(p, transA, transB, x.DType, bytes, counts.Work{})
		if e != nil {
			err = e
		}
		list = append(list, k...)
	}
	pass := func(name string, bytes float64) {
		w, e := grown(name, "row", "element", float64(chunk), logits)
		if e != nil {
			err = e
		}
		list = append(list, kernel{phases: []phase{{work: w}}, bytes: bytes, rate: s.Kernels.RowTraffic})
	}
	product(tiling.Product{Batch: 1, M: chunk, N: classes, K: width}, false, true, matrix(chunk, width)+matrix(classes, width)+4*logits)
	pass("cross_entropy_f32", 8*logits)
	padded := classes // engine/cuda pads the rows of the gradient
	if x.DType.Half() {
		padded = (classes + 7) / 8 * 8
	}
	if grad {
		pass("cross_entropy_grad_f32", (4+size)*logits)
		product(tiling.Product{Batch: 1, M: chunk, N: width, K: padded}, false, false, size*logits+matrix(classes, width)+matrix(chunk, width))
	}
	if dw {
		product(tiling.Product{Batch: 1, M: padded, N: width, K: chunk}, true, false, size*logits+matrix(chunk, width)+8*float64(classes)*float64(width))
	}
	for i := range list {
		list[i].times = float64(rows) / float64(chunk)
	}
	return list, err
}

// loopKernels are a loop, and the passes of the reductions that were fused into it.
func (s Speed) loopKernels(n *graph.Node, c graph.Cost) ([]kernel, error) {
	elems := float64(n.Out[0].Type.Shape.Elems())
	d := n.Out[0].DType()
	w, err := work(fmt.Sprintf("loop_%v copy", d))
	if err != nil {
		return nil, err
	}
	w = counts.Work{}.Plus(elems, w)
	b := body(n.Op)
	if b == nil && len(n.In) > 0 {
		b = &graph.Body{Inputs: len(n.In), Results: []int{len(n.In)}, Instrs: []graph.Instr{{Op: n.Op, DType: d}}}
		if _, copies := n.Op.(graph.Expand); copies {
			b.Instrs = nil
		}
	}
	if b != nil {
		steps, err := bodyWork(b, elems)
		if err != nil {
			return nil, err
		}
		w = w.Plus(1, steps)
	}
	return []kernel{{phases: []phase{{work: w}}, bytes: c.Bytes, rate: s.Bandwidth}}, nil
}

// bodyWork is what the steps of a body do for so many elements, with the operands and
// results that it has besides one of each.
func bodyWork(b *graph.Body, elems float64) (w counts.Work, err error) {
	if b == nil {
		return w, nil
	}
	add := func(d graph.DType, what string, times float64) {
		v, e := work(fmt.Sprintf("loop_%v %s", d, what))
		if e != nil {
			err = e
		}
		w = w.Plus(times*elems, v)
	}
	d := graph.F32
	for _, i := range b.Instrs {
		d = i.DType
		add(d, i.Op.Name(), 1)
	}
	add(d, "operand", float64(max(0, b.Inputs-1)+max(0, len(b.Results)-1)))
	return w, err
}
