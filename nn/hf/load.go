package hf

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
)

// LoadOptions are the differences allowed between a model folder and a program. Any
// other is a [Mismatch].
type LoadOptions struct {
	// New, when set, selects which weights of the program may be missing from the folder
	// (adapters, a further head). They keep the values they have.
	New func(name string) bool
	// NewHead allows heads to differ: weights of the program's head that the folder
	// lacks, or has in another shape, keep their values, and tensors of the folder's head
	// that the program lacks are ignored.
	NewHead bool
	// ResizeVocabulary allows another number of tokens: the rows that both have are
	// copied, further ones keep their values.
	ResizeVocabulary bool
}

// Report lists by name what Load found other than weights that it copied unchanged.
type Report struct {
	// Loaded counts the weights that were copied.
	Loaded int
	// New are weights of the program that kept their values.
	New []string
	// Left are tensors of the folder that the program does not use.
	Left []string
	// Buffers are tensors that are not weights, which old versions of
	// transformers saved.
	Buffers []string
	// Repeated are tensors equal to another one that was loaded: the output
	// layer of a model that ties it to the embedding.
	Repeated []string
	Resized  []Resize
	// Converted counts the tensors stored in another format than float32.
	Converted map[string]int
}

// Resize is a weight with a different number of rows in the program than in the folder.
type Resize struct {
	Name     string
	From, To int
}

// Lines returns the report as readable lines, one fact per line.
func (r *Report) Lines() []string {
	lines := []string{fmt.Sprintf("loaded %s", size.Of(r.Loaded, "weight"))}
	list := func(what string, names []string) {
		if len(names) > 0 {
			lines = append(lines, fmt.Sprintf("%s: %s", what, enumerate(names)))
		}
	}
	for _, format := range slices.Sorted(maps.Keys(r.Converted)) {
		lines = append(lines, fmt.Sprintf("converted %s from %s to float32", size.Of(r.Converted[format], "tensor"), format))
	}
	for _, s := range r.Resized {
		lines = append(lines, fmt.Sprintf("resized %s from %d to %s", s.Name, s.From, size.Of(s.To, "row")))
	}
	list("new, with initial values", r.New)
	list("left in the folder", r.Left)
	list("repeat a weight", r.Repeated)
	list("skipped, not weights", r.Buffers)
	return lines
}

// Mismatch is how a model folder and a model differ, by name.
type Mismatch struct {
	Where string
	// Missing are weights of the model that the folder lacks.
	Missing []string
	// Surplus are tensors of the folder that the model does not use.
	Surplus []string
	// Shapes describe tensors of another shape, and Untied those that should repeat
	// another one and do not.
	Shapes, Untied []string
}

func (m *Mismatch) empty() bool {
	return len(m.Missing)+len(m.Surplus)+len(m.Shapes)+len(m.Untied) == 0
}

func (m *Mismatch) Error() string {
	var parts []string
	list := func(what string, names []string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s", what, enumerate(names)))
		}
	}
	list("missing", m.Missing)
	list("surplus", m.Surplus)
	list("shape", m.Shapes)
	list("not equal to what it repeats (is tie_word_embeddings right in config.json?)", m.Untied)
	return fmt.Sprintf("%s does not fit the model: %s", m.Where, strings.Join(parts, "; "))
}

// enumerate lists names, only the first ones if there are many.
func enumerate(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Change lets change set the elements of a program's state.
type Change func(state string, change func(elems []float32) error) error

// Load copies the weights of a model folder into a program. states are those of the
// program (weights and frozen ones are loaded, others ignored). Nothing is copied if
// anything does not fit.
func (c *Config) Load(dir string, states []*graph.State, change Change, o LoadOptions) (r *Report, err error) {
	src, err := OpenWeights(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	return c.LoadFrom(src, dir, states, change, o)
}

// LoadFrom is Load from any source of tensors; where names it in errors.
func (c *Config) LoadFrom(src Source, where string, states []*graph.State, change Change, o LoadOptions) (*Report, error) {
	p, err := c.match(src, where, states, o)
	if err != nil {
		return nil, err
	}
	for _, l := range p.copies {
		t, err := src.Tensor(l.from.Name)
		if err == nil {
			err = t.Finite()
			t.Release()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	for _, l := range p.copies {
		if err := change(l.state.Name, func(dst []float32) error { return l.copy(src, dst) }); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
	}
	return p.report, nil
}

// link is a tensor that a weight is loaded from.
type link struct {
	state *graph.State
	from  safetensors.Info
}

// copy decodes the tensor into dst, leaving out rows that only one of the two has.
func (l link) copy(src Source, dst []float32) error {
	t, err := src.Tensor(l.from.Name)
	if err != nil {
		return err
	}
	defer t.Release()
	elems := len(dst)
	if rows, have := l.state.Type.Shape[0], l.from.Shape[0]; rows != have {
		width := elems / rows
		elems = min(rows, have) * width
		t.Data = t.Data[:elems*t.DType.Bits()/8]
	}
	return t.Float32s(dst[:elems])
}

// matched says what a folder's tensors are to a program.
type matched struct {
	copies []link
	report *Report
}

// match finds the tensor of each weight, and classifies each tensor.
func (c *Config) match(src Source, where string, states []*graph.State, o LoadOptions) (*matched, error) {
	f := c.family()
	if f == nil {
		return nil, c.Check()
	}
	places, err := f.places(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	m := &matched{report: &Report{Converted: map[string]int{}}}
	wrong := &Mismatch{Where: where}
	taken := map[string]bool{}
	for _, s := range states {
		if s.Role != graph.Weight && s.Role != graph.Frozen {
			continue
		}
		p, ok := places[s.Name]
		if ok = ok && !p.buffer; ok {
			taken[s.Name] = true
		}
		switch {
		case !ok && (o.New != nil && o.New(s.Name) || o.NewHead && f.inHead(s.Name)):
			m.report.New = append(m.report.New, s.Name)
		case !ok:
			wrong.Missing = append(wrong.Missing, s.Name)
		case slices.Equal(p.info.Shape, s.Type.Shape):
			m.take(s, p.info)
		case o.ResizeVocabulary && f.resizable(s, p.info):
			m.report.Resized = append(m.report.Resized, Resize{s.Name, p.info.Shape[0], s.Type.Shape[0]})
			m.take(s, p.info)
		case o.NewHead && f.inHead(s.Name) && !f.resizable(s, p.info):
			m.report.New = append(m.report.New, s.Name)
			m.report.Left = append(m.report.Left, p.info.Name)
		default:
			wrong.Shapes = append(wrong.Shapes, fmt.Sprintf("%s is %v, the model wants %v", p.info.Name, p.info.Shape, s.Type.Shape))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		p := places[name]
		if taken[name] {
			continue
		}
		twin, repeats := places[f.repeats(name, c.tied())]
		switch {
		case p.buffer:
			m.report.Buffers = append(m.report.Buffers, p.info.Name)
		case repeats && same(src, p.info, twin.info):
			m.report.Repeated = append(m.report.Repeated, p.info.Name)
		case o.NewHead && f.inHead(name):
			m.report.Left = append(m.report.Left, p.info.Name)
		case repeats:
			wrong.Untied = append(wrong.Untied, fmt.Sprintf("%s (of %s)", p.info.Name, twin.info.Name))
		default:
			wrong.Surplus = append(wrong.Surplus, p.info.Name)
		}
	}
	if !wrong.empty() {
		return nil, wrong
	}
	return m, nil
}

func (m *matched) take(s *graph.State, from safetensors.Info) {
	m.copies = append(m.copies, link{s, from})
	m.report.Loaded++
	if from.DType != safetensors.F32 {
		m.report.Converted[from.DType.String()]++
	}
}

// resizable reports whether a tensor differs from a weight only in the number of tokens.
func (f *family) resizable(s *graph.State, t safetensors.Info) bool {
	shape := s.Type.Shape
	return slices.Contains(f.vocab, s.Name) && len(shape) == len(t.Shape) && slices.Equal(shape[1:], t.Shape[1:])
}

func same(src Source, a, b safetensors.Info) bool {
	x, err := src.Tensor(a.Name)
	if err != nil {
		return false
	}
	y, err := src.Tensor(b.Name)
	return err == nil && x.DType == y.DType && slices.Equal(x.Shape, y.Shape) && bytes.Equal(x.Data, y.Data)
}
