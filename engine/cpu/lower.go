package cpu

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// lower translates one node into parallel regions.
func (c *compiler) lower(n *graph.Node) (phases []phase, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case lowerError:
			err = r.err
		default:
			panic(r)
		}
	}()
	if graph.IsTF32(n.Op) {
		return nil, fmt.Errorf("%s in tf32, a format of NVIDIA tensor cores, is not for processors", n.Op.Name())
	}
	switch op := n.Op.(type) {
	case graph.Constant:
		return c.constant(n, op)
	case graph.Elementwise, graph.Dropout, graph.Fused:
		return c.elementwise(n)
	case graph.Expand:
		return c.elementwise(n)
	case graph.Transpose:
		return c.transpose(n, op)
	case graph.Slice:
		return c.slice(n, op)
	case graph.SliceWrite:
		return c.sliceWrite(n, op)
	case graph.SliceGrad:
		return c.sliceGrad(n, op)
	case graph.Concat:
		return c.concat(n, op)
	case graph.Reduce:
		return c.reduce(n, op)
	case graph.MatMul:
		return c.matmul(n, op)
	case graph.Quantize:
		return c.quantize(n)
	case graph.Dequantize:
		return c.dequantize(n)
	case graph.Embedding:
		return c.embedding(n)
	case graph.EmbeddingGrad:
		return c.embeddingGrad(n, op)
	case graph.LayerNorm:
		return c.layerNorm(n, op)
	case graph.LayerNormGrad:
		return c.layerNormGrad(n, op)
	case graph.Softmax:
		return c.softmax(n)
	case graph.SoftmaxGrad:
		return c.softmaxGrad(n)
	case graph.Attention:
		return c.attention(n, op)
	case graph.AttentionGrad:
		return c.attentionGrad(n, op)
	case graph.RotaryTable:
		return c.rotaryTable(n, op)
	case graph.Rotary:
		return c.rotary(n, op)
	case graph.CacheWrite:
		return c.cacheWrite(n)
	case graph.CrossEntropy:
		return c.crossEntropy(n)
	case graph.CrossEntropyGrad:
		return c.crossEntropyGrad(n)
	case graph.LinearCrossEntropy:
		return c.linearCrossEntropy(n, op)
	case graph.LinearCrossEntropyGrad:
		return c.linearCrossEntropyGrad(n, op)
	case graph.AdamW:
		return c.adamW(n, op)
	case graph.AdamW8bit:
		return c.adamW8bit(n, op)
	case graph.Lion:
		return c.lion(n, op)
	case graph.Adafactor:
		return c.adafactor(n, op)
	case graph.SGD:
		return c.sgd(n, op)
	case graph.Assign:
		return c.assign(n, op)
	case graph.Conv2D:
		return c.conv2d(n, op)
	case graph.Conv2DGradInput:
		return c.conv2dGradInput(n, op)
	case graph.Conv2DGradWeight:
		return c.conv2dGradWeight(n, op)
	case graph.Pool2D:
		return c.pool2d(n, op)
	case graph.Pool2DGrad:
		return c.pool2dGrad(n, op)
	case graph.ChannelNorm:
		return c.channelNorm(n, op)
	case graph.BatchStats:
		return c.batchStats(n)
	case graph.ChannelNormGrad:
		return c.channelNormGrad(n, op)
	case graph.RunningStats:
		return c.runningStats(n, op)
	case graph.TopK:
		return c.topK(n, op)
	case graph.Gather:
		return c.gather(n)
	case graph.Scatter:
		return c.scatter(n, op)
	case graph.ArgMax:
		return c.argMax(n)
	case graph.OneHot:
		return c.oneHot(n, op)
	case graph.Route:
		return c.route(n, op)
	case graph.Dispatch:
		return c.dispatch(n, op)
	case graph.Combine:
		return c.combine(n, op)
	case graph.RoutedDot:
		return c.routedDot(n)
	case graph.Relate:
		return c.relate(n, op)
	case graph.RelateGrad:
		return c.relateGrad(n, graph.Relate(op))
	case graph.GroupedMatMul:
		return c.groupedMatmul(n, op)
	case graph.GroupedOuter:
		return c.groupedOuter(n)
	case graph.GroupedSum:
		return c.groupedSum(n)
	case graph.SelectiveScan:
		return c.selectiveScan(n, op)
	case graph.SelectiveScanGrad:
		return c.selectiveScanGrad(n, op)
	case graph.GlobalNorm:
		return c.globalNorm(n)
	}
	return nil, fmt.Errorf("the CPU has no kernel for it")
}
