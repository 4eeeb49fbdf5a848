package nn

import (
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2/v2"

	"github.com/snug-ml/snug/engine/graph"
)

// Adapters are low-rank updates of the linear layers of a model that Targets select. All
// other weights are frozen.
type Adapters struct {
	LoRA
	// Targets choose layers: by the last parts of their names ("q_proj",
	// "self_attn.q_proj"), by a pattern of the whole name ("*.mlp.*"), by a regular
	// expression of the whole name, as PEFT has them (".*[.](q|v)_proj"), or all
	// ([AllLinear]).
	Targets []string
	// Trained selects parts of the model, in the same way, whose own weights are trained:
	// layers, or scopes with everything in them. They get no adapters.
	Trained []string
	// Fixed, when set, reports the layers whose weights are not saved in runs but come from a
	// folder that the model names; they get no adapters.
	Fixed func(layer string) bool
}

// AllLinear is the target that stands for every linear layer.
const AllLinear = "all-linear"

const (
	adapterName   = "lora"
	adapterScope  = "." + adapterName + "."
	downName      = "down"
	upName        = "up"
	magnitudeName = "magnitude"
)

// AdapterOf returns the layer that a weight of an adapter belongs to, and which of its
// [Factors] it is; ok is false for any other weight.
func AdapterOf(weight string) (layer, factor string, ok bool) {
	layer, factor, ok = strings.Cut(weight, adapterScope)
	return layer, factor, ok && slices.Contains([]string{downName, upName, magnitudeName}, factor)
}

// AdapterNames returns the names of the weights of a layer's adapter; the magnitude
// exists only with [Decomposed].
func AdapterNames(layer string) (down, up, magnitude string) {
	return layer + adapterScope + downName, layer + adapterScope + upName, layer + adapterScope + magnitudeName
}

// covers reports whether a target selects the part of a model called name, or a scope that
// it is in.
func covers(target, name string) bool {
	for at := len(name); at > 0; at = strings.LastIndexByte(name[:at], '.') {
		if chooses(target, name[:at]) {
			return true
		}
	}
	return false
}

// Whole reports whether the part of the model called name is trained as a whole.
func (a *Adapters) Whole(name string) bool {
	return slices.ContainsFunc(a.Trained, func(t string) bool { return covers(t, name) })
}

// IsPattern reports whether a target may select layers of several names.
func IsPattern(target string) bool {
	return target == AllLinear || strings.ContainsAny(target, "*?[") || isExpression(target)
}

// isExpression reports whether a target has syntax that neither names nor shell patterns have.
func isExpression(target string) bool {
	return strings.ContainsAny(target, `\()|^$+{`) || strings.HasPrefix(target, ".*")
}

// expressions caches the compiled regular expressions.
var expressions sync.Map

// expression compiles a target that is a regular expression.
func expression(target string) (*regexp2.Regexp, error) {
	if e, ok := expressions.Load(target); ok {
		return e.(*regexp2.Regexp), nil
	}
	e, err := regexp2.Compile(`\A(?:`+target+`)\z`, regexp2.None)
	if err == nil {
		e.MatchTimeout = time.Second // some would take forever
		expressions.Store(target, e)
	}
	return e, err
}

func chooses(target, layer string) bool {
	if isExpression(target) {
		e, err := expression(target)
		if err != nil {
			return false // Build refuses it
		}
		ok, err := e.MatchString(layer)
		return ok && err == nil
	}
	if strings.ContainsAny(target, "*?[") {
		ok, err := path.Match(target, layer)
		return ok && err == nil
	}
	return target == AllLinear || target == layer || strings.HasSuffix(layer, "."+target)
}

// Build runs model, which adds to b, with its linear layers adapted and its other weights
// frozen. A target that selects nothing is an error, and so is such an entry of Trained.
// [AllLinear] leaves out layers that compute the model's results.
func (a *Adapters) Build(b *graph.Builder, train bool, model func()) {
	for key, targets := range map[string][]string{"lora.targets": a.Targets, "lora.modules_to_save": a.Trained} {
		for _, t := range targets {
			if _, err := expression(t); isExpression(t) && err != nil {
				b.Failf("%s: %q is neither a name nor a regular expression: %v", key, t, err)
			}
		}
	}
	linear, used := map[string]bool{}, map[string]bool{}
	widest, highest := graph.LinearLayer{}, 0
	b.AdaptLinear(func(l graph.LinearLayer) *graph.Value {
		linear[l.Name] = true
		chosen := false
		trained, fixed := a.Whole(l.Name), a.Fixed != nil && a.Fixed(l.Name)
		for _, t := range a.Targets {
			if !chooses(t, l.Name) {
				continue
			}
			used[t] = true
			if fixed && t != AllLinear {
				b.Refuse("lora.targets", "%q chooses %s, whose frozen weights are in a folder of their own and in no run: want targets that leave it out", t, l.Name)
			}
			chosen = chosen || !trained && !fixed && (t != AllLinear || l.W.State.Part != graph.Outer)
		}
		if !chosen {
			return l.Y
		}
		if n := min(l.X.Shape().Last(), l.Y.Shape().Last()); n > highest {
			widest, highest = l, n
		}
		return a.adapt(b, l, train)
	})
	model()
	b.AdaptLinear(nil)
	for _, t := range a.Targets {
		if !used[t] {
			b.Refuse("lora.targets", "no linear layer is called %q; there are %s", t, strings.Join(lastParts(linear), ", "))
		}
	}
	if highest > 0 && a.Rank > highest {
		b.Refuse("lora.rank", "%d is more than the matrix of any adapted layer can have, the largest being %s with %d x %d: want at most %d, and far less to save anything",
			a.Rank, widest.Name, widest.Y.Shape().Last(), widest.X.Shape().Last(), highest)
	}
	a.freeze(b)
}

// layerOf returns the layer that a weight belongs to.
func layerOf(weight string) string { return weight[:max(0, strings.LastIndexByte(weight, '.'))] }

// ends returns the first and the last parts of names, each once.
func ends(names []string) []string {
	parts := map[string]bool{}
	for _, n := range names {
		first, _, _ := strings.Cut(n, ".")
		parts[first], parts[n[strings.LastIndexByte(n, '.')+1:]] = true, true
	}
	return slices.Sorted(maps.Keys(parts))
}

// lastParts returns the last parts of names, each once; if a name ends in a number, also
// the part before it.
func lastParts(names map[string]bool) []string {
	last := map[string]bool{}
	for n := range names {
		at := strings.LastIndexByte(n, '.')
		if _, err := strconv.Atoi(n[at+1:]); err == nil {
			at = strings.LastIndexByte(n[:max(0, at)], '.')
		}
		last[n[at+1:]] = true
	}
	return slices.Sorted(maps.Keys(last))
}

// freeze gives every weight that is not trained the role [graph.Frozen].
func (a *Adapters) freeze(b *graph.Builder) {
	var layers []string
	for _, v := range b.F.States {
		if _, _, ok := AdapterOf(v.Name); ok || v.State.Role != graph.Weight {
			continue
		}
		layer := layerOf(v.Name)
		layers = append(layers, layer)
		if !a.Whole(layer) {
			v.State.Role = graph.Frozen
		}
	}
	for _, t := range a.Trained {
		if !slices.ContainsFunc(layers, func(l string) bool { return covers(t, l) }) {
			b.Refuse("lora.modules_to_save", "nothing to train as a whole is called %q; there are %s", t, strings.Join(ends(layers), ", "))
		}
	}
}

// adapt returns the result of the adapted layer.
func (a *Adapters) adapt(b *graph.Builder, l graph.LinearLayer, train bool) *graph.Value {
	lora := a.LoRA
	lora.Name = adapterName
	if l.Groups > 0 {
		if a.Variant == Decomposed {
			b.Refuse("lora.variant", "dora scales rows of one matrix, and %s has one for each of %d experts, for which PEFT has no dora either: want lora or rslora, or lora.targets that leave it out", l.Name, l.Groups)
		}
		return b.Add(l.Y, lora.deltaStack(b, l, train))
	}
	y := b.Add(l.Y, lora.Delta(b, l.X, l.Y.Shape().Last(), train))
	if a.Variant != Decomposed {
		return y
	}
	b.Scope(adapterName, func() {
		magnitude := b.Param(magnitudeName, graph.Ones(), l.Y.Shape().Last())
		y = b.Mul(y, b.Div(magnitude, b.Detach(a.norm(b, l))))
	})
	return y
}

// norm returns the norm of each row of W + s B A. The sum itself is not needed: |w + s b
// A|^2 = |w|^2 + 2 s w A^T b + s^2 b A A^T b.
func (a *Adapters) norm(b *graph.Builder, l graph.LinearLayer) *graph.Value {
	down, up := b.StateValue(b.Path(downName)), b.StateValue(b.Path(upName))
	axis := 1
	if l.InOut {
		axis = 0
	}
	s := a.Scale()
	// A weight in 16 bits is read as a second operand.
	cross := b.Sum(b.Mul(b.MatMul(down, l.W, false, !l.InOut), b.Transpose(up, 1, 0)), 0)
	own := b.Sum(b.Mul(b.MatMul(up, b.MatMul(down, down, false, true), false, false), up), 1)
	square := b.Add(b.Sum(b.Square(l.W), axis), b.Add(b.MulC(cross, 2*s), b.MulC(own, s*s)))
	return b.Sqrt(square)
}

// RowNorms are the norms of the rows of a weight w of out rows, the magnitudes that
// [Decomposed] begins with; inOut: of its columns.
func RowNorms(w []float32, out int, inOut bool) []float32 {
	in := len(w) / out
	norms := make([]float32, out)
	for o := range norms {
		square := 0.0
		for i := range in {
			x := float64(w[o*in+i])
			if inOut {
				x = float64(w[i*out+o])
			}
			square += x * x
		}
		norms[o] = float32(math.Sqrt(square))
	}
	return norms
}
