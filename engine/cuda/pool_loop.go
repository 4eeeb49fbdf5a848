package cuda

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// window makes a loop run over the windows that divide images: its elements are those of a pool's result, and the body
// computes those of the images. Maxima and gradients have the bits of kernels/pool.cu.
type window struct {
	taps int
	grad bool // the loop reads dy and y last, and writes the gradient of the images
}

// size is how often the body runs for an element of the loop.
func (w *window) size() int {
	if w == nil {
		return 1
	}
	return w.taps
}

// poolLoop generates the loop of a pool with a body, of which in are the inputs; y is the result.
func (l *lowering) poolLoop(op graph.Pool2D, in []*graph.Value, y graph.Shape) *loop {
	var images graph.Shape // [...,H,W,C]
	for _, v := range in {
		images, _ = graph.Broadcast(images, v.Shape()) // as checked when the operation was made
	}
	h, w, taps := len(images)-3, len(images)-2, op.Kernel[0]*op.Kernel[1]
	k := newLoop(op.Body, append(slices.Clone(images[:h]), y[1], y[2], y[3]))
	k.window = &window{taps: taps}
	for i, v := range in {
		k.in[i] = strided{dtype: v.DType(), at: l.at(v)}
		k.in[i].stride, k.in[i].taps = windowed(op, v.Shape().Strides(images), h, w)
	}
	return k
}

// windowed returns the strides from window to window of an operand with strides of images, whose rows and columns are
// dimensions h and w, and how far the elements of a window are from the first; nil if all are the same.
func windowed(op graph.Pool2D, images []int, h, w int) (stride, taps []int) {
	stride = slices.Clone(images)
	stride[h] *= op.Kernel[0]
	stride[w] *= op.Kernel[1]
	if images[h] == 0 && images[w] == 0 {
		return stride, nil
	}
	for i := range op.Kernel[0] {
		for j := range op.Kernel[1] {
			taps = append(taps, i*images[h]+j*images[w])
		}
	}
	return stride, taps
}

func (l *lowering) pooled(n *graph.Node, op graph.Pool2D) {
	y := n.Out[0]
	k := l.poolLoop(op, n.In, y.Shape())
	k.write(y.DType(), l.at(y), k.dims.Strides(k.dims))
	l.loop(k)
}

func (l *lowering) pooledGrad(n *graph.Node, op graph.Pool2DGrad) {
	last := len(n.In) - 1
	dy, y, dx := n.In[0], n.In[last], n.Out[0]
	k := l.poolLoop(op.Pool, n.In[1:last], dy.Shape())
	k.window.grad = true
	for _, v := range []*graph.Value{dy, y} {
		k.in = append(k.in, strided{dtype: v.DType(), at: l.at(v), stride: k.dims.Strides(k.dims)})
	}
	h := len(k.dims) - 3
	images := slices.Clone(k.dims)
	images[h] *= op.Pool.Kernel[0]
	images[h+1] *= op.Pool.Kernel[1]
	to := strided{dtype: dx.DType(), at: l.at(dx)}
	to.stride, to.taps = windowed(op.Pool, images.Strides(images), h, h+1)
	k.out = append(k.out, to)
	l.loop(k)
}

// windows emits what becomes of the windows of a chunk.
func (k *loop) windows(e *emitter, chunk string) error {
	k.coordinates(e, chunk)
	n := k.body.Inputs // of the loop's operands, dy and y follow
	says := func(i int) {
		switch d := k.in[i].dtype; {
		case !k.window.grad:
			e.reads(i, d)
		case i < n:
			e.says("r%d is operand %d, %v", i, i+1, d)
		case i == n:
			e.says("operand 0 is dy, %v", d)
		default:
			e.says("operand %d is y, %v", i, d)
		}
	}
	load := func(i int, at string, tap int) ([]string, error) {
		o := k.in[i]
		return e.load(o.dtype, fmt.Sprintf("%s+%d", at, int64(tap)*o.dtype.Size()), k.neighbors(o))
	}
	at := make([]string, len(k.in))
	loaded := make([][]string, len(k.in))
	var err error
	for i, o := range k.in {
		says(i)
		if at[i] = k.address(e, i, o); o.taps != nil {
			continue
		}
		if loaded[i], err = load(i, at[i], 0); err != nil {
			return err
		}
	}
	to := k.out[0]
	into := k.address(e, len(k.in), to)
	var most []string
	if k.window.grad {
		for j, v := range loaded[n] {
			most = append(most, e.fresh()) // what is left of dy, as a sum of gradients: never -0
			e.put("add.f32 %s, %s, 0f00000000", most[j], v)
		}
	}
	for tap := range k.window.taps {
		values := slices.Clone(loaded[:n])
		for i := range values {
			if taps := k.in[i].taps; taps != nil {
				says(i)
				if values[i], err = load(i, at[i], taps[tap]); err != nil {
					return err
				}
			}
		}
		if values, err = k.run(e, chunk, values); err != nil {
			return err
		}
		x := values[k.body.Results[0]]
		switch {
		case k.window.grad:
			e.writes(0, k.body.Results[0], to.dtype)
			if err := e.store("", to.dtype, fmt.Sprintf("%s+%d", into, int64(to.taps[tap])*to.dtype.Size()), e.takes(x, loaded[n+1], most)); err != nil {
				return err
			}
		case tap == 0:
			most = x
		default:
			for j := range most {
				if most[j], err = e.call("max", x[j], most[j]); err != nil {
					return err
				}
			}
		}
	}
	if k.window.grad {
		return nil
	}
	e.writes(0, k.body.Results[0], to.dtype)
	return e.store("", to.dtype, into, most)
}

// takes emits the gradients of elements x of windows with maxima y: the first that is not less takes what is left.
func (e *emitter) takes(x, y, left []string) []string {
	grad := make([]string, len(x))
	for j := range x {
		grad[j] = e.fresh()
		e.put("setp.geu.f32 %%outside, %s, %s", x[j], y[j])
		e.put("selp.b32 %s, %s, 0, %%outside", grad[j], left[j])
		e.put("selp.b32 %s, 0, %s, %%outside", left[j], left[j])
	}
	return grad
}
