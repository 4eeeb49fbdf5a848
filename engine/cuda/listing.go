package cuda

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
)

// listing says what the lines of a generated kernel are for, in order. It is kept beside the PTX, which a card is
// given without it; a driver that can say in which line an error happened gets both (see [driver.Describer]).
type listing []passage

// passage is a part of a text, up to the next passage.
type passage struct {
	from int    // byte
	what string // empty: not generated
}

// moved is the listing of a text in which its own begins at a byte.
func (l listing) moved(by int) listing {
	out := slices.Clone(l)
	for i := range out {
		out[i].from += by
	}
	return out
}

// at is what a byte of the text is for.
func (l listing) at(offset int) string {
	i, found := slices.BinarySearchFunc(l, offset, func(p passage, at int) int { return p.from - at })
	if !found {
		i--
	}
	if i < 0 {
		return ""
	}
	return l[i].what
}

// says begins a passage of what is emitted.
func (e *emitter) says(format string, args ...any) {
	e.listing = append(e.listing, passage{e.text.Len(), fmt.Sprintf(format, args...)})
}

// reads says that operand i becomes register i of a body, and writes that a register becomes result i. Registers
// are named as in the body's text.
func (e *emitter) reads(i int, d graph.DType) { e.says("r%d is operand %d, %v", i, i, d) }

func (e *emitter) writes(i, register int, d graph.DType) {
	e.says("result %d is r%d, %v", i, register, d)
}

// generated is a kernel made for a program.
type generated struct {
	text    string
	listing listing
}

// users names the operation that launches a kernel first, and counts the others.
func (c *code) users(kernel string) string {
	var first *graph.Node
	more := 0
	for _, f := range slices.Sorted(maps.Keys(c.funcs)) {
		for _, l := range c.funcs[f] {
			switch {
			case l.kernel != kernel || l.copy != nil:
			case first == nil:
				first = l.node
			default:
				more++
			}
		}
	}
	if first == nil {
		return ""
	}
	text := first.Op.Name()
	if first.Layer != "" {
		text += " of " + first.Layer
	}
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// module is the PTX of the named kernels, generated or not, so that a card assembles only what the program uses.
// says tells what its lines are for, counted from 1: the operation, and the part of its body.
func (c *code) module(names []string) (text string, says func(line int) string, err error) {
	var w strings.Builder
	fmt.Fprintf(&w, ".version 7.0\n.target sm_%d\n.address_size 64\n\n", c.target)
	starts := make([]int, len(names))
	for i, n := range names {
		starts[i] = w.Len()
		if g, ok := c.generated[n]; ok {
			w.WriteString(g.text)
			continue
		}
		body, err := kernels.Kernel(c.target, n)
		if err != nil {
			return "", nil, err
		}
		w.WriteString(".visible .entry " + n + body)
	}
	text = w.String()
	lines := sync.OnceValue(func() []int { // where they begin
		list := []int{0}
		for i := range len(text) {
			if text[i] == '\n' {
				list = append(list, i+1)
			}
		}
		return list
	})
	return text, func(line int) string {
		at := lines()[line-1]
		i, found := slices.BinarySearch(starts, at)
		if !found {
			i--
		}
		if i < 0 {
			return ""
		}
		what := c.generated[names[i]].listing.at(at - starts[i])
		if what == "" {
			return ""
		}
		return c.users(names[i]) + ": " + what
	}, nil
}

// load loads the named kernels.
func (c *code) load(ctx driver.Context, names []string) (driver.Module, error) {
	text, says, err := c.module(names)
	if err != nil {
		return nil, err
	}
	if d, ok := ctx.(driver.Describer); ok {
		return d.LoadDescribed(text, says)
	}
	return ctx.Load(text)
}
