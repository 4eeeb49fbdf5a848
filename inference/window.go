package inference

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// shortestWindow is the length of the smallest window.
const shortestWindow = 32

// uncached is a decoder for models without a cache. The model is compiled for
// windows of several lengths, and each token is computed in the smallest that holds
// the text: being causal, the model does not see what lies after it. Rows take
// turns: a window is a micro-batch of its own.
type uncached struct {
	x       *engine.Executable
	windows []int // ascending
	texts   [][]int32
}

func newUncached(l *Language, rows, context int, on engine.Backend, ready func(p *engine.Program) error) (*uncached, error) {
	d := &uncached{texts: make([][]int32, rows)}
	var funcs []*graph.Func
	err := graph.Catch(func() {
		for n := min(shortestWindow, context); ; n = min(2*n, context) {
			b := graph.NewBuilder(window(n))
			ids := b.Input("ids."+window(n), graph.T(graph.I32, 1, n))
			b.Output(outputLogits, b.Cast(l.Uncached.Logits(b, ids, vector(b, "last", 1)), graph.F32))
			funcs = append(funcs, b.F)
			d.windows = append(d.windows, n)
			if n == context {
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if d.x, err = loadReady(l, funcs, on, ready); err != nil {
		return nil, err
	}
	return d, nil
}

// window is the name of the function for a length.
func window(n int) string { return fmt.Sprintf("window%d", n) }

func (d *uncached) known(row int) int { return len(d.texts[row]) }
func (d *uncached) forget(row int)    { d.texts[row] = d.texts[row][:0] }
func (d *uncached) hold() func()      { return d.x.Hold() }
func (d *uncached) Close() error      { return d.x.Close() }

// prefill takes up all but the last token for nothing, unless each is to be scored.
func (d *uncached) prefill(row int, ids []int32, score func(i int, logits []float32)) (int, error) {
	if score != nil {
		return 0, nil
	}
	d.texts[row] = append(d.texts[row], ids[:len(ids)-1]...)
	return len(ids) - 1, nil
}

func (d *uncached) step(list []fed, each func(i int, logits []float32) error) error {
	for i, f := range list {
		d.texts[f.row] = append(d.texts[f.row], f.id)
		text := d.texts[f.row]
		w, _ := slices.BinarySearch(d.windows, len(text))
		fn := window(d.windows[w])
		in, _ := d.x.Input(0, "ids."+fn)
		clear(in.I32()[copy(in.I32(), text):])
		last, _ := d.x.Input(0, "last")
		last.I32()[0] = int32(len(text) - 1)
		if err := d.x.Run(fn, 0); err != nil {
			return err
		}
		logits, err := d.x.OutputF32(fn, outputLogits)
		if err != nil {
			return err
		}
		if err := each(i, logits); err != nil {
			return err
		}
	}
	return nil
}
