package graph

import "fmt"

// Verify checks what every program must keep: operands are defined before
// they are used, by this function; result types follow the shape rules; only
// states are written in place, each write makes the next version, and no
// version is read after it was overwritten.
func Verify(f *Func) error {
	const (
		unknown = iota
		defined
		overwritten
	)
	status := make([]byte, f.nextID)
	owner := make([]*Value, f.nextID)
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
		case v.ID >= f.nextID || owner[v.ID] != v:
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
		for _, a := range Aliases(n.Op, len(n.In)) {
			v := n.In[a.In]
			if v.State == nil {
				return fmt.Errorf("%s: %s writes operand %d (%s) in place, which is no state", f.Name, what, a.In, v.Label())
			}
			if n.Out[a.Out].State != v.State {
				return fmt.Errorf("%s: %s: result %d is not marked as the next version of state %s", f.Name, what, a.Out, v.State.Name)
			}
			status[v.ID] = overwritten
		}
		for _, v := range n.Out {
			if err := define(v); err != nil {
				return err
			}
		}
	}
	for _, o := range f.Outputs {
		if err := use(o.Value, "output "+o.Name); err != nil {
			return err
		}
	}
	return nil
}
