package cuda

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// channels is a tensor as norms over channels view it: [outer, rows, channels], with one set of statistics
// for every `wide` channels.
type channels struct{ outer, rows, channels, wide, parts, size int }

func channelsOf(op graph.ChannelNorm, s graph.Shape) channels {
	c := channels{outer: 1, rows: s.Rows(), channels: s.Last(), wide: 1}
	if op.Groups > 0 {
		c.outer = s[0]
		c.rows, c.wide = s.Rows()/s[0], c.channels/op.Groups
	}
	const most = 256 // rows of a part: 32 a thread
	c.parts = ceil(c.rows, most)
	c.size = ceil(c.rows, c.parts)
	c.parts = ceil(c.rows, c.size)
	return c
}

func (c channels) stats() int  { return c.outer * c.channels / c.wide }
func (c channels) blocks() int { return c.outer * c.parts * ceil(c.channels, 32) }

// work counts the work of a kernel that goes over the tensor.
func (c channels) work(x *launch) {
	x.does("block", c.blocks()).does("line", c.outer*c.rows*warps(c.channels)).overRows()
}

// partial is the size in bytes of a float32 for each channel of each part.
func (c channels) partial() int64 {
	return 4 * int64(c.outer) * int64(c.parts) * int64(c.channels)
}

func (p *params) channels(c channels) *params {
	return p.u32(c.rows, c.channels, c.wide, c.size, c.parts)
}

func (l *lowering) channelNorm(n *graph.Node, op graph.ChannelNorm) {
	stats := n.Out[1:]
	if op.Given {
		stats = n.In[3:]
	}
	x, mean, variance := n.In[0], l.at(stats[0]), l.at(stats[1])
	c := channelsOf(op, x.Shape())
	if !op.Given {
		l.channelStats(x, c, mean, variance)
	}
	p := new(params).ptr(l.at(x)).ptr(l.at(n.In[1])).ptr(l.at(n.In[2])).ptr(mean).ptr(variance).ptr(l.at(n.Out[0]))
	c.work(l.run("channel_norm_"+x.DType().String(), c.blocks(), 256, p.f32(op.Eps).channels(c)))
}

// channelStats computes the mean and the variance of each statistic of x.
func (l *lowering) channelStats(x *graph.Value, c channels, mean, variance address) {
	moments := l.take(2 * c.partial())
	c.work(l.run("channel_moments_"+x.DType().String(), c.blocks(), 256, new(params).ptr(l.at(x)).ptr(moments).channels(c)))
	l.run("channel_stats", ceil(c.stats(), 8), 256, new(params).ptr(moments).ptr(mean).ptr(variance).u32(c.stats()).channels(c)).
		does("row", c.stats()).does("line", c.stats()*warps(c.parts*c.wide)).does("part", c.stats()*c.parts*c.wide).
		adds(counts.Sector, 2*c.stats()*c.parts*ceil(8*c.wide, 32)) // those of a part's channels, for two loads
}

func (l *lowering) channelNormGrad(n *graph.Node, op graph.ChannelNorm) {
	x, gamma, mean, variance := n.In[1], l.at(n.In[2]), l.at(n.In[3]), l.at(n.In[4])
	dgamma, dbeta := l.at(n.Out[1]), l.at(n.Out[2])
	c := channelsOf(op, x.Shape())
	formats, dy := l.gradFormats(x, n.In[0])

	// Sum over the rows of each part, then over the parts of each outer index, then over outer.
	rows := [2]address{dbeta, dgamma} // [outer, channels]
	if c.outer > 1 {
		rows[0], rows[1] = l.take(c.partial()/int64(c.parts)), l.take(c.partial()/int64(c.parts))
	}
	parts := rows
	if c.parts > 1 {
		parts[0], parts[1] = l.take(c.partial()), l.take(c.partial())
	}
	p := new(params).ptr(dy).ptr(l.at(x)).ptr(mean).ptr(variance).ptr(parts[0]).ptr(parts[1])
	c.work(l.run("channel_grad_sums"+formats, c.blocks(), 256, p.f32(op.Eps).channels(c)))
	for i, out := range []address{dbeta, dgamma} {
		if c.parts > 1 {
			l.reduceColumns("sum_", graph.F32, parts[i], rows[i], c.outer, c.parts, c.channels, 1)
		}
		if c.outer > 1 {
			l.reduceColumns("sum_", graph.F32, rows[i], out, 1, c.outer, c.channels, 1)
		}
	}

	means := l.take(8 * int64(c.stats()))
	l.run("channel_grad_means", ceil(c.stats(), 8), 256, new(params).ptr(rows[0]).ptr(rows[1]).ptr(gamma).ptr(means).u32(c.stats()).channels(c)).
		does("row", c.stats()).does("line", c.stats()*warps(c.wide))
	p = new(params).ptr(dy).ptr(l.at(x)).ptr(gamma).ptr(mean).ptr(variance).ptr(means).ptr(l.at(n.Out[0]))
	c.work(l.run("channel_norm_grad"+formats, c.blocks(), 256, p.f32(op.Eps).channels(c)))
}

func (l *lowering) runningStats(n *graph.Node, op graph.RunningStats) {
	p := new(params)
	for _, v := range n.In {
		p.ptr(l.at(v))
	}
	c := n.In[0].Shape()[0]
	l.run("running_stats", ceil(c, 256), 256, p.u32(c).f32(op.Momentum, float64(op.Rows)/float64(op.Rows-1))).does("warp", warps(c))
}
