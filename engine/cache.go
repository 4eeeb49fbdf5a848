package engine

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Cache keeps results of compiling programs of one model, for programs that differ in the shape
// of a micro-batch, in recomputation or in the device: whole programs, functions that are equal
// in several of them, and the output of the passes before recomputation for the others. Its
// results equal those of compiling anew, and must not be changed. It is not safe for concurrent
// use.
type Cache struct {
	programs []known // most recently used last
	finished map[finishedKey]*Func
	steps    map[stepKey]*trainingStep
	recent   []stepKey // most recently used last
}

// known is a program with what it depends on. mostPrograms is how many of them are kept: as many
// as are soon asked for again.
type known struct {
	key     programKey
	program *Program
}

const mostPrograms = 4

// mostSteps is how many training steps are kept in their form before recomputation: a
// ladder comes back to a micro-batch soon, or not at all.
const mostSteps = 6

// stepKey is what a function before recomputation depends on, programKey what a program
// depends on unless it is fitted to a budget.
type (
	stepKey struct {
		of      any
		compute graph.DType
		tf32    bool
		// compress and rounded are of CompileOptions.
		compress, rounded bool
	}
	programKey struct {
		step      stepKey
		traits    Traits
		recompute pass.Recompute
		slices    int
		offload   bool // states
		staging   int64
	}
	finishedKey struct {
		content content
		traits  Traits
		compute graph.DType
		tf32    bool
		offload bool // states
		staging int64
	}
)

// content identifies a function without a backward half, before the passes.
type content [sha256.Size]byte

func contentOf(u *pass.Unit) content {
	h := sha256.New()
	sum := u.F.Fingerprint()
	h.Write(sum[:])
	for _, v := range u.F.States {
		d := graph.F32
		if u.Narrow != nil {
			d = u.Narrow(v.State)
		}
		h.Write([]byte{byte(d)})
	}
	if u.Rounded != nil {
		for _, w := range u.Rounded.Weights {
			h.Write([]byte(w.Name))
		}
	}
	return content(h.Sum(nil))
}

// remembers reports whether programs are kept: not if their compilation is observed.
func (o *CompileOptions) remembers() bool {
	return o.Cache != nil && o.Of != nil && !o.Verify && o.Dump == "" && !o.Label && o.Skip == nil
}

func (o *CompileOptions) step() stepKey {
	return stepKey{o.Of, o.ComputeDType, o.TF32, o.Compress, o.rounded}
}

// training returns the training step of o, calling make unless it is cached.
func (c *Cache) training(o *CompileOptions, make func() (*trainingStep, error)) (*trainingStep, error) {
	k := o.step()
	c.recent = slices.DeleteFunc(c.recent, func(r stepKey) bool { return r == k })
	c.recent = append(c.recent, k)
	if s := c.steps[k]; s != nil {
		return s, nil
	}
	s, err := make()
	if err != nil {
		return nil, err
	}
	if c.steps == nil {
		c.steps = map[stepKey]*trainingStep{}
	}
	c.steps[k] = s
	for len(c.recent) > mostSteps {
		delete(c.steps, c.recent[0])
		c.recent = c.recent[1:]
	}
	return s, nil
}

// program returns the program of o, calling make unless it is cached.
func (c *Cache) program(o *CompileOptions, make func() (*Program, error)) (*Program, error) {
	if o.Recompute == pass.RecomputeAuto || o.OffloadActivations {
		return make()
	}
	k := known{key: programKey{o.step(), o.traits(), o.Recompute, o.Slices, o.offloadStates, o.Staging}}
	if i := slices.IndexFunc(c.programs, func(p known) bool { return p.key == k.key }); i >= 0 {
		k = c.programs[i]
		c.programs = slices.Delete(c.programs, i, i+1)
	} else {
		p, err := make()
		if err != nil {
			return nil, err
		}
		k.program = p
	}
	c.programs = append(c.programs, k)
	if len(c.programs) > mostPrograms {
		c.programs = slices.Delete(c.programs, 0, 1)
	}
	return k.program, nil
}

// source is a function before it is compiled.
type source struct {
	// build makes the function; done are those before it in its program.
	build func(done []*Func) *pass.Unit
	// again means that what build makes depends on done.
	again bool
	// front is the output of the passes before recomputation, content its key in a [Cache];
	// nil: not known.
	front   *pass.Unit
	content *content
	// offloadable means that states of it, once content is known, can be offloaded.
	offloadable bool
}

// job is a function on its way through the passes.
type job struct {
	s *source
	u *pass.Unit // after the passes before recomputation; nil: it was finished already
	f *Func
	// key is what f is kept under in a cache, unless something of it is recomputed.
	key finishedKey
	err error
}

// start runs the passes before recomputation over s, the next function of p, unless o's cache has the result of
// these or of all passes.
func (s *source) start(p *Program, o *CompileOptions) *job {
	j := &job{s: s, u: s.front, key: finishedKey{traits: p.Traits, compute: o.ComputeDType, tf32: o.TF32, staging: o.Staging}}
	finished := func(c content) bool {
		j.key.content, j.key.offload = c, o.offloadStates && s.offloadable
		j.f = o.Cache.finished[j.key]
		return j.f != nil
	}
	if s.content != nil && finished(*s.content) || j.u != nil {
		return j
	}
	if j.err = graph.Catch(func() { j.u = s.build(p.Funcs) }); j.err != nil {
		return j
	}
	j.u.ComputeDType, j.u.TF32, j.u.Compress, j.u.Context = o.ComputeDType, o.TF32, o.Compress, o.Context
	if o.Cache != nil && j.u.Loss == "" { // nothing of it is recomputed
		c := contentOf(j.u)
		s.offloadable = slices.ContainsFunc(j.u.F.States, func(v *graph.Value) bool { return v.State.Offloadable })
		if !s.again {
			s.content = &c
		}
		if finished(c) {
			return j
		}
	}
	if err := pass.Front(j.u, o.passes()); err != nil {
		j.err = fmt.Errorf("compiling %s: %w", j.u.F.Name, err)
	} else if !s.again {
		s.front = j.u
	}
	return j
}

// finish runs the other passes. It does not use the cache, so that several functions can be finished at once.
func (j *job) finish(p *Program, o *CompileOptions) {
	if j.f != nil || j.err != nil {
		return
	}
	var rival *pass.Rival
	if o.Rival != nil {
		rival = o.Rival(j.u.F.Name)
	}
	u, err := pass.Back(j.u, o.passes(), func(u *pass.Unit) {
		u.Fusion, u.Align, u.Recompute, u.Budget, u.Slices, u.Price, u.Rival, u.OffloadStates, u.OffloadActivations, u.Staging, u.Context = &p.Traits.Fusion, p.Traits.Align, o.Recompute, o.Budget, o.Slices, o.Price, rival, o.offloadStates, o.OffloadActivations, o.Staging, o.Context
	})
	if err != nil {
		j.err = fmt.Errorf("compiling %s: %w", j.u.F.Name, err)
		return
	}
	j.f = &Func{u.F.Name, u.F, u.Placement, u.Blocks}
}

// keep puts a finished function into the cache.
func (j *job) keep(c *Cache) {
	if c == nil || j.u == nil || j.u.Loss != "" {
		return
	}
	if c.finished == nil {
		c.finished = map[finishedKey]*Func{}
	}
	c.finished[j.key], j.s.front = j.f, nil
}
