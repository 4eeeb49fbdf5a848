package graph

import (
	"fmt"
	"reflect"
	"strings"
)

// opString prints an operation with those attributes that differ from zero.
func opString(op Op) string {
	v := reflect.ValueOf(op)
	if v.Kind() != reflect.Struct {
		return op.Name()
	}
	var attrs []string
	for i := range v.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		name := v.Type().Field(i).Name
		if e, ok := op.(Elementwise); ok && name == "Fn" && e.Fn.String() == op.Name() {
			continue
		}
		if name == "Seed" {
			continue // belongs to a run, not to the program
		}
		value := f.Interface()
		if e, ok := value.(Elementwise); ok {
			value = opString(e)
		}
		attrs = append(attrs, fmt.Sprintf("%s=%v", name, value))
	}
	if len(attrs) == 0 {
		return op.Name()
	}
	return op.Name() + "{" + strings.Join(attrs, " ") + "}"
}

// Key identifies an operation with its attributes, as a map key.
func Key(op Op) string { return string(AppendKey(nil, op)) }

func valueString(v *Value) string {
	if v.Node == nil {
		return "%" + v.Name
	}
	return fmt.Sprintf("v%d", v.ID)
}

// String is the program as text: one line per node, stable from run to run.
func (f *Func) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "func %s\n", f.Name)
	for _, v := range f.Inputs {
		fmt.Fprintf(&s, "  input %%%s %v\n", v.Name, v.Type)
	}
	for _, v := range f.States {
		fmt.Fprintf(&s, "  state %%%s %v %v\n", v.Name, v.Type, v.State.Role)
	}
	for _, n := range f.Nodes {
		s.WriteString("  ")
		for i, v := range n.Out {
			if i > 0 {
				s.WriteString(", ")
			}
			fmt.Fprintf(&s, "v%d %v", v.ID, v.Type)
		}
		s.WriteString(" = " + opString(n.Op) + "(")
		for i, v := range n.In {
			if i > 0 {
				s.WriteString(", ")
			}
			s.WriteString(valueString(v))
		}
		s.WriteString(")")
		var marks []string
		if n.Layer != "" {
			marks = append(marks, n.Layer)
		}
		if n.Backward {
			marks = append(marks, "backward")
		}
		if n.Clone {
			marks = append(marks, "recomputed")
		}
		if len(marks) > 0 {
			s.WriteString(" // " + strings.Join(marks, ", "))
		}
		s.WriteByte('\n')
	}
	for _, o := range f.Outputs {
		fmt.Fprintf(&s, "  output %s = %s\n", o.Name, valueString(o.Value))
	}
	return s.String()
}
