// Package pass turns the graph of a model into a program: a flat table of passes, run in
// order on one function at a time. Each pass is exact (the program means the same
// afterwards, within the requested precision), can be tested alone, and leaves a function
// that passes [graph.Verify].
package pass

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/snug-ml/snug/engine/graph"
)

// Unit is what the passes work on: a function and the options for compiling it.
type Unit struct {
	F *graph.Func

	// Loss, when set, makes differentiation append the gradients of the output
	// so named for every state of role Weight, seeded by Seed (a scalar value
	// of F; nil is 1).
	Loss string
	Seed *graph.Value
	// Optimize appends what consumes the gradients: an update of the parameters, or a sum
	// over micro-batches. Parameters that no gradient reaches have a nil gradient.
	Optimize func(b *graph.Builder, params, grads []*graph.Value)

	// Narrow returns the format in which a weight is kept, F32 for unchanged; nil: all
	// are unchanged.
	Narrow func(s *graph.State) graph.DType

	// Rounded, when set, keeps weights in the 16 bits that matmuls read.
	Rounded *Rounded

	// Twice names an output, the norm of the gradients, which the optimizer waits for: the backward half
	// that it comes from is computed twice, the first time only for the norm; "" means once.
	Twice string

	// params and grads go from differentiate to optimize.
	params, grads []*graph.Value

	// ComputeDType is the 16-bit type of mixed precision; graph.F32 (or Invalid) is none.
	ComputeDType graph.DType
	// TF32 rounds the factors of float32 matmuls to TF32; see [graph.TF32Rule].
	TF32 bool

	// Compress keeps the arguments of GELU and SiLU for the backward half in 8 bits.
	Compress bool

	// Recompute says what to drop and rebuild in the backward half; Budget is the limit
	// on temporary bytes for RecomputeAuto and OffloadActivations.
	Recompute Recompute
	Budget    int64
	// Slices is how many parts RecomputeSlices computes a block in; below 2 it is
	// RecomputeFull.
	Slices int
	// Price returns the time of an operation, in any unit, for RecomputeAuto and
	// OffloadActivations; nil counts its FLOPs and bytes.
	Price func(n *graph.Node) float64
	// Rival is what RecomputeAuto and OffloadActivations compete with; nil: nothing.
	Rival *Rival

	// Fusion is what the device's kernels can fuse; nil: everything.
	Fusion *Fusion

	// OffloadStates keeps those states in the host's memory that are Offloadable.
	OffloadStates bool
	// OffloadActivations keeps activations in the host's memory until the backward half
	// reads them, only as many as bring the temporaries down to Budget.
	OffloadActivations bool

	// Staging is how many bytes of offloaded states of a step are on the device at once;
	// 0: [StagingWindow].
	Staging int64

	// Align is the alignment of buffers in bytes (64 when 0).
	Align int64

	// Context, when it ends, ends the work between two passes; nil: nothing does.
	Context context.Context

	schedule schedule // of the last function that was reordered
	// tried caches trials for a budget, for everything that [Back] makes of the function; nil: not cached.
	tried map[trialKey]trial
	// latest is what was last tried.
	latest *made
	// arranged is what the passes up to order made of the function, for what [Back] makes of it next; most
	// recently used last.
	arranged []*arranged

	// Placement is the result of the last pass.
	Placement *Placement
	// Blocks is how the recompute pass treated each block, by block number from 1.
	Blocks []Recompute
}

// pass is one line of the table.
type pass struct {
	name string
	run  func(u *Unit) error
}

var passes = [...]pass{
	{"differentiate", differentiate}, // append the backward half
	{"narrow", narrow},               // weights in 16 bits
	{"optimize", optimize},           // append the optimizer, or the sums of gradients over micro-batches
	{"simplify", simplify},           // drop unused values, share what is computed twice
	{"cast", cast},                   // mixed precision
	{"tidy", simplify},               // casts that repeat or cancel
	{"round", round},                 // weights that the optimizer keeps in 16 bits too
	{"tf32", tf32},                   // float32 matmuls on tensor cores
	{"compress", compress},           // activations in 8 bits
	{"recompute", recompute},         // drop activations, rebuild them in the backward half
	{"slice", slice},                 // blocks in parts of the batch
	{"twice", twice},                 // compute the backward half an extra time for the norm of the gradients
	{"accumulate", accumulate},       // gradients add up where they are computed
	{"fuse", fuse},                   // one pass over memory instead of several
	{"order", order},                 // free soonest
	{"offload", offload},             // states and activations to and from the host
	{"alias", alias},                 // parts of one buffer instead of copies
	{"place", place},                 // offsets in one arena
}

// constraint says that one pass must come before another.
type constraint struct{ before, after, reason string }

var passOrder = [...]constraint{
	{"differentiate", "optimize", "the optimizer works on the gradients"},
	{"differentiate", "narrow", "the rules of gradients look at the formats of operands"},
	{"narrow", "optimize", "a step depends on the format of its weight"},
	{"optimize", "simplify", "unused gradients are emitted first and dropped later"},
	{"differentiate", "cast", "gradient rules emit float32; the cast pass lowers both halves alike"},
	{"cast", "tf32", "what is cast to 16 bits is not rounded to TF32"},
	{"tf32", "fuse", "a matmul is marked before work is fused into it"},
	{"cast", "tidy", "the same weight is cast once for both halves"},
	{"cast", "compress", "what is kept has the format that the forward half computes in"},
	{"tidy", "round", "the same weight is read in 16 bits by both halves"},
	{"round", "recompute", "what is kept is not rebuilt"},
	{"tidy", "compress", "a cast of an argument would be a reader that needs it as it is"},
	{"compress", "recompute", "codes are kept, or made again with what they are codes of"},
	{"compress", "fuse", "a fused node has no function that could be computed again"},
	{"tidy", "recompute", "sharing common subexpressions would undo recomputation"},
	{"recompute", "slice", "what is rebuilt is computed in parts like what reads it"},
	{"recompute", "twice", "what is rebuilt is rebuilt twice"},
	{"slice", "twice", "both halves are made of parts"},
	{"tidy", "twice", "sharing common subexpressions would undo it"},
	{"twice", "fuse", "a fused node belongs to one of the two"},
	{"slice", "accumulate", "the gradients of the parts are added up where the sum is kept"},
	{"recompute", "accumulate", "recomputation needs to know which values the two halves share, not where sums are kept"},
	{"accumulate", "fuse", "a matmul with fused work cannot accumulate into a state"},
	{"recompute", "fuse", "a fused node is dropped or kept as a whole"},
	{"differentiate", "fuse", "fused nodes have no gradient rule"},
	{"fuse", "order", "order works on the nodes that will run"},
	{"order", "offload", "copies come while the steps before them compute, in the order in which these run"},
	{"order", "alias", "a buffer lives as long as its parts"},
	{"offload", "alias", "a copy from the host is no part of a buffer"},
	{"alias", "place", "a part is where its buffer is"},
	{"order", "place", "lifetimes are positions in the final order"},
}

func init() { mustHold(passOrder[:], passes[:]) }

// mustHold panics when a table of passes breaks a constraint or names a pass that is not
// in it.
func mustHold(order []constraint, table []pass) {
	at := map[string]int{}
	for i, p := range table {
		at[p.name] = i
	}
	for _, c := range order {
		i, ok := at[c.before]
		j, ok2 := at[c.after]
		if !ok || !ok2 || i >= j {
			panic(fmt.Sprintf("pass order: %s must come before %s: %s", c.before, c.after, c.reason))
		}
	}
}

// Names are the passes in order.
func Names() []string {
	var s []string
	for _, p := range passes {
		s = append(s, p.name)
	}
	return s
}

// Options control a run of the table.
type Options struct {
	// Verify checks the function after each pass.
	Verify bool
	// Dump prints the function before and after the pass of that name.
	Dump string
	// To is where Dump prints.
	To io.Writer
	// Stop ends after the pass of that name; empty runs all.
	Stop string
	// Skip leaves out a pass, for tests that compare results with and without it.
	Skip func(name string) bool
	// Label names the results of nodes while functions of all precisions and
	// recomputations are still the same, so that they can be compared by name.
	Label bool
	// Times, when set, is called with the time that each pass took.
	Times func(name string, d time.Duration)
}

// Run runs the table on u.
func Run(u *Unit, o Options) error {
	if more, err := run(u, o, passes[:own]); err != nil || !more {
		return err
	}
	_, err := run(u, o, passes[own:])
	return err
}

// own is the index in the table of the first pass that depends on the device and on what is
// recomputed.
var own = slices.IndexFunc(passes[:], func(p pass) bool { return p.name == "recompute" })

// placing is the index of the first pass after order: only those from there on depend on what is offloaded.
var placing = slices.IndexFunc(passes[:], func(p pass) bool { return p.name == "offload" })

// aliasing is the index of the first pass after offload.
var aliasing = placing + 1

// arranged is a function after order.
type arranged struct {
	by     arrangement
	f      *graph.Func
	blocks []Recompute
	// placed is the function after alias, and placement where its values are, if nothing is offloaded, with an
	// alignment; nil: not known.
	placed    *graph.Func
	placement *Placement
	align     int64
}

// mostArranged is how many functions after order are kept: one for each recipe that is compared with and without
// offloading.
const mostArranged = int(RecomputeFull) + 1

// arrangement is what the passes from recompute to order depend on besides the function, unless they have to meet
// a budget.
type arrangement struct {
	recompute Recompute
	slices    int
	fusion    Fusion
}

func (u *Unit) arrangement() arrangement { return arrangement{u.Recompute, u.Slices, u.fusion()} }

// Front runs the passes that depend neither on the device nor on what is recomputed. [Back] runs
// the others, as often as needed: it does not change the nodes that it gets.
func Front(u *Unit, o Options) error {
	_, err := run(u, o, passes[:own])
	u.tried = map[trialKey]trial{}
	return err
}

// Back returns a copy of u, on which Front ran, after running the remaining passes. set
// completes the copy. Copies that differ only in what they offload share what comes before.
func Back(u *Unit, o Options, set func(u *Unit)) (*Unit, error) {
	v := *u
	v.F = u.F.Shallow()
	set(&v)
	var a *arranged
	if v.Recompute != RecomputeAuto {
		a = u.arrangedBy(v.arrangement())
	}
	if a == nil {
		if more, err := run(&v, o, passes[own:placing]); err != nil || !more {
			return &v, err
		}
		a = &arranged{by: v.arrangement(), f: v.F, blocks: v.Blocks}
	}
	if u.tried != nil && v.Recompute != RecomputeAuto { // otherwise Back makes nothing else of it
		u.keep(a)
	}
	f := a.f.Shallow()
	v.F, v.Blocks, v.arranged = f, a.blocks, nil
	if more, err := run(&v, o, passes[placing:aliasing]); err != nil || !more {
		return &v, err
	}
	offloads := v.F != f
	if !offloads && a.placement != nil && a.align == v.Align {
		v.F, v.Placement = a.placed.Shallow(), a.placement
		return &v, nil
	}
	_, err := run(&v, o, passes[aliasing:])
	if !offloads {
		a.placed, a.placement, a.align = v.F, v.Placement, v.Align
	}
	return &v, err
}

// arrangedBy returns the kept function with an arrangement, or nil.
func (u *Unit) arrangedBy(by arrangement) *arranged {
	if i := slices.IndexFunc(u.arranged, func(a *arranged) bool { return a.by == by }); i >= 0 {
		return u.arranged[i]
	}
	return nil
}

// keep makes a the most recently used function.
func (u *Unit) keep(a *arranged) {
	u.arranged = slices.DeleteFunc(u.arranged, func(b *arranged) bool { return a == b })
	if len(u.arranged) == mostArranged {
		u.arranged = slices.Delete(u.arranged, 0, 1)
	}
	u.arranged = append(u.arranged, a)
}

// run runs a part of the table on u, and reports whether to go on after it.
func run(u *Unit, o Options, table []pass) (more bool, err error) {
	if table[0].name == passes[0].name {
		if err := graph.Verify(u.F); err != nil {
			return false, fmt.Errorf("before the passes: %w", err)
		}
	}
	for _, p := range table {
		if o.Skip != nil && o.Skip(p.name) {
			continue
		}
		if o.Dump == p.name {
			if _, err := fmt.Fprintf(o.To, "# before %s\n%v", p.name, u.F); err != nil {
				return false, err
			}
		}
		if err := u.interrupted(); err != nil {
			return false, err
		}
		start := time.Now()
		if err := graph.Catch(func() { catch(p.run(u)) }); err != nil {
			return false, fmt.Errorf("%s: %w", p.name, err)
		}
		if o.Label && p.name == "simplify" {
			label(u.F)
		}
		if o.Times != nil {
			o.Times(p.name, time.Since(start))
		}
		if o.Dump == p.name {
			if _, err := fmt.Fprintf(o.To, "# after %s\n%v", p.name, u.F); err != nil {
				return false, err
			}
		}
		if o.Verify {
			if err := graph.Verify(u.F); err != nil {
				return false, fmt.Errorf("after %s: %w", p.name, err)
			}
		}
		if p.name == o.Stop {
			return false, nil
		}
	}
	return true, nil
}

// interrupted returns the error of a context that has ended.
func (u *Unit) interrupted() error {
	if u.Context == nil {
		return nil
	}
	return context.Cause(u.Context)
}

// catch raises err where a builder's error is caught.
func catch(err error) {
	if err != nil {
		panic(&graph.Error{Err: err})
	}
}
