package cloudbase

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/system"
)

// These are the inputs and the output of the program.
const (
	inputImages  = "images"  // F32 [B, F, H, W]
	inputAngles  = "angles"  // F32 [B, 2]: zenith and azimuth angles of the sun, degrees
	inputBase    = "cbh"     // F32 [B], km
	inputMask    = "mask"    // F32 [B, F', H/patch, W/patch]: 1 where masked pre-training hides a patch
	inputWeights = "weights" // F32 [B]
	outputBase   = "cbh"     // F32 [B], km
)

// These are the constants of the guide's network.
const (
	filmWidth   = 256
	leak        = 0.01 // slope of LeakyReLU
	normEps     = 1e-5
	momentum    = 0.1
	denseLayers = 2
)

// net is the network of a configuration for micro-batches of rows examples.
type net struct {
	*Model
	seed  uint64
	rows  int
	train bool
	// adapters, if set, freeze everything that they do not name.
	adapters *nn.Adapters
}

// role returns the role of states that a layer keeps without training. If the layer is frozen, they never
// change.
func (n *net) role(layer string) graph.Role {
	if n.frozen(layer) {
		return graph.Frozen
	}
	return graph.Buffer
}

// frozen reports whether a layer stays as in the adapted run.
func (n *net) frozen(layer string) bool { return n.adapters != nil && !n.adapters.Whole(layer) }

// steps returns the number of images of View frames in a window.
func (n *net) steps() int { return n.Frames - n.View + 1 }

// size returns the width of the features of an image.
func (n *net) size() int { return n.Channels[len(n.Channels)-1] }

// pictures arranges the frames as [B*steps, H, W, View], channels last.
func (n *net) pictures(b *graph.Builder) *graph.Value {
	x := b.Input(inputImages, graph.T(graph.F32, n.rows, n.Frames, n.Height, n.Width))
	t := n.steps()
	if n.View > 1 {
		// Channel v of image i is frame i+v.
		var channels []*graph.Value
		for v := range n.View {
			channels = append(channels, b.Reshape(b.Slice(x, 1, v, t), n.rows*t, n.Height, n.Width, 1))
		}
		return b.Concat(3, channels...)
	}
	return b.Reshape(x, n.rows*t, n.Height, n.Width, 1)
}

// angles returns the features of the sun's angles: [B, 4] sines and cosines, or [B, 2] scaled degrees.
func (n *net) angles(b *graph.Builder) *graph.Value {
	x := b.Input(inputAngles, graph.T(graph.F32, n.rows, 2))
	used := [2]bool{n.UseAngles == "both" || n.UseAngles == "sza", n.UseAngles == "both" || n.UseAngles == "saa"}
	if n.Angles == "linear" {
		mean, std := n.scaleState(b, stateAngles, 2)
		x = b.Div(b.Sub(x, mean), std)
	} else {
		x = b.MulC(x, math.Pi/180)
	}
	var features []*graph.Value
	for i, on := range used {
		a := b.Slice(x, 1, i, 1)
		if !on {
			a = b.BroadcastTo(b.Scalar(0), n.rows, 1)
		}
		switch {
		case n.Angles == "linear" || !on:
			features = append(features, a)
			if n.Angles != "linear" {
				features = append(features, a)
			}
		default:
			features = append(features, b.Apply(graph.FnSin, a), b.Apply(graph.FnCos, a))
		}
	}
	return b.Concat(1, features...)
}

// idle reports whether to omit a bias before the normalization. Batch normalization subtracts it again, so
// its gradient is rounding noise, which AdamW scales up to steps of full size.
func (n *net) idle() bool { return n.Norm == "batch" && !n.NormBias }

// linear is a layer with the guide's initialization: Xavier normal weights.
func linear(b *graph.Builder, name string, x *graph.Value, out int) *graph.Value {
	return nn.Linear(b, name, x, out, true, graph.XavierNormal(x.Shape().Last(), out))
}

// conv is a size-preserving convolution with the guide's initialization: Kaiming normal over the outputs.
func conv(b *graph.Builder, name string, x *graph.Value, out, kernel int, bias bool) (y *graph.Value) {
	b.Scope(name, func() {
		w := b.Param("weight", graph.KaimingNormal(out*kernel*kernel), out, x.Shape().Last(), kernel, kernel)
		var c *graph.Value
		if bias {
			c = b.Param("bias", graph.Zeros(), out)
		}
		y = b.Conv2D(graph.Conv(1, kernel/2), x, w, c)
	})
	return y
}

// needsBatch reports whether a batch norm uses the statistics of the micro-batch in training, which one
// example does not have. Norms that adapters leave frozen do not.
func (m *Model) needsBatch(adapters *nn.Adapters) bool {
	if m.Norm != "batch" || m.Architecture == "cnn" {
		return false
	}
	n := &net{Model: m, adapters: adapters}
	for i := range m.Channels {
		if !n.frozen(fmt.Sprintf("stages.%d.norm", i)) {
			return true
		}
	}
	for i := range denseLayers {
		if !n.frozen(fmt.Sprintf("dense.%d.norm", i)) {
			return true
		}
	}
	return false
}

// norm normalizes the channels of x, by batch or by group. A frozen norm uses the running statistics even in
// training. Otherwise the adapters would fit a model different from that of evaluations.
func (n *net) norm(b *graph.Builder, name string, x *graph.Value) (y *graph.Value) {
	b.Scope(name, func() {
		c := x.Shape().Last()
		gamma, beta := b.Param("weight", graph.Ones(), c), b.Param("bias", graph.Zeros(), c)
		if n.Norm == "group" {
			y = b.GroupNorm(x, gamma, beta, n.Groups, normEps)
			return
		}
		running := func(name string, init graph.Init) *graph.Value {
			return b.State(&graph.State{Name: b.Path(name), Type: graph.T(graph.F32, c), Role: n.role(b.Layer()), Init: init})
		}
		mean, variance := running("running_mean", graph.Zeros()), running("running_var", graph.Ones())
		switch train := n.train && !n.frozen(b.Layer()); {
		case train && n.NormByFrame && len(x.Shape()) == 4:
			y = n.normByFrame(b, x, gamma, beta, mean, variance)
		case train:
			y = b.BatchNorm(x, gamma, beta, mean, variance, momentum, normEps)
		default:
			y = b.BatchNormEval(x, gamma, beta, mean, variance, normEps)
		}
	})
	return y
}

// normByFrame normalizes images x [B*steps,h,w,C] separately for each frame of the window, with the
// statistics of the micro-batch at that time, as a program does that passes one frame after another through
// its network. The running statistics move once for each frame.
func (n *net) normByFrame(b *graph.Builder, x, gamma, beta, mean, variance *graph.Value) *graph.Value {
	s, t := x.Shape(), n.steps()
	windows := b.Reshape(x, n.rows, t, s[1]*s[2], s[3])
	frames := make([]*graph.Value, t)
	for i := range frames {
		f := b.Reshape(b.Slice(windows, 1, i, 1), n.rows, s[1], s[2], s[3])
		y := b.Emit(graph.ChannelNorm{Eps: normEps}, f, gamma, beta)
		moved := b.Emit(graph.RunningStats{Momentum: momentum, Rows: f.Shape().Rows()}, mean, variance, y[1], y[2])
		mean, variance = moved[0], moved[1]
		frames[i] = b.Reshape(y[0], n.rows, 1, s[1]*s[2], s[3])
	}
	return b.Reshape(b.Concat(1, frames...), s...)
}

func (n *net) dropout(b *graph.Builder, x *graph.Value, p float64) *graph.Value {
	if !n.train {
		return x
	}
	return b.Dropout(x, p, n.seed)
}

// dropChannels drops whole channels of the images x [N,H,W,C] (Tompson et al. 2015).
func (n *net) dropChannels(b *graph.Builder, x *graph.Value) *graph.Value {
	if !n.train || n.Dropout == 0 {
		return x
	}
	s := x.Shape()
	return b.Mul(x, b.Dropout(b.BroadcastTo(b.Scalar(1), s[0], 1, 1, s[3]), n.Dropout, n.seed))
}

// attend weights the pixels of images: x * sigmoid(conv1x1(relu(conv3x3(x)))).
func (n *net) attend(b *graph.Builder, x *graph.Value) (y *graph.Value) {
	b.Block("spatial_attention", func() {
		h := b.Relu(conv(b, "conv1", x, 1, 3, true))
		y = b.Mul(x, b.Sigmoid(conv(b, "conv2", h, 1, 1, true)))
	})
	return y
}

// film scales and shifts the channels of images x [B*steps,H,W,C] as a function of the angles a [B,A] (Perez
// et al. 2018).
func (n *net) film(b *graph.Builder, x, a *graph.Value) (y *graph.Value) {
	s := x.Shape()
	c := s[3]
	b.Scope("film", func() {
		h := linear(b, "1", b.Relu(linear(b, "0", a, filmWidth)), 2*c)
		gamma, beta := b.Slice(h, 1, 0, c), b.Slice(h, 1, c, c)
		if n.FilmIdentity {
			gamma = b.AddC(gamma, 1)
		}
		x = b.Reshape(x, n.rows, s[0]/n.rows*s[1]*s[2], c)
		x = b.Add(b.Mul(x, b.Reshape(gamma, n.rows, 1, c)), b.Reshape(beta, n.rows, 1, c))
		y = b.Reshape(x, s...)
	})
	return y
}

// features returns the maps after the convolutions: [B*steps, h, w, C]. If a is nil, nothing is modulated.
func (n *net) features(b *graph.Builder, x, a *graph.Value) *graph.Value {
	if n.SpatialAttention {
		x = n.attend(b, x)
	}
	for i, c := range n.Channels {
		b.Block(fmt.Sprintf("stages.%d", i), func() {
			x = n.norm(b, "norm", conv(b, "conv", x, c, 3, !n.idle()))
			if i == 0 && a != nil {
				x = b.MaxPool2D(n.film(b, b.LeakyRelu(x, leak), a), 2, 2, 0)
			} else {
				// The function is monotonic, so applying it after the maximum gives the same result for a
				// quarter of the work.
				x = b.LeakyRelu(b.MaxPool2D(x, 2, 2, 0), leak)
			}
			x = n.dropChannels(b, x)
		})
	}
	return x
}

// dense is the head: [B, C] to the scaled height [B].
func (n *net) dense(b *graph.Builder, x *graph.Value) (y *graph.Value) {
	b.Scope("dense", func() {
		for i, width := range []int{n.size(), n.size() / 2} {
			b.Scope(fmt.Sprint(i), func() {
				h := nn.Linear(b, "linear", x, width, !n.idle(), graph.XavierNormal(x.Shape().Last(), width))
				x = b.LeakyRelu(n.norm(b, "norm", h), leak)
			})
			x = n.dropout(b, x, n.DenseDropout[i])
		}
	})
	b.Scope("output", func() {
		w := b.Param("weight", graph.Normal(0.5), 1, n.size()/2)
		// The last matmul stays float32 in any precision, because it is the prediction.
		y = b.Emit(graph.MatMul{TransB: true, Out: graph.F32}, x, w)[0]
		y = b.Reshape(b.Add(y, b.Param("bias", graph.Const(0.1), 1)), n.rows)
	})
	return y
}

// scaled returns the prediction in units of the training labels: [B].
func (n *net) scaled(b *graph.Builder) *graph.Value {
	if n.Architecture == "cnn" {
		return n.plain(b)
	}
	maps := n.features(b, n.pictures(b), n.angles(b))
	if n.Architecture == "gnn" {
		maps = n.grid(b, maps)
	}
	h := b.GlobalAvgPool2D(maps)
	return n.dense(b, n.overTime(b, b.Reshape(h, n.rows, n.steps(), h.Shape().Last())))
}

// plain is the guide's baseline: the mean image, convolutions without normalization or angles, and a head of
// layers with ReLU.
func (n *net) plain(b *graph.Builder) (y *graph.Value) {
	x := b.Input(inputImages, graph.T(graph.F32, n.rows, n.Frames, n.Height, n.Width))
	x = b.Reshape(b.Mean(x, 1), n.rows, n.Height, n.Width, 1)
	for i, c := range n.Channels {
		b.Block(fmt.Sprintf("stages.%d", i), func() {
			x = b.MaxPool2D(b.Relu(conv(b, "conv", x, c, 3, true)), 2, 2, 0)
		})
	}
	x = b.GlobalAvgPool2D(x)
	b.Scope("dense", func() {
		for i, width := range []int{n.size(), n.size() / 2} {
			x = n.dropout(b, b.Relu(linear(b, fmt.Sprint(i), x, width)), n.DenseDropout[i])
		}
	})
	return b.Reshape(linear(b, "output", x, 1), n.rows)
}

// objective returns the weighted loss of a micro-batch.
func (n *net) objective(b *graph.Builder, l *Loss) engine.Objective {
	y := n.scaled(b)
	mean, std := n.scaleState(b, stateBase, 1)
	truth := b.Div(b.Sub(b.Input(inputBase, graph.T(graph.F32, n.rows)), mean), std)
	var o engine.Objective
	b.Scope("loss", func() {
		weights := b.Input(inputWeights, graph.T(graph.F32, n.rows))
		o.Sum = l.total(b, b.Mul(l.each(b, y, truth), weights), n.train)
	})
	if !n.train {
		o.Outputs = []graph.Output{{Name: outputBase, Value: b.Add(b.Mul(y, std), mean)}}
	}
	return o
}

func describe(c *config.Config) (*system.Model, error) {
	m, l, t := config.Of[Model](c), config.Of[Loss](c), &c.Training
	masked := config.Of[Phases](c).Run == "mae"
	lora := config.Of[system.LoRA](c)
	adapters := lora.Adapters(t.Seed)
	least := 1
	if m.needsBatch(adapters) {
		least = 2 // one example does not deviate from the mean of its micro-batch
	}
	return &system.Model{
		LeastRows: least, Least: lora.LeastFrozen((&net{Model: m}).least(masked)), AllReached: lora.AllReached(),
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, EvalBatch: t.EvalBatchSize},
		Unit:  "windows", UnitsPerRow: 1, RateWidth: m.Channels[len(m.Channels)-1],
		Training: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Eval = true
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				n := &net{Model: m, seed: t.Seed, rows: s.Rows(mode.Train), train: mode.Train, adapters: adapters}
				if masked {
					return n.reconstruct(b)
				}
				return n.objective(b, l)
			}
			return system.Adapt(tr, adapters, graph.Invalid)
		},
		Summary: map[string]any{
			"architecture": m.Architecture, "height": m.Height, "width": m.Width, "frames": m.Frames, "view": m.View,
			"channels": m.Channels, "norm": m.Norm, "angles": m.Angles,
		},
	}, nil
}
