package inference

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// decoder computes what follows texts, each in its own row.
type decoder interface {
	// prefill runs tokens of a row whose logits are not needed, and returns how
	// many of ids it ran, fewer than all of them. With score it passes on the
	// logits after each of those.
	prefill(row int, ids []int32, score func(i int, logits []float32)) (n int, err error)
	// step runs one token in each of some rows and passes on the logits after it, which
	// are valid during the call.
	step(fed []fed, each func(i int, logits []float32) error) error
	// known is how many tokens a row holds; forget removes them.
	known(row int) int
	forget(row int)
	// show sets what accompanies a row's text, until it is set again.
	show(row int, s Seen)
	hold() (release func())
	Close() error
}

// fed is a token for a row. Rows ascend.
type fed struct {
	row int
	id  int32
}

// prefillTokens is how many tokens of a prompt go through the model at a time, if it has
// that many positions.
const prefillTokens = 32

// groupRows is how many rows are computed at once. Matmuls with so few rows read the
// weights in place, and a row's sums have the same order however many rows there are
// (rowDot in engine/cpu), so a text does not depend on its neighbors. With more rows the
// weights would be packed again for every token, which takes longer.
const groupRows = 4

// group is a set of rows that are computed at once. Its functions are decode for its
// first 1, 2 or 4 rows and prefill for any one of them.
type group struct {
	first, rows int
	suffix      string // of the names of its functions and states
	decodes     []decode
	// at and lens are inputs: where each row is written, and how many of its tokens are
	// known.
	at, lens []int32
}

// decode is a function that runs one token of each of the first rows of a group.
type decode struct {
	rows int
	name string
	ids  []int32 // its input
}

// covering returns the smallest decode that includes a row of the group.
func (g *group) covering(row int) *decode {
	i := slices.IndexFunc(g.decodes, func(d decode) bool { return row < g.first+d.rows })
	return &g.decodes[i]
}

// cached is a decoder on a key-value cache.
type cached struct {
	x      *engine.Executable
	groups []group
	counts []int // of the tokens of each row
	// context is how many tokens a row of the cache holds, chunk how many a prefill
	// runs.
	context, chunk int
	// Inputs of prefill: its tokens, their row in the group and where they begin.
	ids, row, start []int32
}

// The functions of a group, and their inputs and output.
const (
	decodeName, prefillName, scoreName = "decode", "prefill", "score"

	inputAt, inputLens   = "at", "lens"              // I32 [rows of the group]
	inputIDs             = "ids"                     // I32 [rows of decode, 1]
	inputPrompt          = "prompt"                  // I32 [1, T]
	inputRow, inputStart = "prompt.row", "prompt.at" // I32 [1]
	outputLogits         = "logits"
)

// newCached lays out rows and builds their functions; load makes them ready.
func newCached(l *Language, rows, context int, scores bool) (*cached, []*graph.Func, error) {
	d := &cached{chunk: min(prefillTokens, context), counts: make([]int, rows), context: context}
	positions := context
	if rows > 1 {
		positions += d.chunk // where rows that are not computed may write
	}
	var funcs []*graph.Func
	add := func(name string, build func(b *graph.Builder)) {
		b := graph.NewBuilder(name)
		b.StoreMatrices(l.Store)
		build(b)
		funcs = append(funcs, b.F)
	}
	err := graph.Catch(func() {
		for first := 0; first < rows; first += groupRows {
			g := group{first: first, rows: min(groupRows, rows-first)}
			if rows > groupRows {
				g.suffix = fmt.Sprintf("@%d", first)
			}
			for _, n := range []int{1, 2, groupRows} {
				if n = min(n, g.rows); len(g.decodes) > 0 && g.decodes[len(g.decodes)-1].rows == n {
					break
				}
				f := decode{rows: n, name: fmt.Sprint(decodeName, n, g.suffix)}
				g.decodes = append(g.decodes, f)
				add(f.name, func(b *graph.Builder) { g.build(b, l, positions, n) })
			}
			d.groups = append(d.groups, g)
			add(prefillName+g.suffix, func(b *graph.Builder) { g.buildPrefill(b, l, positions, d.chunk, false) })
			if scores {
				add(scoreName+g.suffix, func(b *graph.Builder) { g.buildPrefill(b, l, positions, d.chunk, true) })
			}
		}
	})
	return d, funcs, err
}

func vector(b *graph.Builder, name string, n int) *graph.Value {
	return b.Input(name, graph.T(graph.I32, n))
}

// cache returns the group's cache, without the rows to compute.
func (g *group) cache(positions int) *nn.KVCache {
	c := &nn.KVCache{Rows: g.rows, Positions: positions}
	if g.suffix != "" {
		c.Name = func(path string) string { return path + g.suffix }
	}
	return c
}

// build builds decode for the first n rows.
func (g *group) build(b *graph.Builder, l *Language, positions, n int) {
	c := g.cache(positions)
	c.Lens = vector(b, fmt.Sprint(inputLens, g.rows), g.rows)
	at := vector(b, fmt.Sprint(inputAt, g.rows), g.rows)
	if c.At = b.Slice(at, 0, 0, n); n < g.rows {
		c.To = at
	}
	ids := b.Input(fmt.Sprint(inputIDs, n), graph.T(graph.I32, n, 1))
	b.Output(outputLogits, b.Cast(l.Cached.Logits(b, ids, c), graph.F32))
}

// buildPrefill builds the function that runs t tokens of a row, with or without their
// logits.
func (g *group) buildPrefill(b *graph.Builder, l *Language, positions, t int, scores bool) {
	c := g.cache(positions)
	c.Lens = vector(b, fmt.Sprint(inputLens, g.rows), g.rows)
	if at := vector(b, fmt.Sprint(inputAt, g.rows), g.rows); g.rows == 1 {
		c.At = at
	} else {
		c.To, c.At, c.Row = at, vector(b, inputStart, 1), vector(b, inputRow, 1)
	}
	logits := l.Cached.Logits(b, b.Input(inputPrompt, graph.T(graph.I32, 1, t)), c)
	if scores {
		b.Output(outputLogits, b.Cast(logits, graph.F32))
	}
}

func (d *cached) known(row int) int { return d.counts[row] }
func (d *cached) forget(row int)    { d.counts[row] = 0 }
func (d *cached) show(int, Seen)    {} // a model on a cache reads only text
func (d *cached) hold() func()      { return d.x.Hold() }
func (d *cached) Close() error      { return d.x.Close() }

// bind finds the inputs of the loaded program.
func (d *cached) bind() {
	in := func(name string) []int32 {
		t, ok := d.x.Input(0, name)
		if !ok {
			return nil
		}
		return t.I32()
	}
	d.ids, d.row, d.start = in(inputPrompt), in(inputRow), in(inputStart)
	for i := range d.groups {
		g := &d.groups[i]
		g.at, g.lens = in(fmt.Sprint(inputAt, g.rows)), in(fmt.Sprint(inputLens, g.rows))
		for k := range g.decodes {
			g.decodes[k].ids = in(fmt.Sprint(inputIDs, g.decodes[k].rows))
		}
	}
}

func (d *cached) groupOf(row int) *group { return &d.groups[row/groupRows] }

func (d *cached) prefill(row int, ids []int32, score func(i int, logits []float32)) (int, error) {
	if len(ids) <= d.chunk {
		return 0, nil
	}
	g, start := d.groupOf(row), d.counts[row]
	for i := range g.at {
		g.at[i], g.lens[i] = int32(d.context), 1
	}
	i := row - g.first
	g.at[i], g.lens[i] = int32(start), int32(start+d.chunk)
	if len(g.at) > 1 {
		d.row[0], d.start[0] = int32(i), int32(start)
	}
	copy(d.ids, ids[:d.chunk])
	fn := prefillName + g.suffix
	if score != nil {
		fn = scoreName + g.suffix
	}
	if err := d.x.Run(fn, 0); err != nil {
		return 0, err
	}
	d.counts[row] += d.chunk
	if score == nil { // the inputs are overwritten next
		return d.chunk, d.x.Sync()
	}
	logits, err := d.x.OutputF32(fn, outputLogits)
	if err != nil {
		return 0, err
	}
	vocab := len(logits) / d.chunk
	for k := range d.chunk {
		score(k, logits[k*vocab:(k+1)*vocab])
	}
	return d.chunk, nil
}

func (d *cached) step(list []fed, each func(i int, logits []float32) error) error {
	for from := 0; from < len(list); {
		g := d.groupOf(list[from].row)
		to := from
		for to < len(list) && list[to].row < g.first+g.rows {
			to++
		}
		f := g.covering(list[to-1].row)
		logits, err := d.run(g, f, list[from:to])
		if err != nil {
			return err
		}
		vocab := len(logits) / f.rows
		for ; from < to; from++ {
			k := list[from].row - g.first
			if err := each(from, logits[k*vocab:(k+1)*vocab]); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a decode of a group and returns the logits of all its rows. Those that are not
// fed write after their last token, where their next one goes.
func (d *cached) run(g *group, f *decode, list []fed) ([]float32, error) {
	for i := range g.at {
		g.at[i], g.lens[i] = int32(d.counts[g.first+i]), 1
	}
	clear(f.ids)
	for _, x := range list {
		d.counts[x.row]++
		f.ids[x.row-g.first], g.lens[x.row-g.first] = x.id, int32(d.counts[x.row])
	}
	if err := d.x.Run(f.name, 0); err != nil {
		return nil, err
	}
	return d.x.OutputF32(f.name, outputLogits)
}

// newDecoder plans a decoder and loads it, once ready accepts its program. A decoder
// without a cache has the given variants of the model.
func newDecoder(l *Language, rows, context int, scores bool, variants []variant, on engine.Backend, ready func(p *engine.Program) error) (decoder, error) {
	if l.Cached == nil {
		return newUncached(l, rows, context, variants, on, ready)
	}
	d, funcs, err := newCached(l, rows, context, scores)
	if err != nil {
		return nil, err
	}
	if d.x, err = loadReady(l, funcs, on, ready); err != nil {
		return nil, err
	}
	d.bind()
	return d, nil
}

func loadReady(l *Language, funcs []*graph.Func, on engine.Backend, ready func(p *engine.Program) error) (*engine.Executable, error) {
	p, err := compile(on, funcs)
	if err != nil {
		return nil, err
	}
	if ready != nil {
		if err := ready(p); err != nil {
			return nil, err
		}
	}
	return load(on, p, l.fill)
}
