package engine

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// Watch follows what a run does to gradients, so that gradients can be exchanged as soon as
// the run has finished with them. Both functions get names of states and can end the run
// with an error; they are called from a goroutine of the device.
type Watch struct {
	// Begins returns when the run may use the gradients for the first time.
	Begins func(gradients []string) error
	// Ends is called when the run no longer uses the gradients. From then on
	// [Executable.ReadPart] and [Executable.WritePart] can access them from any goroutine,
	// until the next run whose Begins returns for them.
	Ends func(gradients []string) error
}

// watched is an image that calls a [Watch] in the middle of a run.
type watched interface {
	RunWatched(fn string, slot int, w *Watch) error
}

// RunWatched runs a function and returns when the device has finished. A device whose
// runs cannot be followed, or that was not prepared for it ([Program.Watched]), uses all
// gradients from the beginning to the end.
func (x *Executable) RunWatched(fn string, slot int, w *Watch) error {
	if err := x.prepare(fn, slot); err != nil {
		return err
	}
	if i, ok := x.image.(watched); ok {
		return i.RunWatched(fn, slot, w)
	}
	var all []string
	if f := x.p.Func(fn); f != nil {
		for _, u := range GradientUses(f.F) {
			all = append(all, u.Ends...)
		}
	}
	if err := w.Begins(all); err != nil {
		return err
	}
	if err := x.image.Run(fn, slot); err != nil {
		return err
	}
	if err := x.image.Sync(); err != nil {
		return err
	}
	return w.Ends(all)
}

// Uses lists the gradients of which a node is the first or the last user in its function.
type Uses struct{ Begins, Ends []string }

// GradientUses returns the uses of each node of a function that reads or writes
// gradients.
func GradientUses(f *graph.Func) map[*graph.Node]Uses {
	first, last := map[string]*graph.Node{}, map[string]*graph.Node{}
	for _, n := range f.Nodes {
		if graph.IsView(n.Op) {
			continue
		}
		for _, v := range slices.Concat(n.In, n.Out) {
			s := graph.Storage(v).State
			if s == nil || s.Role != graph.Gradient {
				continue
			}
			name := s.Home().Name
			if first[name] == nil {
				first[name] = n
			}
			last[name] = n
		}
	}
	uses := map[*graph.Node]Uses{}
	for _, v := range f.States { // whose order is the program's
		name := v.State.Home().Name
		if first[name] == nil {
			continue
		}
		u := uses[first[name]]
		if !slices.Contains(u.Begins, name) { // parts of a state have one name
			u.Begins = append(u.Begins, name)
			uses[first[name]] = u
			u = uses[last[name]]
			u.Ends = append(u.Ends, name)
			uses[last[name]] = u
		}
	}
	return uses
}
