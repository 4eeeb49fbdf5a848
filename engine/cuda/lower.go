package cuda

import (
	"errors"

	"github.com/snug-ml/snug/engine/graph"
)

// ErrNoKernel means that an operation cannot run on cards.
var ErrNoKernel = errors.New("cards have no kernel for it")

// lower appends the launches of one node.
func (l *lowering) lower(n *graph.Node) {
	switch op := n.Op.(type) {
	case graph.Constant:
		l.constant(n, op)
	case graph.Elementwise, graph.Dropout, graph.Fused, graph.Expand:
		l.elementwise(n)
	case graph.Transpose:
		l.transpose(n, op)
	case graph.Slice:
		l.slice(n, op)
	case graph.SliceWrite:
		l.sliceWrite(n, op.Slice)
	case graph.SliceGrad:
		l.sliceGrad(n, op.Slice)
	case graph.Concat:
		l.concat(n, op)
	case graph.Reduce:
		l.reduce(n, op)
	case graph.MatMul:
		l.matmul(n, op)
	case graph.Quantize:
		l.quantize(n)
	case graph.Dequantize:
		l.dequantize(n)
	case graph.GroupedMatMul:
		l.groupedMatmul(n, op)
	case graph.GroupedOuter:
		l.groupedOuter(n, op)
	case graph.LinearCrossEntropy:
		l.linearCrossEntropy(n, op)
	case graph.LinearCrossEntropyGrad:
		l.linearCrossEntropyGrad(n, op)
	case graph.Embedding:
		l.embedding(n)
	case graph.EmbeddingGrad:
		l.embeddingGrad(n, op)
	case graph.LayerNorm:
		l.layerNorm(n, op)
	case graph.LayerNormGrad:
		l.layerNormGrad(n, op)
	case graph.Softmax:
		l.softmax(n)
	case graph.SoftmaxGrad:
		l.softmaxGrad(n)
	case graph.CrossEntropy:
		l.crossEntropy(n)
	case graph.CrossEntropyGrad:
		l.crossEntropyGrad(n)
	case graph.Attention:
		l.attention(n, op)
	case graph.AttentionGrad:
		l.attentionGrad(n, op)
	case graph.RotaryTable:
		l.rotaryTable(n, op)
	case graph.Rotary:
		l.rotary(n, op)
	case graph.CacheWrite:
		l.cacheWrite(n)
	case graph.Adafactor:
		l.adafactor(n, op)
	case graph.StepPart:
		l.stepPart(n, op)
	case graph.Fetch:
		l.fetch(n, op)
	case graph.WriteBack:
		l.writeBack(n, op)
	case graph.Optimizer:
		l.step(n, op)
	case graph.GlobalNorm:
		l.globalNorm(n)
	case graph.Assign:
		l.assign(n, op)
	case graph.Gather:
		l.gather(n)
	case graph.Scatter:
		l.scatter(n)
	case graph.TopK:
		l.topK(n, op)
	case graph.ArgMax:
		l.argMax(n)
	case graph.OneHot:
		l.oneHot(n, op)
	case graph.Route:
		l.route(n, op)
	case graph.Dispatch:
		l.dispatch(n, op.Weighted)
	case graph.Combine:
		l.combine(n, op.Weighted)
	case graph.RoutedDot:
		l.routedDot(n)
	case graph.GroupedSum:
		l.groupedSum(n)
	case graph.Pool2D:
		l.pool(n, op)
	case graph.Pool2DGrad:
		l.poolGrad(n, op)
	case graph.ChannelNorm:
		l.channelNorm(n, op)
	case graph.BatchStats:
		x := n.In[0]
		l.channelStats(x, channelsOf(graph.ChannelNorm{}, x.Shape()), l.at(n.Out[0]), l.at(n.Out[1]))
	case graph.ChannelNormGrad:
		l.channelNormGrad(n, graph.ChannelNorm(op))
	case graph.RunningStats:
		l.runningStats(n, op)
	case graph.Relate:
		l.relate(n, op)
	case graph.RelateGrad:
		l.relateGrad(n, graph.Relate(op))
	case graph.SelectiveScan:
		l.selectiveScan(n, op)
	case graph.SelectiveScanGrad:
		l.selectiveScanGrad(n, graph.SelectiveScan(op))
	case graph.Conv2D:
		l.conv(n, op)
	case graph.Conv2DGradInput:
		l.convGradInput(n, op)
	case graph.Conv2DGradWeight:
		l.convGradWeight(n, op)
	default:
		l.fail("%w", ErrNoKernel)
	}
}
