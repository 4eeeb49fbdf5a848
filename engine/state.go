package engine

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// State returns the declaration of a state, nil if the program has none with that name.
func (p *Program) State(name string) *graph.State {
	i := slices.IndexFunc(p.States, func(s *graph.State) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return p.States[i]
}

// ReadState copies a state into dst, which must have its size.
func (x *Executable) ReadState(name string, dst []byte) error {
	at, err := x.stateAt(name, len(dst))
	if err != nil {
		return err
	}
	return x.image.Read(dst, at)
}

// Guard sets the function that is called before states change, in runs or by writes; nil
// for none. It gets their names, returns when they may change, and ends the run or the
// write with an error. With [Executable.Peek], states can be read as they are now while
// runs go on: the guard copies whatever was not read yet, or makes the run wait.
func (x *Executable) Guard(before func(states []string) error) {
	x.guard = before
	x.image.Guard(before)
}

// Peek copies a part of a state, from the given byte on, while runs go on. It may be called
// from any goroutine, for states that have not been changed since Guard.
func (x *Executable) Peek(name string, from int64, dst []byte) error {
	s := x.p.State(name)
	if s == nil {
		return fmt.Errorf("the program has no state %q", name)
	}
	if from < 0 || from+int64(len(dst)) > s.Type.Bytes() {
		return fmt.Errorf("state %s is %v: it has no %d bytes from %d on", name, s.Type, len(dst), from)
	}
	return x.image.Peek(dst, x.p.StateAt(s)+from)
}

// WriteState copies src, which must have the state's size, into a state.
func (x *Executable) WriteState(name string, src []byte) error {
	at, err := x.stateAt(name, len(src))
	if err != nil {
		return err
	}
	if x.guard != nil {
		if err := x.guard([]string{name}); err != nil {
			return err
		}
	}
	x.leaveUnrounded(x.p.State(name))
	return x.image.Write(at, src)
}

// leaveUnrounded takes note that a weight changes by itself. Gradients are also written while runs go on.
func (x *Executable) leaveUnrounded(s *graph.State) {
	if s.Role == graph.Weight || s.Role == graph.Frozen {
		x.unrounded = true
	}
}

// ReadPart copies the elements of a part of a state into dst.
func (x *Executable) ReadPart(p Part, dst []byte) error {
	at, err := x.partAt(p, len(dst))
	if err != nil {
		return err
	}
	return x.image.Read(dst, at)
}

// WritePart copies src into a part of a state.
func (x *Executable) WritePart(p Part, src []byte) error {
	at, err := x.partAt(p, len(src))
	if err != nil {
		return err
	}
	if x.guard != nil {
		if err := x.guard([]string{p.State.Name}); err != nil {
			return err
		}
	}
	x.leaveUnrounded(p.State)
	return x.image.Write(at, src)
}

// partAt returns the place of a part of a state in the arena.
func (x *Executable) partAt(p Part, bytes int) (int64, error) {
	s := p.State
	at, err := x.stateAt(s.Name, int(s.Type.Bytes()))
	width := s.Type.DType.Size()
	if err == nil && (p.From < 0 || p.Elems < 0 || p.From+p.Elems > s.Type.Shape.Elems() || int64(bytes) != p.Elems*width) {
		err = fmt.Errorf("state %s is %v: elements %d to %d do not fit %d bytes", s.Name, s.Type, p.From, p.From+p.Elems, bytes)
	}
	return at + p.From*width, err
}

// stateAt returns the place of a state in the arena, or past its end.
func (x *Executable) stateAt(name string, bytes int) (int64, error) {
	s := x.p.State(name)
	if s == nil {
		return 0, fmt.Errorf("the program has no state %q", name)
	}
	if int64(bytes) != s.Type.Bytes() {
		return 0, fmt.Errorf("state %s is %v, %d bytes, not %d", name, s.Type, s.Type.Bytes(), bytes)
	}
	return x.p.StateAt(s), nil
}

// StateAt returns where a state begins, as [Image.Read] counts.
func (p *Program) StateAt(s *graph.State) int64 {
	return p.Layout.Region(regionOf(s)).Offset + p.Layout.State[s.Name].Offset
}

// ClearState sets every element of a state to zero.
func (x *Executable) ClearState(name string) error {
	s := x.p.State(name)
	if s == nil {
		return fmt.Errorf("the program has no state %q", name)
	}
	if s.Type.DType.Quantized() {
		return x.SetState(newTensor(s))
	}
	elems, width := s.Type.Shape.Elems(), s.Type.DType.Size()
	zeros := make([]byte, min(elems, statePart)*width)
	for from := int64(0); from < elems; from += statePart {
		n := min(elems-from, statePart)
		if err := x.WritePart(Part{s, from, n}, zeros[:n*width]); err != nil {
			return err
		}
	}
	return nil
}

// statePart is how many elements of a state are cleared, initialized or scanned at a
// time, so that no state needs twice its memory.
const statePart = 1 << 18

// ScanState passes the elements of a state to see in parts, in order, until see
// returns false.
func (x *Executable) ScanState(name string, see func(part Tensor) (goOn bool)) error {
	s := x.p.State(name)
	if s == nil {
		return fmt.Errorf("the program has no state %q", name)
	}
	bytes := s.Type.Bytes()
	part := min(bytes, statePart*bytes/max(1, s.Type.Shape.Elems()))
	if s.Type.DType.Quantized() {
		part = bytes // its elements share scales
	}
	buf := make([]byte, part)
	at, err := x.stateAt(name, int(bytes))
	if err != nil {
		return err
	}
	for from := int64(0); from < bytes; from += part {
		t := Tensor{name, s.Type, buf[:min(part, bytes-from)]}
		if err := x.image.Read(t.Data, at+from); err != nil {
			return err
		}
		if !see(t) {
			break
		}
	}
	return nil
}

// State returns a copy of a state.
func (x *Executable) State(name string) (Tensor, error) {
	s := x.p.State(name)
	if s == nil {
		return Tensor{}, fmt.Errorf("the program has no state %q", name)
	}
	t := newTensor(s)
	return t, x.ReadState(name, t.Data)
}

// SetState copies t into the state of its name.
func (x *Executable) SetState(t Tensor) error { return x.WriteState(t.Name, t.Data) }

func newTensor(s *graph.State) Tensor {
	return Tensor{s.Name, s.Type, make([]byte, s.Type.Bytes())}
}

// SetFloats writes elems, rounded to the format of the state.
func (x *Executable) SetFloats(name string, elems []float32) error {
	s := x.p.State(name)
	if s == nil {
		return fmt.Errorf("the program has no state %q", name)
	}
	if int64(len(elems)) != s.Type.Shape.Elems() {
		return fmt.Errorf("state %s is %v, not of %d elements", name, s.Type, len(elems))
	}
	if !numbers(s.Type.DType) {
		return fmt.Errorf("state %s is %v, not floating-point", name, s.Type)
	}
	t := newTensor(s)
	t.SetFloats(elems)
	return x.SetState(t)
}

// beyondF16 is the smallest number that F16 rounds to infinity.
const beyondF16 = 65520

// numbers reports whether the elements of a format stand for real numbers.
func numbers(d graph.DType) bool { return d.Float() || d.Quantized() }

// ChangeState hands a copy of the elements of a floating-point state to change, and
// writes them back, rounded to the format of the state.
func (x *Executable) ChangeState(name string, change func(elems []float32) error) error {
	t, err := x.State(name)
	if err != nil {
		return err
	}
	if !numbers(t.Type.DType) {
		return fmt.Errorf("state %s is %v, not floating-point", name, t.Type)
	}
	elems := t.Floats()
	if err := change(elems); err != nil {
		return err
	}
	if t.Type.DType == graph.F16 {
		if top := simd.MaxMagnitude(elems); top >= beyondF16 {
			return fmt.Errorf("state %s is %v, whose largest number is 65504: it cannot hold %v", name, t.Type, top)
		}
	}
	if t.Type.DType != graph.F32 {
		t.SetFloats(elems)
	}
	return x.SetState(t)
}

// changeAll calls the guard for all states.
func (x *Executable) changeAll() error {
	if x.guard == nil {
		return nil
	}
	names := make([]string, len(x.p.States))
	for i, s := range x.p.States {
		names[i] = s.Name
	}
	return x.guard(names)
}

// Initialize gives every state its first value. Random values depend only on seed and the
// state's name.
func (x *Executable) Initialize(seed uint64) error {
	if err := x.changeAll(); err != nil {
		return err
	}
	x.unrounded = true
	for _, s := range x.p.States {
		if s.Type.DType.Quantized() {
			if err := x.initializeWhole(s, seed); err != nil {
				return err
			}
			continue
		}
		part := statePart
		if s.Init.Kind == graph.InitRotary {
			part = s.Type.Shape.Last() * max(1, part/s.Type.Shape.Last())
		}
		n := int(s.Type.Shape.Elems())
		width := int(s.Type.Bytes()) / max(n, 1)
		buf := make([]byte, min(n, part)*width)
		at, err := x.stateAt(s.Name, n*width)
		if err != nil {
			return err
		}
		for from := 0; from < n; from += part {
			t := Tensor{s.Name, s.Type, buf[:min(n-from, part)*width]}
			fill(t, s, seed, from)
			if err := x.image.Write(at+int64(from*width), t.Data); err != nil {
				return err
			}
		}
	}
	return nil
}

// initializeWhole gives its first value to a state whose elements share scales.
func (x *Executable) initializeWhole(s *graph.State, seed uint64) error {
	full := *s
	full.Type = s.Type.With(graph.F32)
	t := newTensor(&full)
	fill(t, &full, seed, 0)
	return x.SetFloats(s.Name, t.F32())
}

// fill writes the first values of the elements of s from the given one on.
func fill(t Tensor, s *graph.State, seed uint64, from int) {
	if !s.Type.DType.Float() {
		x := t.I32()
		for i := range x {
			x[i] = int32(s.Init.A)
			if s.Init.Kind == graph.InitIota {
				x[i] = int32(from + i)
			}
		}
		return
	}
	x := t.F32()
	if s.Type.DType != graph.F32 {
		x = make([]float32, len(t.U16()))
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(cmp.Or(s.OldName, s.Name))) // a hash's Write cannot fail
	a, b := float32(s.Init.A), float32(s.Init.B)
	switch s.Init.Kind {
	case graph.InitNormal:
		simd.NormalF32(x, seed, h.Sum64(), uint64(from))
		simd.MulScalar(x, x, b)
		simd.AddScalar(x, x, a)
	case graph.InitUniform:
		simd.UniformF32(x, seed, h.Sum64(), uint64(from))
		simd.MulScalar(x, x, b-a)
		simd.AddScalar(x, x, a)
	case graph.InitIota:
		for i := range x {
			x[i] = float32(from + i)
		}
	case graph.InitRotary:
		dims := s.Type.Shape.Last()
		table := graph.RotaryTable{Dims: dims, Base: s.Init.A, Scaling: s.Init.Scaling}
		for i := 0; i < len(x); i += dims {
			table.Row(x[i:i+dims], (from+i)/dims)
		}
	default:
		simd.Fill(x, a)
	}
	if s.Type.DType != graph.F32 {
		t.SetFloats(x)
	}
}
