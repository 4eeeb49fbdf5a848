package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"go.yaml.in/yaml/v4"
)

// Comparison is how two checkpoints differ.
type Comparison struct {
	A       string       `json:"a"`
	B       string       `json:"b"`
	State   []Difference `json:"state"`   // fields of state.json
	Config  []Difference `json:"config"`  // keys of config.yaml
	Files   []Difference `json:"files"`   // other files, by hash
	Tensors []TensorDiff `json:"tensors"` // all tensors, those of the weights first, by name
}

// Difference is a field with two values; an absent one is "-".
type Difference struct {
	Field string `json:"field"`
	A     string `json:"a"`
	B     string `json:"b"`
}

// TensorDiff compares a tensor of both.
type TensorDiff struct {
	File     string `json:"file"`
	Name     string `json:"name"`
	Note     string `json:"note"` // "same", "differs", "only in A", "only in B", or how dtype or shape differ
	Elements int64  `json:"elements"`
	Changed  int64  `json:"changed"`  // elements whose bits differ
	MaxAbs   Float  `json:"max_abs"`  // largest |a - b|; NaN if either is
	RelL2    Float  `json:"relative"` // |a - b| / |a|, Euclidean; +Inf if a is zero
}

// Equal reports whether state, configuration, files and every bit of every tensor agree.
func (c *Comparison) Equal() bool {
	return len(c.State)+len(c.Config)+len(c.Files) == 0 &&
		!slices.ContainsFunc(c.Tensors, func(t TensorDiff) bool { return t.Note != "same" })
}

// Compare compares two checkpoint folders, both of which must be intact.
func Compare(a, b string) (_ *Comparison, err error) {
	ca, err := pinned(a, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ca.Close()) }()
	cb, err := pinned(b, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, cb.Close()) }()
	c := &Comparison{A: a, B: b}
	if c.State, err = compareFields(ca, cb, StateFile, json.Unmarshal); err != nil {
		return nil, err
	}
	if c.Config, err = compareFields(ca, cb, ConfigFile, parseYAML); err != nil {
		return nil, err
	}
	c.Files = compareFiles(ca, cb)
	for _, part := range []struct {
		name string
		a, b *safetensors.File
	}{{WeightsFile, ca.Weights, cb.Weights}, {OptimizerFile, ca.Optimizer, cb.Optimizer}} {
		list, err := compareTensors(part.name, part.a, part.b)
		if err != nil {
			return nil, err
		}
		c.Tensors = append(c.Tensors, list...)
	}
	return c, nil
}

// compareFields compares two structured texts field by field.
func compareFields(a, b *Checkpoint, name string, parse func([]byte, any) error) ([]Difference, error) {
	var flat [2]map[string]string
	for i, c := range []*Checkpoint{a, b} {
		flat[i] = map[string]string{}
		text, err := c.File(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var v any
		if err := parse(text, &v); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(c.Path, name), err)
		}
		flatten(flat[i], "", v)
	}
	return differences(flat[0], flat[1]), nil
}

// parseYAML hides the options of the library.
func parseYAML(text []byte, v any) error { return yaml.Unmarshal(text, v) }

func differences(a, b map[string]string) []Difference {
	var list []Difference
	keys := slices.Concat(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b)))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		d := Difference{key, "-", "-"}
		if v, ok := a[key]; ok {
			d.A = v
		}
		if v, ok := b[key]; ok {
			d.B = v
		}
		if d.A != d.B {
			list = append(list, d)
		}
	}
	return list
}

// flatten turns nested values into dotted keys.
func flatten(out map[string]string, prefix string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			flatten(out, strings.TrimPrefix(prefix+"."+key, "."), x)
		}
	case []any:
		for i, x := range v {
			flatten(out, fmt.Sprintf("%s[%d]", prefix, i), x)
		}
	default:
		out[prefix] = fmt.Sprint(v)
	}
}

func compareFiles(a, b *Checkpoint) []Difference {
	var sums [2]map[string]string
	for i, c := range []*Checkpoint{a, b} {
		sums[i] = map[string]string{}
		for _, f := range c.Manifest.Files {
			switch f.Name {
			case WeightsFile, OptimizerFile, StateFile, MetadataFile, ConfigFile:
			default:
				sums[i][f.Name] = f.SHA256
			}
		}
	}
	return differences(sums[0], sums[1])
}

// compareTensors compares two files, either of which may be missing.
func compareTensors(name string, a, b *safetensors.File) ([]TensorDiff, error) {
	var infos [2]map[string]safetensors.Info
	for i, f := range []*safetensors.File{a, b} {
		infos[i] = map[string]safetensors.Info{}
		if f != nil {
			for _, t := range f.Tensors() {
				infos[i][t.Name] = t
			}
		}
	}
	var list []TensorDiff
	names := slices.Concat(slices.Collect(maps.Keys(infos[0])), slices.Collect(maps.Keys(infos[1])))
	slices.Sort(names)
	for _, key := range slices.Compact(names) {
		x, inA := infos[0][key]
		y, inB := infos[1][key]
		d := TensorDiff{File: name, Name: key}
		switch {
		case !inB:
			d.Note = "only in A"
		case !inA:
			d.Note = "only in B"
		case x.DType != y.DType || !slices.Equal(x.Shape, y.Shape):
			d.Note = fmt.Sprintf("%s %v and %s %v", x.DType, x.Shape, y.DType, y.Shape)
		default:
			ta, err := a.Tensor(key)
			if err != nil {
				return nil, err
			}
			tb, err := b.Tensor(key)
			if err != nil {
				return nil, err
			}
			err = d.values(ta, tb)
			ta.Release()
			tb.Release()
			if err != nil {
				return nil, err
			}
		}
		list = append(list, d)
	}
	return list, nil
}

// values compares two tensors of one type and shape. F64 is compared bit by
// bit but measured after rounding to float32; integers are not measured.
func (d *TensorDiff) values(a, b safetensors.Tensor) error {
	d.Elements = int64(len(a.Data)) * 8 / int64(a.DType.Bits())
	if bytes.Equal(a.Data, b.Data) {
		d.Note = "same"
		return nil
	}
	d.Note = "differs"
	width := max(a.DType.Bits()/8, 1)
	for i := 0; i < len(a.Data); i += width {
		if !bytes.Equal(a.Data[i:i+width], b.Data[i:i+width]) {
			d.Changed++
		}
	}
	switch a.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16, safetensors.F64:
	default:
		return nil
	}
	const chunk = 4096 // elements
	var x, y [chunk]float32
	var largest, diff, norm float64
	for lo := 0; lo < len(a.Data); lo += chunk * width {
		hi := min(lo+chunk*width, len(a.Data))
		n := (hi - lo) / width
		a, b := a, b
		a.Data, b.Data = a.Data[lo:hi], b.Data[lo:hi]
		if err := errors.Join(a.Float32s(x[:n]), b.Float32s(y[:n])); err != nil {
			return err
		}
		for i := range n {
			e := math.Abs(float64(x[i]) - float64(y[i]))
			largest = math.Max(largest, e) // NaN stays
			diff += e * e
			norm += float64(x[i]) * float64(x[i])
		}
	}
	d.MaxAbs, d.RelL2 = Float(largest), Float(math.Sqrt(diff/norm))
	return nil
}
