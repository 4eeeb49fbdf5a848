package cuda

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
)

// emitter writes the instructions of a generated kernel. Every value is a fresh
// register, %v of 32 bits and %w of 64: the assembler allocates.
type emitter struct {
	steps map[string]*step
	text  strings.Builder
	n, m  int // registers so far
	calls int
	at    []string // coordinates
}

func (e *emitter) put(format string, args ...any) {
	fmt.Fprintf(&e.text, "\t"+format+";\n", args...)
}

func (e *emitter) fresh() string {
	e.n++
	return fmt.Sprintf("%%v%d", e.n-1)
}

func (e *emitter) wide() string {
	e.m++
	return fmt.Sprintf("%%w%d", e.m-1)
}

// word is the register of coordinate d.
func (e *emitter) word(d int) string {
	for len(e.at) <= d {
		e.at = append(e.at, "")
	}
	if e.at[d] == "" {
		e.at[d] = e.fresh()
	}
	return e.at[d]
}

// call takes over a step with one result.
func (e *emitter) call(name string, args ...string) (string, error) {
	r, err := e.callAll(name, args...)
	if err != nil {
		return "", err
	}
	return r[0], nil
}

func (e *emitter) callAll(name string, args ...string) ([]string, error) {
	s := e.steps[name]
	if s == nil {
		return nil, fmt.Errorf("there is no step %q", name)
	}
	results := make([]string, s.results)
	for i := range results {
		results[i] = e.fresh()
	}
	e.calls++
	return results, s.emit(&e.text, e.calls, args, results)
}

// list is registers as a vector operand.
func list(r []string) string {
	if len(r) == 1 {
		return r[0]
	}
	return "{" + strings.Join(r, ", ") + "}"
}

// vector is the suffix of a load or store of n registers.
func vector(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(".v%d", n)
}

// load reads width neighbors as float32; integers as they are.
func (e *emitter) load(d graph.DType, at string, width int) ([]string, error) {
	if d.Size() == 4 {
		r := make([]string, width)
		for i := range r {
			r[i] = e.fresh()
		}
		e.put("ld.global%s.b32 %s, [%s]", vector(width), list(r), at)
		return r, nil
	}
	if !d.Half() {
		return nil, fmt.Errorf("a loop cannot read %v", d)
	}
	if width == 1 {
		w := e.fresh()
		e.put("ld.global.u16 %s, [%s]", w, at)
		v, err := e.call("low_"+d.String(), w)
		return []string{v}, err
	}
	words := make([]string, width/2)
	for i := range words {
		words[i] = e.fresh()
	}
	e.put("ld.global%s.b32 %s, [%s]", vector(len(words)), list(words), at)
	var out []string
	for _, w := range words {
		for _, half := range []string{"low_", "high_"} {
			v, err := e.call(half+d.String(), w)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
	}
	return out, nil
}

// store rounds neighbors to a format and writes them.
func (e *emitter) store(d graph.DType, at string, v []string) error {
	if d.Size() == 4 {
		e.put("st.global%s.b32 [%s], %s", vector(len(v)), at, list(v))
		return nil
	}
	if !d.Half() {
		return fmt.Errorf("a loop cannot write %v", d)
	}
	if len(v) == 1 {
		w, err := e.call("pack_"+d.String(), v[0], float(0))
		e.put("st.global.u16 [%s], %s", at, w)
		return err
	}
	words := make([]string, len(v)/2)
	for i := range words {
		var err error
		if words[i], err = e.call("pack_"+d.String(), v[2*i], v[2*i+1]); err != nil {
			return err
		}
	}
	e.put("st.global%s.b32 [%s], %s", vector(len(words)), at, list(words))
	return nil
}

// round gives values as they are when they are stored in a format.
func (e *emitter) round(d graph.DType, v []string) ([]string, error) {
	if d.Size() == 4 {
		return v, nil
	}
	if !d.Half() {
		return nil, fmt.Errorf("a loop cannot round to %v", d)
	}
	out := make([]string, len(v))
	for i, x := range v {
		var err error
		if out[i], err = e.call("round_"+d.String(), x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// words are the random words of width neighboring elements, of which chunk
// numbers the thread's.
func (e *emitter) words(op graph.Dropout, width int, chunk, run string) ([]string, error) {
	key := []string{fmt.Sprint(uint32(op.Seed)), fmt.Sprint(uint32(op.Seed >> 32)), fmt.Sprint(op.Stream), run}
	name := "word"
	if width%4 == 0 {
		name = "words"
	}
	var out []string
	for len(out) < width {
		at := e.wide()
		e.put("mul.wide.u32 %s, %s, %d", at, chunk, width)
		e.put("add.u64 %s, %s, %d", at, at, len(out))
		w, err := e.callAll(name, append([]string{at}, key...)...)
		if err != nil {
			return nil, err
		}
		out = append(out, w...)
	}
	return out, nil
}
