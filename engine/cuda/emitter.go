package cuda

import (
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
)

// emitter writes the instructions of a generated kernel. Every value gets a new register, %v of 32 bits or %w
// of 64: the assembler allocates the real ones.
type emitter struct {
	steps  map[string]*step
	text   strings.Builder
	n, m   int // registers so far
	calls  int
	shared int      // bytes of shared memory
	at     []string // coordinates
	// listing says what the text is for.
	listing listing
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

// word is the register that holds coordinate d.
func (e *emitter) word(d int) string {
	for len(e.at) <= d {
		e.at = append(e.at, "")
	}
	if e.at[d] == "" {
		e.at[d] = e.fresh()
	}
	return e.at[d]
}

// call inlines a step with one result.
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

// list formats registers as a vector operand.
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

// load reads width neighbors as float32; integers stay as they are.
func (e *emitter) load(d graph.DType, at string, width int) ([]string, error) {
	words := make([]string, wordsOf(d, width))
	for i := range words {
		words[i] = e.fresh()
	}
	e.loadWords("", d, at, width, words)
	return e.unpack(d, width, words)
}

// wordsOf is how many registers hold width neighbors in their memory format.
func wordsOf(d graph.DType, width int) int { return ceil(width*int(d.Size()), 4) }

// loadWords reads width neighbors without converting them; guard is a predicate, or empty.
func (e *emitter) loadWords(guard string, d graph.DType, at string, width int, words []string) {
	if d.Size() == 2 && width == 1 {
		e.put("%sld.global.u16 %s, [%s]", guard, words[0], at)
		return
	}
	e.put("%sld.global%s.b32 %s, [%s]", guard, vector(len(words)), list(words), at)
}

// unpack converts neighbors that loadWords read to float32.
func (e *emitter) unpack(d graph.DType, width int, words []string) ([]string, error) {
	if d.Size() == 4 {
		return words, nil
	}
	if !d.Half() {
		return nil, fmt.Errorf("a loop cannot read %v", d)
	}
	var out []string
	for i := range width {
		half := [2]string{"low_", "high_"}[i%2]
		v, err := e.call(half+d.String(), words[i/2])
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// store rounds neighbors to a format and writes them; guard is a predicate, or empty.
func (e *emitter) store(guard string, d graph.DType, at string, v []string) error {
	if d.Size() == 4 {
		e.put("%sst.global%s.b32 [%s], %s", guard, vector(len(v)), at, list(v))
		return nil
	}
	if !d.Half() {
		return fmt.Errorf("a loop cannot write %v", d)
	}
	if len(v) == 1 {
		w, err := e.call("pack_"+d.String(), v[0], float(0))
		e.put("%sst.global.u16 [%s], %s", guard, at, w)
		return err
	}
	words := make([]string, len(v)/2)
	for i := range words {
		var err error
		if words[i], err = e.call("pack_"+d.String(), v[2*i], v[2*i+1]); err != nil {
			return err
		}
	}
	e.put("%sst.global%s.b32 [%s], %s", guard, vector(len(words)), at, list(words))
	return nil
}

// round gives values as they would be after being stored in a format.
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

// words are the random words of width neighboring elements, starting at the index in a 64-bit register; whole
// says that the index is a multiple of four.
func (e *emitter) words(op graph.Dropout, width int, whole bool, first, run string) ([]string, error) {
	key := []string{fmt.Sprint(uint32(op.Seed)), fmt.Sprint(uint32(op.Seed >> 32)), fmt.Sprint(op.Stream), run}
	name := "word"
	if whole {
		name = "words"
	}
	var out []string
	for len(out) < width {
		at := e.wide()
		e.put("add.u64 %s, %s, %d", at, first, op.First+uint64(len(out)))
		w, err := e.callAll(name, append([]string{at}, key...)...)
		if err != nil {
			return nil, err
		}
		out = append(out, w...)
	}
	return out, nil
}

// step emits one step of a body for width elements. values holds the registers of each input and earlier
// step: one for each element, or one for all. words gives the elements' random words in a run.
func (e *emitter) step(s graph.Instr, values [][]string, width int, words func(op graph.Dropout, run string) ([]string, error)) ([]string, error) {
	var name string
	var args func(i int) []string
	of := func(arg, i int) string { v := values[s.Arg[arg]]; return v[i%len(v)] }
	switch op := s.Op.(type) {
	case graph.Dropout:
		w, err := words(op, of(1, 0))
		if err != nil {
			return nil, err
		}
		name = "dropout"
		args = func(i int) []string {
			return []string{of(0, i), w[i], float(float64(float32(1 - op.P))), float(1 / (1 - op.P))}
		}
	case graph.Elementwise:
		name = op.Fn.String()
		args = func(i int) []string {
			var list []string
			for k := range s.Arg {
				list = append(list, of(k, i))
			}
			if st := e.steps[name]; st != nil && st.params == len(list)+1 {
				list = append(list, float(op.Alpha))
			}
			return list
		}
	default:
		return nil, fmt.Errorf("a loop cannot do %s", s.Op.Name())
	}
	out := make([]string, width)
	for i := range out {
		var err error
		if out[i], err = e.call(name, args(i)...); err != nil {
			return nil, err
		}
	}
	return e.round(s.DType, out)
}

// float formats a float32 constant.
func float(v float64) string { return fmt.Sprintf("0f%08X", math.Float32bits(float32(v))) }
