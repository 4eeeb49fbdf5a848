package conformance

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// families are the golden files whose operations the graph has. Their format
// is described in the README.md next to them.
var families = []string{"dense", "norm", "activation", "attention", "loss", "convolution", "shape", "optimizer", "optimizers"}

// Goldens returns cases whose inputs, results and gradients PyTorch computed in float64:
// each is a function with outputs "out.NAME" and "grad.NAME", the gradients by the
// engine's own differentiation.
func Goldens(dir string) ([]Case, error) {
	var cases []Case
	for _, family := range families {
		more, err := readFamily(filepath.Join(dir, family))
		if err != nil {
			return nil, fmt.Errorf("goldens: %w", err)
		}
		cases = append(cases, more...)
	}
	return cases, nil
}

// golden is one case of a family file with its tensors.
type golden struct {
	Op    string      `json:"op"`
	Case  string      `json:"case"`
	Attrs goldenAttrs `json:"attrs"`

	types map[string]graph.Type // by role.name
	data  map[string][]float64
}

// goldenAttrs are the attributes of all operations together.
type goldenAttrs struct {
	TransA      bool     `json:"transpose_a"`
	TransB      bool     `json:"transpose_b"`
	Eps         float64  `json:"eps"`
	Slope       float64  `json:"slope"`
	Alpha       float64  `json:"alpha"`
	Axis        int      `json:"axis"`
	Axes        []int    `json:"axes"`
	Keep        bool     `json:"keep"`
	Start       int      `json:"start"`
	Stop        int      `json:"stop"`
	Rows        int      `json:"rows"`
	Causal      bool     `json:"causal"`
	Scale       float64  `json:"scale"`
	Rotary      int      `json:"rotary"`
	Base        float64  `json:"base"`
	First       int      `json:"first_position"`
	Delta       float64  `json:"delta"`
	LR          float64  `json:"lr"`
	Beta1       float64  `json:"beta1"`
	Beta2       float64  `json:"beta2"`
	WeightDecay float64  `json:"weight_decay"`
	Decayed     []string `json:"decayed"`
	MaxGradNorm float64  `json:"max_grad_norm"` // 0 where null: no clipping
	MaxNorm     float64  `json:"max_norm"`
	Groups      int      `json:"groups"`
	Training    bool     `json:"training"`
	Momentum    float64  `json:"momentum"`
	Stride      int      `json:"stride"`
	Dilation    int      `json:"dilation"`
	Pad         int      `json:"pad"`
	PadLeft     int      `json:"pad_left"`
	PadRight    int      `json:"pad_right"`
	Kernel      int      `json:"kernel"`
	K           int      `json:"k"`
}

func readFamily(path string) (cases []Case, err error) {
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Cases []*golden `json:"cases"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s.json: %w", path, err)
	}
	file, err := safetensors.Open(path + ".safetensors")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, g := range list.Cases {
		if err := g.read(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c, err := g.build()
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", path, g.Op, g.Case, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// read reads the tensors of g from file.
func (g *golden) read(file *safetensors.File) error {
	g.types, g.data = map[string]graph.Type{}, map[string][]float64{}
	prefix := g.Op + "." + g.Case + "."
	for _, info := range file.Tensors() {
		name, ok := strings.CutPrefix(info.Name, prefix)
		if !ok {
			continue
		}
		t, err := file.Tensor(info.Name)
		if err != nil {
			return err
		}
		d := graph.F32
		if t.DType == safetensors.I32 {
			d = graph.I32
		} else if t.DType != safetensors.F32 {
			return fmt.Errorf("%s is %v, want F32 or I32", info.Name, t.DType)
		}
		x := make([]float64, len(t.Data)/4)
		for i := range x {
			bits := binary.LittleEndian.Uint32(t.Data[4*i:])
			if d == graph.I32 {
				x[i] = float64(int32(bits))
			} else {
				x[i] = float64(math.Float32frombits(bits))
			}
		}
		g.types[name], g.data[name] = graph.Type{DType: d, Shape: slices.Clone(t.Shape)}, x
	}
	if len(g.data) == 0 {
		return fmt.Errorf("%s%s has no tensors", prefix, "*")
	}
	return nil
}

// build makes the case: the forward function by the operation's builder, then
// its gradients for the golden cotangents.
func (g *golden) build() (Case, error) {
	forward, ok := goldenOps[g.Op]
	if !ok {
		return Case{}, errors.New("no builder for this operation")
	}
	m := &goldenMaker{maker: newMaker(g.Op + "/" + g.Case), golden: g}
	err := graph.Catch(func() {
		forward(m)
		m.gradients()
	})
	if err != nil {
		return Case{}, err
	}
	want := map[string][]float64{}
	for _, o := range m.F.Outputs {
		if want[o.Name], ok = g.data[o.Name]; !ok {
			return Case{}, fmt.Errorf("there is no tensor %s", o.Name)
		}
	}
	for name := range g.data {
		if !strings.HasPrefix(name, "in.") && m.F.Output(name) == nil {
			return Case{}, fmt.Errorf("nothing computes %s", name)
		}
	}
	return Case{Name: g.Op + "/" + g.Case, Func: m.F, In: m.in, Tol: m.tol, Want: want, Drawn: m.drawn}, nil
}

// goldenMaker builds the function of a golden.
type goldenMaker struct {
	*maker
	*golden
	tol   Tolerance
	drawn bool
}

func (m *goldenMaker) has(name string) bool { return m.data["in."+name] != nil }

// arg returns the input called name.
func (m *goldenMaker) arg(name string) *graph.Value {
	t, ok := m.types["in."+name]
	if !ok {
		m.Failf("there is no input %s", name)
	}
	m.in[name] = m.data["in."+name]
	return m.Input(name, t)
}

// constant returns an input that the golden does not have.
func (m *goldenMaker) constant(name string, c float64, dims ...int) *graph.Value {
	return m.input(name, graph.T(graph.F32, dims...), func() float64 { return c })
}

// out names a result.
func (m *goldenMaker) out(name string, v *graph.Value) { m.Output("out."+name, v) }

// gradients appends the gradient of every input for which the golden has one.
func (m *goldenMaker) gradients() {
	var loss *graph.Value
	for _, o := range m.F.Outputs {
		cotangent := "d_" + strings.TrimPrefix(o.Name, "out.")
		if !m.has(cotangent) {
			continue
		}
		term := m.Sum(m.Mul(o.Value, m.arg(cotangent)))
		if loss != nil {
			term = m.Add(loss, term)
		}
		loss = term
	}
	var wrt []*graph.Value
	for _, v := range m.F.Inputs {
		if m.data["grad."+v.Name] != nil {
			wrt = append(wrt, v)
		}
	}
	if len(wrt) == 0 {
		return
	}
	grads, err := pass.Differentiate(m.F, loss, wrt, nil)
	if err != nil {
		m.Failf("%w", err)
	}
	for i, g := range grads {
		m.Output("grad."+wrt[i].Name, g)
	}
}
