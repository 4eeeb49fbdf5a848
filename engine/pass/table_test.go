package pass

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine/graph"
)

// Swapping any two passes of a constraint is caught at start, with the reason, and
// so is a constraint on a pass that does not exist.
func TestConstraintsAreChecked(t *testing.T) {
	caught := func(order []constraint, table []pass) (text string) {
		defer func() {
			if r := recover(); r != nil {
				text = fmt.Sprint(r)
			}
		}()
		mustHold(order, table)
		return ""
	}
	if text := caught(passOrder[:], passes[:]); text != "" {
		t.Fatal(text)
	}
	for _, c := range passOrder {
		table := slices.Clone(passes[:])
		i := slices.IndexFunc(table, func(p pass) bool { return p.name == c.before })
		j := slices.IndexFunc(table, func(p pass) bool { return p.name == c.after })
		table[i], table[j] = table[j], table[i]
		if text := caught([]constraint{c}, table); !strings.Contains(text, c.before+" must come before "+c.after+": "+c.reason) {
			t.Errorf("%s and %s in the wrong order: %q", c.before, c.after, text)
		}
	}
	if text := caught([]constraint{{"fuse", "polish", "it shines"}}, passes[:]); text == "" {
		t.Error("a constraint on a pass that does not exist went through")
	}
}

// Stop ends after the pass that it names, Skip leaves a pass out.
func TestStopAndSkip(t *testing.T) {
	names := Names()
	for i, stop := range names {
		var ran []string
		err := Run(&Unit{F: graph.NewBuilder("empty").F}, Options{
			Stop:  stop,
			Skip:  func(name string) bool { return name == names[2] && stop != names[2] },
			Times: func(name string, _ time.Duration) { ran = append(ran, name) },
		})
		want := slices.Clone(names[:i+1])
		if i > 2 {
			want = slices.Delete(want, 2, 3)
		}
		if err != nil || !slices.Equal(ran, want) {
			t.Errorf("stopping at %s ran %v (%v), want %v", stop, ran, err, want)
		}
	}
}

// A broadcast operand is read as one that broadcasts under another view of the same
// elements, if there is one.
func TestProject(t *testing.T) {
	type shape = graph.Shape
	for _, c := range []struct{ s, from, to, want shape }{
		{shape{4, 6}, shape{4, 6}, shape{24}, shape{24}},
		{shape{6}, shape{2, 3, 6}, shape{6, 6}, shape{6}},
		{shape{1, 1, 6}, shape{2, 3, 6}, shape{6, 6}, shape{6}},
		{shape{}, shape{2, 3}, shape{6}, shape{}},
		{shape{1}, shape{2, 3}, shape{6}, shape{}},
		{shape{2, 3, 1}, shape{2, 3, 6}, shape{6, 6}, shape{6, 1}},
		{shape{2, 1, 6}, shape{2, 3, 6}, shape{2, 18}, nil},
		{shape{3, 6}, shape{2, 3, 6}, shape{6, 6}, nil},
		{shape{3, 6}, shape{2, 3, 6}, shape{2, 18}, shape{18}},
		{shape{3, 6}, shape{2, 3, 6}, shape{2, 1, 18, 1}, shape{18, 1}},
		{shape{2, 1, 6}, shape{2, 3, 6}, shape{1, 2, 3, 6}, shape{2, 1, 6}},
		{shape{2, 1, 1}, shape{2, 4, 3}, shape{2, 3, 4}, shape{2, 1, 1}},
		{shape{4, 1}, shape{2, 4, 3}, shape{2, 3, 4}, nil},
	} {
		got, ok := project(c.s, c.from, c.to)
		if ok != (c.want != nil) || ok && !got.Equal(c.want) {
			t.Errorf("%v of %v among %v: got %v, %v, want %v", c.s, c.from, c.to, got, ok, c.want)
		}
	}
}
