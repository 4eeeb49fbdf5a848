package cuda

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/counts"
)

// epilogue is applied to the result of a product before it is stored: a body whose first input is the
// product, run on four neighbors of a row at a time.
type epilogue struct {
	body *graph.Body
	// first is the format that the product is rounded to.
	first graph.DType
	cols  int
	in    []placed // inputs 1, 2, ... of the body
	out   []placed // its results, with the shape of the product
}

// placed is an operand or result of an epilogue.
type placed struct {
	dtype  graph.DType
	at     address
	extent extent
}

// extent says which elements of the result share an element of an operand.
type extent uint8

const (
	full extent = iota
	perColumn
	perRow
	scalar
	counter // the counter of runs, for dropout
	// perGroup has an element for each column and block along z.
	perGroup
)

// wide reports whether neighbors in a row have elements of their own.
func (o placed) wide() bool { return o.extent == full || o.extent == perColumn || o.extent == perGroup }

// maxPlaced is how many operands and results a kernel can take; see kernels/place.h.
const maxPlaced = 12

// plain is the epilogue that only stores the product.
func plain(d graph.DType, cols int, to address) *epilogue {
	return &epilogue{body: &graph.Body{Inputs: 1, Results: []int{0}}, first: d, cols: cols, out: []placed{{dtype: d, at: to}}}
}

// extentOf says how an operand broadcasts to a result of rows and columns.
func extentOf(s, result graph.Shape) (extent, bool) {
	rows, cols := result.Rows(), result.Last()
	strides := s.Strides(result)
	apart := slices.ContainsFunc(strides[:len(strides)-1], func(n int) bool { return n != 0 })
	switch n := int(s.Elems()); {
	case n == rows*cols:
		return full, true
	case n == 1:
		return scalar, true
	case !apart && n == cols:
		return perColumn, true
	case n == rows && s.Last() == 1 && len(s) == len(result):
		return perRow, true
	}
	return 0, false
}

// substitute is the text of a kernel, from its parameters on, with an epilogue in its places, and what these are
// for.
func (ep *epilogue) substitute(target int, kernel string) (string, listing, error) {
	text, err := kernels.Kernel(target, kernel)
	if err != nil {
		return "", nil, err
	}
	steps, err := stepsOf(target)
	if err != nil {
		return "", nil, err
	}
	// The last parameter holds the addresses.
	at := strings.LastIndex(text, ".param .align 8 .b8 ")
	if at < 0 {
		return "", nil, fmt.Errorf("kernel %s has no places", kernel)
	}
	name, _, _ := strings.Cut(text[at+len(".param .align 8 .b8 "):], "[")
	w := &placeWriter{epilogue: ep, steps: steps, param: name, held: map[string]int{}}
	var out strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		what, place, ok := parsePlace(line)
		if !ok {
			out.WriteString(line)
			continue
		}
		if err := w.place(&out, what, place); err != nil {
			return "", nil, fmt.Errorf("kernel %s: %w", kernel, err)
		}
	}
	head, body, _ := strings.Cut(out.String(), "\n{\n")
	own := w.declarations()
	return head + "\n{\n" + own + body, w.listing.moved(len(own)), nil
}

// parsePlace parses a line "//@name key=register ...".
func parsePlace(line string) (name string, keys map[string]string, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "//@")
	if !ok {
		return "", nil, false
	}
	fields := strings.Fields(rest)
	keys = map[string]string{}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		keys[k] = v
	}
	return fields[0], keys, true
}

// placeWriter writes an epilogue into the places of one kernel.
type placeWriter struct {
	*epilogue
	steps map[string]*step
	param string
	calls int
	// held counts the registers that live from a load to its body, by the prefix of their names.
	held map[string]int
	// listing says what was written, without the declarations.
	listing listing
}

func (w *placeWriter) declarations() string {
	var s strings.Builder
	for _, prefix := range slices.Sorted(func(yield func(string) bool) {
		for k := range w.held {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(&s, "\t.reg .b32 %s<%d>;\n", prefix, w.held[prefix])
	}
	return s.String()
}

const lanes = 4 // neighbors in a place

// words are the registers that hold what load number u reads of operand i.
func (w *placeWriter) words(u string, i int, o placed) []string {
	prefix := fmt.Sprintf("%%held_%s_%d_", u, i)
	n := 1
	switch {
	case o.wide():
		n = wordsOf(o.dtype, lanes)
		if w.cols%lanes != 0 {
			n = lanes
		}
	}
	w.held[prefix] = n
	words := make([]string, n)
	for k := range words {
		words[k] = prefix + strconv.Itoa(k)
	}
	return words
}

func (w *placeWriter) place(out *strings.Builder, what string, at map[string]string) error {
	e := &emitter{steps: w.steps, calls: w.calls}
	// Steps declare their own registers, which would hide the kernel's.
	row, col := e.fresh(), e.fresh()
	e.put("mov.b32 %s, %s", row, at["row"])
	e.put("mov.b32 %s, %s", col, at["col"])
	e.put("setp.ne.u32 %%inside, %s, 0", at["ok"])
	var err error
	switch what {
	case "load":
		for i, o := range w.in {
			e.reads(i+1, o.dtype)
			w.load(e, at["u"], i, o, row, col)
		}
	case "body":
		err = w.run(e, at, row, col)
	default:
		err = fmt.Errorf("there is no place %q", what)
	}
	w.calls = e.calls
	fmt.Fprintf(out, "\t{\n\t.reg .pred %%inside, %%also;\n\t.reg .b32 %%v<%d>;\n\t.reg .b64 %%w<%d>;\n", e.n, max(e.m, 1))
	e.says("")
	w.listing = append(w.listing, e.listing.moved(out.Len())...)
	out.WriteString(e.text.String() + "\t}\n")
	return err
}

// address computes the address of the operand's element for (row, col).
func (w *placeWriter) address(e *emitter, slot int, o placed, row, col string) string {
	at := e.wide()
	e.put("ld.param.u64 %s, [%s+%d]", at, w.param, 8*slot)
	e.put("cvta.to.global.u64 %s, %s", at, at)
	var index string
	switch o.extent {
	case full:
		bytes := e.wide()
		e.put("mul.lo.u64 %s, %s, %d", bytes, w.index(e, row, col), o.dtype.Size())
		e.put("add.u64 %s, %s, %s", at, at, bytes)
		return at
	case perColumn:
		index = col
	case perRow:
		index = row
	case perGroup:
		index = e.fresh()
		e.put("mov.u32 %s, %%ctaid.z", index)
		e.put("mad.lo.u32 %s, %s, %d, %s", index, index, w.cols, col)
	default:
		return at
	}
	e.put("mad.wide.u32 %s, %s, %d, %s", at, index, o.dtype.Size(), at)
	return at
}

// work counts the epilogue's work: places is how often a warp runs a place, elems the size of the result.
func (ep *epilogue) work(x *launch, places, elems int) {
	x.bodyWork(ep.body, lanes, places, ep.cols%lanes == 0)
	if ep.first.Half() {
		x.adds("step round_"+ep.first.String(), places*lanes)
	}
	for i, o := range slices.Concat(ep.in, ep.out) {
		accesses, width := 1, lanes
		if !o.wide() {
			width = 1
		} else if ep.cols%lanes != 0 {
			accesses = lanes
		}
		x.adds("place access", places*accesses).adds("place operand", places)
		if i < len(ep.in) {
			x.reads(o.dtype, width, places)
		} else {
			for range accesses {
				x.writes(o.dtype, width/accesses, places)
			}
		}
		switch o.extent {
		case full:
			bytes := int64(elems) * o.dtype.Size()
			x.adds(counts.Sector, accesses*int(ceil(bytes, 32))).moves(bytes)
		case perColumn, perGroup: // read again by a warp for each of its rows
			x.adds(counts.Sector, accesses*places*32*int(o.dtype.Size())/32)
		}
	}
}

// index computes the index of the element (row, col) in the result.
func (w *placeWriter) index(e *emitter, row, col string) string {
	i, c := e.wide(), e.wide()
	e.put("mul.wide.u32 %s, %s, %d", i, row, w.cols)
	e.put("cvt.u64.u32 %s, %s", c, col)
	e.put("add.u64 %s, %s, %s", i, i, c)
	return i
}

// guard sets %also if lane k is inside a row whose length is not a multiple of the lanes.
func (w *placeWriter) guard(e *emitter, col string, k int) string {
	c := e.fresh()
	e.put("add.u32 %s, %s, %d", c, col, k)
	e.put("setp.lt.and.u32 %%also, %s, %d, %%inside", c, w.cols)
	return "@%also "
}

func (w *placeWriter) load(e *emitter, u string, i int, o placed, row, col string) {
	words := w.words(u, i, o)
	for _, r := range words {
		e.put("mov.b32 %s, 0", r)
	}
	at := w.address(e, i, o, row, col)
	switch {
	case !o.wide():
		e.loadWords("@%inside ", o.dtype, at, 1, words)
	case w.cols%lanes == 0:
		e.loadWords("@%inside ", o.dtype, at, lanes, words)
	default:
		for k := range lanes {
			e.loadWords(w.guard(e, col, k), o.dtype, fmt.Sprintf("%s+%d", at, int64(k)*o.dtype.Size()), 1, words[k:k+1])
		}
	}
}

func (w *placeWriter) run(e *emitter, at map[string]string, row, col string) error {
	e.says("r0 is the product, %v", w.first)
	first := make([]string, lanes)
	for k := range first {
		first[k] = e.fresh()
		e.put("mov.b32 %s, %s", first[k], at[fmt.Sprintf("v%d", k)])
	}
	first, err := e.round(w.first, first)
	if err != nil {
		return err
	}
	values := [][]string{first}
	for i, o := range w.in {
		e.reads(i+1, o.dtype)
		words := w.words(at["u"], i, o)
		var v []string
		switch {
		case !o.wide():
			v, err = e.unpack(o.dtype, 1, words)
		case w.cols%lanes == 0:
			v, err = e.unpack(o.dtype, lanes, words)
		default:
			for k := range lanes {
				x, err := e.unpack(o.dtype, 1, words[k:k+1])
				if err != nil {
					return err
				}
				v = append(v, x...)
			}
		}
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	for i, s := range w.body.Instrs {
		e.says("%s", w.body.InstrString(i))
		v, err := e.step(s, values, lanes, func(op graph.Dropout, run string) ([]string, error) {
			return e.words(op, lanes, w.cols%lanes == 0, w.index(e, row, col), run)
		})
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	for i, o := range w.out {
		e.writes(i, w.body.Results[i], o.dtype)
		v := values[w.body.Results[i]]
		for len(v) < lanes {
			v = append(v, v[0])
		}
		at := w.address(e, len(w.in)+i, o, row, col)
		if w.cols%lanes == 0 {
			if err := e.store("@%inside ", o.dtype, at, v); err != nil {
				return err
			}
			continue
		}
		for k := range lanes {
			if err := e.store(w.guard(e, col, k), o.dtype, fmt.Sprintf("%s+%d", at, int64(k)*o.dtype.Size()), v[k:k+1]); err != nil {
				return err
			}
		}
	}
	return nil
}
