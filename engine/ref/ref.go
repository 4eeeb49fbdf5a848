// Package ref defines what every operation of engine/graph means: an interpreter in
// float64, written as the plainest possible loops over each operation's formula. Devices
// are compared with it (engine/conformance), gradients are checked against it by finite
// differences, and the compiler's passes must not change what it computes. Speed does not
// matter here.
//
// What the package promises:
//
//   - Run is a pure function: neither the program nor the environment changes.
//   - Integers are exact, and sums are taken in order of index in float64.
//   - In Exact mode nothing is rounded beyond float64. In Rounded mode every
//     result, including each instruction of a fused body, is rounded once to its
//     element type (nearest, ties to even), as a device would store it.
//   - A state written in place is a new version: readers of the old one still
//     see the old one. Result.States holds the last version of each state.
//   - What the host must not pass (an id outside its table, a label outside the
//     vocabulary) is an error that names the node.
package ref

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// Env holds tensors by name, in row-major order.
type Env map[string][]float64

// Mode says whether results are rounded to their element types.
type Mode uint8

// The modes.
const (
	Exact   Mode = iota // float64 throughout
	Rounded             // every result rounded to its element type
)

// Result is the outcome of one run.
type Result struct {
	// Outputs are the function's outputs by name.
	Outputs Env
	// States are the last versions of all states by name.
	States Env
}

// tensor is a value at run time.
type tensor struct {
	graph.Type
	data []float64
}

// Run computes f. The environment gives every input and state its elements; in
// Rounded mode they are rounded to their types first. Entries that f does not
// name are ignored, so that functions of one program can share an environment.
func Run(f *graph.Func, env Env, mode Mode) (*Result, error) {
	m := machine{mode: mode, vals: make([]tensor, f.NumValues())}
	res := &Result{Outputs: Env{}, States: Env{}}
	for _, v := range f.Inputs {
		if err := m.bind(v, env); err != nil {
			return nil, fmt.Errorf("%s: input %w", f.Name, err)
		}
	}
	for _, v := range f.States {
		if err := m.bind(v, env); err != nil {
			return nil, fmt.Errorf("%s: state %w", f.Name, err)
		}
		res.States[v.State.Name] = m.vals[v.ID].data
	}
	for i, n := range f.Nodes {
		in := make([]tensor, len(n.In))
		for j, v := range n.In {
			in[j] = m.vals[v.ID]
		}
		out := make([]graph.Type, len(n.Out))
		for j, v := range n.Out {
			out[j] = v.Type
		}
		data, err := m.eval(n.Op, in, out)
		if err != nil {
			return nil, fmt.Errorf("%s: node %d (%s %s): %w", f.Name, i, n.Op.Name(), n.Layer, err)
		}
		for j, v := range n.Out {
			m.store(v, data[j])
		}
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			res.States[n.In[a.In].State.Name] = m.vals[n.Out[a.Out].ID].data
		}
	}
	for _, o := range f.Outputs {
		res.Outputs[o.Name] = m.vals[o.Value.ID].data
	}
	return res, nil
}

// Eval computes the results of one operation from the elements of its operands, like
// [Run].
func Eval(n *graph.Node, in [][]float64, mode Mode) ([][]float64, error) {
	m := machine{mode: mode}
	operands := make([]tensor, len(in))
	for i, v := range n.In {
		operands[i] = tensor{v.Type, in[i]}
	}
	types := make([]graph.Type, len(n.Out))
	for i, v := range n.Out {
		types[i] = v.Type
	}
	out, err := m.eval(n.Op, operands, types)
	if err != nil {
		return nil, err
	}
	for i, v := range n.Out {
		out[i] = m.round(out[i], v.DType())
	}
	return out, nil
}

// machine is one run.
type machine struct {
	mode Mode
	vals []tensor // by value ID
}

// bind gives an input or a state its elements.
func (m *machine) bind(v *graph.Value, env Env) error {
	data, ok := env[v.Name]
	if !ok {
		return fmt.Errorf("%s %v is missing from the environment", v.Name, v.Type)
	}
	if int64(len(data)) != v.Shape().Elems() {
		return fmt.Errorf("%s is %v, but the environment has %d elements for it", v.Name, v.Type, len(data))
	}
	m.store(v, data)
	return nil
}

func (m *machine) store(v *graph.Value, data []float64) {
	if m.mode == Rounded && v.DType().Quantized() {
		data = quantize(v.Type, data)
	} else {
		data = m.round(data, v.DType())
	}
	m.vals[v.ID] = tensor{v.Type, data}
}

// round returns data as stored in d. The operand is not changed.
func (m *machine) round(data []float64, d graph.DType) []float64 {
	if m.mode == Exact {
		return data
	}
	return RoundAll(data, d)
}

// eval computes one operation: the elements of each result.
func (m *machine) eval(op graph.Op, in []tensor, out []graph.Type) ([][]float64, error) {
	switch op := op.(type) {
	case graph.Constant:
		return one([]float64{op.V}), nil
	case graph.Elementwise:
		return one(elementwise(op, in, out[0])), nil
	case graph.Dropout:
		return one(dropout(op, in[0], in[1])), nil
	case graph.Fused:
		return m.fused(op, in, out)
	case graph.MatMul:
		return m.matmul(op, in)
	case graph.Quantize, graph.Dequantize: // the stored result is rounded to its type
		return one(in[0].data), nil
	case graph.Reduce:
		return one(reduce(op, in[0], out[0])), nil
	case graph.Reshape:
		return one(in[0].data), nil
	case graph.Transpose:
		return one(transpose(op, in[0], out[0])), nil
	case graph.Slice:
		return one(slice(op, in[0], out[0])), nil
	case graph.SliceView:
		return one(slice(op.Slice, in[0], out[0])), nil
	case graph.SliceGrad:
		return one(sliceGrad(op, in[0], out[0])), nil
	case graph.SliceWrite:
		return one(sliceWrite(op, in[0], in[1])), nil
	case graph.Concat:
		return one(concat(op, in, out[0])), nil
	case graph.ConcatView:
		return one(concat(op.Concat, in, out[0])), nil
	case graph.Expand:
		return one(expand(in[0], out[0])), nil
	case graph.Embedding:
		return embedding(in[0], in[1])
	case graph.EmbeddingGrad:
		return embeddingGrad(op, in)
	case graph.LayerNorm:
		return layerNorm(op, in), nil
	case graph.LayerNormGrad:
		return m.layerNormGrad(op, in), nil
	case graph.Softmax:
		return one(softmax(in[0])), nil
	case graph.SoftmaxGrad:
		return one(softmaxGrad(in[0], in[1])), nil
	case graph.CrossEntropy:
		return crossEntropy(in[0], in[1], in[2])
	case graph.CrossEntropyGrad:
		return crossEntropyGrad(in)
	case graph.LinearCrossEntropy:
		return linearCrossEntropy(op.TF32, in, out)
	case graph.LinearCrossEntropyGrad:
		return linearCrossEntropyGrad(op.TF32, in, out)
	case graph.Attention:
		return attention(op, in, out), nil
	case graph.AttentionGrad:
		return attentionGrad(graph.Attention(op), in), nil
	case graph.RotaryTable:
		return one(rotaryTable(op)), nil
	case graph.Rotary:
		return rotary(op, in)
	case graph.CacheWrite:
		return cacheWrite(in[0], in[1], in[2])
	case graph.AdamW:
		return rounded(op, op.Round, in, 4+op.States(), func(in []tensor) [][]float64 { return adamW(op, in) }), nil
	case graph.AdamW8bit:
		return rounded(op, op.Round, in, 4+op.States(), func(in []tensor) [][]float64 { return adamW8bit(op, in) }), nil
	case graph.Lion:
		return rounded(op, op.Round, in, 4+op.States(), func(in []tensor) [][]float64 { return lion(op, in) }), nil
	case graph.Adafactor:
		return rounded(op, op.Round, in, 4+op.States(), func(in []tensor) [][]float64 { return adafactor(op, in) }), nil
	case graph.SGD:
		return rounded(op, op.Round, in, 4+op.States(), func(in []tensor) [][]float64 { return sgd(op, in) }), nil
	case graph.StepPart:
		return m.stepPart(op, in)
	case graph.Fetch:
		return one(fetch(op, in[0])), nil
	case graph.WriteBack:
		return one(writeBack(op, in[0], in[1])), nil
	case graph.Assign:
		return one(assign(op, in)), nil
	case graph.Conv2D:
		return one(conv2d(op, in, out[0])), nil
	case graph.Conv2DGradInput:
		return one(conv2dGradInput(op, in, out[0])), nil
	case graph.Conv2DGradWeight:
		return one(conv2dGradWeight(op, in, out[0])), nil
	case graph.Pool2D:
		if op.Body != nil {
			return m.pooled(op, in, out[0])
		}
		return one(pool2d(op, in[0], out[0])), nil
	case graph.Pool2DGrad:
		if op.Pool.Body != nil {
			return m.pooledGrad(op, in, out[0])
		}
		return one(pool2dGrad(op, in, out[0])), nil
	case graph.ChannelNorm:
		return channelNorm(op, in, out), nil
	case graph.BatchStats:
		return batchStats(in), nil
	case graph.ChannelNormGrad:
		return channelNormGrad(op, in), nil
	case graph.RunningStats:
		return runningStats(op, in), nil
	case graph.TopK:
		return topK(op.K, in[0]), nil
	case graph.Gather:
		return gatherLast(in[0], in[1])
	case graph.Scatter:
		return scatterLast(op.N, in[0], in[1])
	case graph.ArgMax:
		return one(argMax(in[0])), nil
	case graph.OneHot:
		return one(oneHot(op.N, in[0])), nil
	case graph.Route:
		return route(op, in[0])
	case graph.Dispatch:
		return one(dispatch(op, in)), nil
	case graph.Combine:
		return one(combine(op, in)), nil
	case graph.RoutedDot:
		return one(routedDot(in[0], in[1], in[2])), nil
	case graph.GroupedMatMul:
		return one(groupedMatMul(op, in, out[0])), nil
	case graph.GroupedOuter:
		return one(groupedOuter(op, in[0], in[1], in[2], out[0])), nil
	case graph.GroupedSum:
		return one(groupedSum(in[0], in[1], out[0])), nil
	case graph.SelectiveScan:
		return selectiveScan(op, in), nil
	case graph.SelectiveScanGrad:
		return selectiveScanGrad(in), nil
	case graph.Relate:
		return one(relate(op, in)), nil
	case graph.RelateGrad:
		return relateGrad(graph.Relate(op), in), nil
	case graph.Detach:
		return one(in[0].data), nil
	case graph.GlobalNorm:
		return one([]float64{globalNorm(in)}), nil
	}
	return nil, fmt.Errorf("engine/ref has no definition of %T", op)
}

func one(data []float64) [][]float64 { return [][]float64{data} }

// each calls fn with every index of shape s, in row-major order. The slice is reused.
func each(s graph.Shape, fn func(at []int)) {
	at := make([]int, len(s))
	for range s.Elems() {
		fn(at)
		for d := len(s) - 1; d >= 0; d-- {
			if at[d]++; at[d] < s[d] {
				break
			}
			at[d] = 0
		}
	}
}

// offset is the position of the element at index at under the given strides.
func offset(at, strides []int) int {
	o := 0
	for d, i := range at {
		o += i * strides[d]
	}
	return o
}

// strides are the row-major element strides of s.
func strides(s graph.Shape) []int {
	st := make([]int, len(s))
	run := 1
	for d := len(s) - 1; d >= 0; d-- {
		st[d] = run
		run *= s[d]
	}
	return st
}
