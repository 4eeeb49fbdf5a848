package inference

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// shortestWindow is the length of the smallest window.
const shortestWindow = 32

// uncached is a decoder for models without a cache. The model is compiled for windows of
// several lengths, and each token is computed in the smallest that fits the text: being
// causal, the model does not see what follows. Rows take turns: each window is its own
// micro-batch.
type uncached struct {
	x       *engine.Executable
	windows []int // ascending
	texts   [][]int32
	seen    []Seen // what accompanies the text of each row
}

func newUncached(l *Language, rows, context int, variants []variant, on engine.Backend, ready func(p *engine.Program) error) (*uncached, error) {
	d := &uncached{texts: make([][]int32, rows), seen: make([]Seen, rows)}
	var funcs []*graph.Func
	err := graph.Catch(func() {
		for n := min(shortestWindow, context); ; n = min(2*n, context) {
			for _, v := range variants {
				b := graph.NewBuilder(window(v.name, n))
				ids := b.Input(windowIDs(n), graph.T(graph.I32, 1, n))
				b.Output(outputLogits, b.Cast(v.logits(b, ids, vector(b, "last", 1)), graph.F32))
				funcs = append(funcs, b.F)
			}
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

// window returns the name of a variant's function for a length, windowIDs the name of its
// tokens.
func window(variant string, n int) string { return fmt.Sprint(variant, n) }
func windowIDs(n int) string              { return fmt.Sprint("ids.window", n) }

func (d *uncached) known(row int) int    { return len(d.texts[row]) }
func (d *uncached) forget(row int)       { d.texts[row] = d.texts[row][:0] }
func (d *uncached) show(row int, s Seen) { d.seen[row] = s }
func (d *uncached) hold() func()         { return d.x.Hold() }
func (d *uncached) Close() error         { return d.x.Close() }

// prefill has nothing to compute except for the last token, unless each is to be scored.
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
		n := d.windows[w]
		fn := window(textVariant, n)
		if seen := d.seen[f.row]; seen != nil {
			fn = window(mediaVariant, n)
			for name, x := range seen {
				in, _ := d.x.Input(0, name)
				copy(in.F32(), x)
			}
		}
		in, _ := d.x.Input(0, windowIDs(n))
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
