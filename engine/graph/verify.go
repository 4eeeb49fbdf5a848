package graph

import "fmt"

// Verify checks the invariants of every program: operands are defined by this function before
// they are used; result types follow the shape rules; only states and fetched parts of them are
// written in place, each write makes the next version, and neither a version nor a view of it is
// read after it was overwritten; nodes with effects are not recomputed; outputs have distinct
// names.
func Verify(f *Func) error {
	const (
		unknown = iota
		defined
		overwritten
	)
	status := make([]byte, f.nextID)
	owner := make([]*Value, f.nextID)
	views := make([][]*Value, f.nextID) // by storage
	define := func(v *Value) error {
		if v.ID < 0 || v.ID >= f.nextID {
			return fmt.Errorf("%s: value %s has ID %d of %d", f.Name, v.Label(), v.ID, f.nextID)
		}
		if status[v.ID] != unknown {
			return fmt.Errorf("%s: value v%d (%s) is defined twice", f.Name, v.ID, v.Label())
		}
		status[v.ID], owner[v.ID] = defined, v
		return nil
	}
	use := func(v *Value, by string) error {
		switch {
		case v == nil:
			return fmt.Errorf("%s: %s lacks an operand", f.Name, by)
		case v.ID < 0 || v.ID >= f.nextID || owner[v.ID] != v:
			return fmt.Errorf("%s: %s reads v%d (%s), which is not defined before it", f.Name, by, v.ID, v.Label())
		case status[v.ID] == overwritten:
			return fmt.Errorf("%s: %s reads v%d (%s) after it was overwritten in place", f.Name, by, v.ID, v.Label())
		}
		return nil
	}
	names := map[string]bool{}
	for _, v := range append(append([]*Value{}, f.Inputs...), f.States...) {
		if v.Node != nil || v.Name == "" || names[v.Name] {
			return fmt.Errorf("%s: input or state %q is unnamed, computed or declared twice", f.Name, v.Name)
		}
		names[v.Name] = true
		if err := define(v); err != nil {
			return err
		}
	}
	if err := verifyWindows(f.States); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	for i, n := range f.Nodes {
		what := fmt.Sprintf("node %d (%s %s)", i, n.Op.Name(), n.Layer)
		in := make([]Type, len(n.In))
		for j, v := range n.In {
			if err := use(v, what); err != nil {
				return err
			}
			in[j] = v.Type
		}
		out, err := n.Op.Infer(in)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", f.Name, what, err)
		}
		if len(out) != len(n.Out) {
			return fmt.Errorf("%s: %s has %d results, the shape rule gives %d", f.Name, what, len(n.Out), len(out))
		}
		for j, v := range n.Out {
			if v.Node != n || v.Index != j || !v.Type.Equal(out[j]) {
				return fmt.Errorf("%s: %s: result %d is %v, the shape rule gives %v", f.Name, what, j, v.Type, out[j])
			}
		}
		if n.Clone && HasEffect(n.Op, len(n.In)) {
			return fmt.Errorf("%s: %s is recomputed, but running it twice changes the program", f.Name, what)
		}
		for _, a := range Aliases(n.Op, len(n.In)) {
			v := n.In[a.In]
			if v.State == nil && !Staged(v) {
				return fmt.Errorf("%s: %s writes operand %d (%s) in place, which is not a state", f.Name, what, a.In, v.Label())
			}
			if n.Out[a.Out].State != v.State {
				return fmt.Errorf("%s: %s: result %d is not marked as the next version of state %s", f.Name, what, a.Out, v.State.Name)
			}
			if !v.Type.Equal(n.Out[a.Out].Type) {
				return fmt.Errorf("%s: %s: version %v of state %s becomes %v", f.Name, what, v.Type, v.State.Name, n.Out[a.Out].Type)
			}
			if status[v.ID] == overwritten {
				return fmt.Errorf("%s: %s writes v%d (%s) twice", f.Name, what, v.ID, v.Label())
			}
			status[v.ID] = overwritten
			for _, w := range views[v.ID] {
				status[w.ID] = overwritten
			}
		}
		if IsView(n.Op) {
			of := Storage(n.In[0])
			views[of.ID] = append(views[of.ID], n.Out[0])
		}
		for _, v := range n.Out {
			if err := define(v); err != nil {
				return err
			}
		}
	}
	outputs := map[string]bool{}
	for _, o := range f.Outputs {
		if o.Name == "" || outputs[o.Name] {
			return fmt.Errorf("%s: output %q is unnamed or declared twice", f.Name, o.Name)
		}
		outputs[o.Name] = true
		if err := use(o.Value, "output "+o.Name); err != nil {
			return err
		}
	}
	return nil
}

// verifyWindows checks that no two states of a function share memory: a window of a state
// appears without that state, and without an overlapping window.
func verifyWindows(states []*Value) error {
	var windows []*State
	whole := map[string]bool{}
	for _, v := range states {
		if v.State.Of == nil {
			whole[v.Name] = true
		} else {
			windows = append(windows, v.State)
		}
	}
	end := func(s *State) int64 { return s.From + s.Type.Shape.Elems() }
	for i, s := range windows {
		switch {
		case s.From < 0 || s.Type.DType != s.Of.Type.DType || end(s) > s.Of.Type.Shape.Elems():
			return fmt.Errorf("state %s, elements %d to %d as %v, is no part of %s, which is %v", s.Name, s.From, end(s), s.Type, s.Of.Name, s.Of.Type)
		case whole[s.Of.Name]:
			return fmt.Errorf("state %s is a part of %s, which is used too", s.Name, s.Of.Name)
		}
		for _, t := range windows[:i] {
			if t.Of.Name == s.Of.Name && t.From < end(s) && s.From < end(t) {
				return fmt.Errorf("states %s and %s overlap", t.Name, s.Name)
			}
		}
	}
	return nil
}
