package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Mode is the kind of function that a model is built for.
type Mode struct {
	// Train enables dropout and the like.
	Train bool
	// Variant is one of Training.Variants.
	Variant string
}

// Variant returns the name of the function fn for a variant.
func Variant(fn, variant string) string {
	if variant == "" {
		return fn
	}
	return fn + "@" + variant
}

// IsVariant reports whether a function is fn, or fn for a variant.
func IsVariant(name, fn string) bool { return name == fn || strings.HasPrefix(name, fn+"@") }

// Objective is what a model's forward half returns.
type Objective struct {
	// Sum is the scalar sum over the micro-batch of weight times loss. The
	// objective of an update is the total over its micro-batches divided by
	// their total weight: a mean over tokens (or examples), however they are
	// divided into micro-batches.
	Sum *graph.Value
	// Aux, when set, is a further scalar loss of the micro-batch as a whole
	// (load balance, say); an update takes the mean over its micro-batches.
	Aux *graph.Value
	// Outputs are further results to be read by the host.
	Outputs []graph.Output
}

// Training describes a training step.
type Training struct {
	// Model builds the forward half. It is called for the training step and for the
	// evaluation of each variant.
	Model func(b *graph.Builder, m Mode) Objective
	// Variants are the shapes that a micro-batch can have (sequence lengths, say), by
	// name: each gets functions of its own. They share the states, but need not use all
	// of them. None means one shape without a name.
	Variants []string
	// Accumulation is the number of micro-batches in an update.
	Accumulation int
	Optimizer    Optimizer
	// Frozen is the format of frozen matrices; see [graph.State.FrozenAs].
	Frozen graph.DType
	// LossScaling adds the state of dynamic loss scaling, for F16.
	LossScaling *LossScaling
	// Sharding divides the optimizer among ranks; nil: it is whole. It needs an
	// Accumulation of 2 or more.
	Sharding *Sharding
	// Outer makes ranks train on their own between synchronizations; nil: they exchange gradients
	// in every update. It needs an Accumulation of 2 or more.
	Outer *Outer
	// Eval adds the function "eval": the forward half without randomness.
	Eval bool
	// EvalInputs gives "eval" its own inputs, named by [EvalInput]: its micro-batches
	// have different sizes from those of training.
	EvalInputs bool
}

// EvalInput returns the name of an input of "eval" if it has its own.
func EvalInput(name string) string { return "eval." + name }

// LossScaling keeps small F16 gradients from vanishing: the loss is multiplied
// by a scale that halves (Backoff) when a gradient overflows, in which case the
// update is skipped, and doubles (Growth) after Interval good updates
// (Micikevicius et al. 2018, section 3.2).
type LossScaling struct {
	Initial, Growth, Backoff float64
	Interval                 int
}

// DefaultLossScaling starts at 2^16 like PyTorch's GradScaler.
var DefaultLossScaling = LossScaling{Initial: 65536, Growth: 2, Backoff: 0.5, Interval: 2000}

// Names of the functions, inputs, outputs and states that training adds.
const (
	FuncStep   = "step"   // a whole update: one micro-batch (accumulation 1)
	FuncMicro  = "micro"  // one micro-batch of several
	FuncUpdate = "update" // the optimizer, after the last micro-batch
	FuncEval   = "eval"
	FuncRound  = "round" // weights to the 16 bits that steps keep them in, where something else has written them

	InputInvWeight = "inv_weight" // F32: 1 / total weight of the update's micro-batches
	InputLR        = "lr"         // F32
	InputMicro     = "micro"      // F32 [Accumulation], of FuncMicro: 1 at the index of the micro-batch, else 0

	OutputLoss     = "loss"      // F32: the micro-batch's share of the update's objective
	OutputSum      = "loss_sum"  // F32: Objective.Sum
	OutputGradNorm = "grad_norm" // F32: before clipping, unscaled
	OutputOK       = "ok"        // F32: 1, or 0 when the update was skipped
	OutputScale    = "loss_scale"

	StateStep   = "optimizer.step" // F32: updates applied
	StateClip   = "optimizer.norm" // F32: the norm of the gradients of the previous update, for ClipPrevious
	StateScale  = "scaler.scale"
	StateGood   = "scaler.good_updates"
	StateLosses = "update.losses" // F32 [Accumulation]: OutputLoss of each micro-batch of an update
	Moment1     = "optimizer.m."  // prefixes of a weight's name
	Moment2     = "optimizer.v."
	Scale1      = "optimizer.m_scale." // of moments in 8 bits
	Scale2      = "optimizer.v_scale."
	Rows2       = "optimizer.v_rows." // of second moments that are kept as means
	Columns2    = "optimizer.v_columns."
	Remainder   = "optimizer.rest." // of weights whose summation is compensated
	Gradient    = "gradient."
)

// CompileTraining builds and compiles the functions of a training step.
func CompileTraining(t Training, o CompileOptions) (*Program, error) {
	o.offloadStates = t.Optimizer.Offload
	o.rounded = t.rounds(&o)
	if !o.remembers() {
		o.Cache = nil
		s, err := newTrainingStep(t, &o)
		if err != nil {
			return nil, err
		}
		return s.compile(o)
	}
	return o.Cache.program(&o, func() (*Program, error) {
		s, err := o.Cache.training(&o, func() (*trainingStep, error) { return newTrainingStep(t, &o) })
		if err != nil {
			return nil, err
		}
		return s.compile(o)
	})
}

// trainingStep is a training step before it is compiled, with what is known once the optimizer is
// added.
type trainingStep struct {
	Training
	sources []*source
	// Variants may have weights of their own: a weight is trained if any variant reaches
	// it.
	unreached []string
	trained   []*graph.State
	known     map[string]bool
	rounded   *pass.Rounded // nil: no weights are kept in 16 bits too
	shards    *Shards       // of the program that was compiled last
}

func newTrainingStep(t Training, o *CompileOptions) (*trainingStep, error) {
	s := &trainingStep{Training: t, known: map[string]bool{}}
	if o.rounded {
		s.rounded = new(pass.Rounded)
	}
	for _, variant := range t.variants() {
		s.sources = append(s.sources, &source{build: func([]*Func) *pass.Unit { return s.forwardBackward(variant) }})
	}
	if err := t.Outer.check(&t); err != nil {
		return nil, err
	}
	switch {
	case t.Accumulation <= 1 && t.Optimizer.Clip == ClipPrevious && t.LossScaling != nil:
		return nil, errors.New("gradients with a loss scale cannot be clipped by the norm of the update before: whether one overflowed has to be known before any weight is updated")
	case t.Sharding != nil && (t.Accumulation < 2 || t.Sharding.Rank >= t.Sharding.World):
		return nil, fmt.Errorf("rank %d of %d cannot share an optimizer whose updates have %d micro-batches", t.Sharding.Rank, t.Sharding.World, t.Accumulation)
	case t.Sharding != nil:
		s.sources = append(s.sources, &source{again: true, build: func(micro []*Func) *pass.Unit {
			b := graph.NewBuilder(FuncUpdate)
			s.shards = new(Shards)
			s.sharded(s.trained, micro, s.shards)(b, t.Sharding.Rank)
			return &pass.Unit{F: b.F}
		}})
	case t.Accumulation > 1:
		s.sources = append(s.sources, &source{build: func([]*Func) *pass.Unit {
			b := graph.NewBuilder(FuncUpdate)
			var params, grads []*graph.Value
			for _, w := range s.trained {
				params, grads = append(params, b.State(w)), append(grads, b.State(s.gradientOf(w)))
			}
			s.update(b, params, grads, true, nil)
			return &pass.Unit{F: b.F, Rounded: s.rounded}
		}})
	}
	if s.rounded != nil {
		s.sources = append(s.sources, &source{build: func([]*Func) *pass.Unit {
			b := graph.NewBuilder(FuncRound)
			for _, w := range s.rounded.Weights {
				b.Assign(b.State(s.rounded.State(w.Name)), b.State(w))
			}
			return &pass.Unit{F: b.F}
		}})
	}
	if t.Outer != nil {
		s.sources = append(s.sources, s.outer()...)
	}
	if t.Eval {
		s.sources = append(s.sources, t.evaluations(s.rounded)...)
	}
	return s, nil
}

// rounds reports whether steps keep weights in 16 bits too. AdamW's can, on whole weights on the device. A micro-batch
// would hold as much for a while anyway, except where blocks are recomputed whole, one at a time, to save memory above
// all.
func (t *Training) rounds(o *CompileOptions) bool {
	by := &t.Optimizer
	can := cmp.Or(by.Rule, AdamW) == AdamW && by.Round.Mode == graph.Exact && !by.Offload && t.Sharding == nil && t.Outer == nil
	return can && o.traits().Rounded && o.ComputeDType.Half() && o.Recompute != pass.RecomputeFull && o.Recompute != pass.RecomputeSlices
}

// optimize appends to a micro-batch what is done with its gradients.
func (s *trainingStep) optimize(b *graph.Builder, params, grads []*graph.Value) {
	params, grads, missing := reached(params, grads)
	s.unreached = append(s.unreached, missing...)
	for _, p := range params {
		if !s.known[p.Name] {
			s.known[p.Name] = true
			s.trained = append(s.trained, p.State)
		}
	}
	if s.Accumulation <= 1 {
		s.update(b, params, grads, false, nil)
		return
	}
	for k, p := range params {
		s.accumulate(b, p.State, grads[k])
	}
}

func (s *trainingStep) compile(o CompileOptions) (*Program, error) {
	p, err := compile(s.sources, o)
	if err != nil {
		return nil, err
	}
	p.Shards, p.Outer = s.shards, s.Outer
	for _, name := range s.unreached {
		if !s.known[name] && !slices.Contains(p.Untrained, name) {
			p.Untrained = append(p.Untrained, name)
		}
	}
	return p, nil
}

// variants returns the shapes of a micro-batch: one without a name if none is named.
func (t *Training) variants() []string {
	if len(t.Variants) == 0 {
		return []string{""}
	}
	return t.Variants
}

// CompileEvaluation compiles only the "eval" functions of a training step, without the
// states that only training needs.
func CompileEvaluation(t Training, o CompileOptions) (*Program, error) {
	o.Cache = nil
	return compile(t.evaluations(nil), o)
}

// evaluations returns the forward half of each variant, without randomness.
func (t *Training) evaluations(rounded *pass.Rounded) (list []*source) {
	for _, variant := range t.variants() {
		list = append(list, &source{build: func([]*Func) *pass.Unit {
			b := graph.NewBuilder(Variant(FuncEval, variant))
			obj := t.Model(b, Mode{Variant: variant})
			b.Output(OutputSum, obj.Sum)
			b.F.Outputs = append(b.F.Outputs, obj.Outputs...)
			if t.EvalInputs {
				for _, v := range b.F.Inputs {
					v.Name = EvalInput(v.Name)
				}
			}
			return &pass.Unit{F: b.F, Narrow: t.narrow(), Rounded: rounded}
		}})
	}
	return list
}

// CompileForward compiles functions without a backward half: for evaluation,
// prediction and generation.
func CompileForward(o CompileOptions, funcs ...*graph.Func) (*Program, error) {
	o.Cache = nil
	var list []*source
	for _, f := range funcs {
		list = append(list, &source{build: func([]*Func) *pass.Unit { return &pass.Unit{F: f} }})
	}
	return compile(list, o)
}

// forwardBackward returns the function that computes the loss and its gradients.
func (s *trainingStep) forwardBackward(variant string) *pass.Unit {
	name := FuncStep
	if s.Accumulation > 1 {
		name = FuncMicro
	}
	b := graph.NewBuilder(Variant(name, variant))
	obj := s.Model(b, Mode{Train: true, Variant: variant})
	loss := b.Mul(obj.Sum, b.Input(InputInvWeight, graph.T(graph.F32)))
	if obj.Aux != nil {
		loss = b.Add(loss, b.MulC(obj.Aux, 1/float64(max(s.ownMicroBatches(), 1))))
	}
	b.Output(OutputLoss, loss)
	b.Output(OutputSum, obj.Sum)
	if s.Accumulation > 1 {
		s.keep(b, loss)
	}
	b.F.Outputs = append(b.F.Outputs, obj.Outputs...)
	u := &pass.Unit{F: b.F, Loss: OutputLoss, Optimize: s.optimize, Narrow: s.narrow(), Rounded: s.rounded}
	if s.twoPasses() {
		u.Twice = OutputGradNorm
	}
	if s.LossScaling != nil {
		u.Seed = s.scale(b)
	}
	return u
}

// ownMicroBatches returns how many micro-batches the update of a weight depends on.
func (t *Training) ownMicroBatches() int {
	if t.Outer != nil {
		return t.Accumulation / t.Outer.World
	}
	return t.Accumulation
}

// twoPasses reports whether a step has a backward half for the norm alone: what an update waits for.
func (t *Training) twoPasses() bool {
	return t.Accumulation <= 1 && t.Optimizer.Clip == ClipTwoPasses && (t.Optimizer.MaxGradNorm > 0 || t.LossScaling != nil)
}

// narrow is the format in which a weight is kept; nil: all are F32.
func (t *Training) narrow() func(s *graph.State) graph.DType {
	trained := t.Optimizer.narrow()
	if t.Frozen == graph.Invalid && trained == nil {
		return nil
	}
	return func(s *graph.State) graph.DType {
		switch {
		case s.Role == graph.Frozen:
			return s.FrozenAs(t.Frozen)
		case trained != nil && trained(s):
			return graph.BF16
		}
		return graph.F32
	}
}

// keep writes the loss of a micro-batch to its place among those of the update,
// so that the host need not wait for each.
func (t *Training) keep(b *graph.Builder, loss *graph.Value) {
	here, losses := b.Input(InputMicro, graph.T(graph.F32, t.Accumulation)), t.losses(b)
	b.Assign(losses, b.Select(here, loss, losses))
}

func (t *Training) losses(b *graph.Builder) *graph.Value {
	return b.State(&graph.State{Name: StateLosses, Type: graph.T(graph.F32, t.Accumulation), Role: graph.Transient})
}

// reached splits off the weights that no gradient reaches.
func reached(params, grads []*graph.Value) (p, g []*graph.Value, untrained []string) {
	for i, v := range params {
		if grads[i] == nil {
			untrained = append(untrained, v.Name)
			continue
		}
		p, g = append(p, v), append(g, grads[i])
	}
	return p, g, untrained
}

// gradientOf returns the state in which the gradients of s are added up.
func (t *Training) gradientOf(s *graph.State) *graph.State {
	return companion(s, Gradient, s.Type.With(t.kept(s)), graph.Gradient)
}

// kept returns the format in which gradients of s are kept.
func (t *Training) kept(s *graph.State) graph.DType {
	if t.Optimizer.Gradients == graph.BF16 && len(s.Home().Type.Shape) > 1 {
		return graph.BF16
	}
	return graph.F32
}

// accumulate adds a micro-batch's gradient of s to those before it. In 16 bits the sum is
// rounded stochastically: rounded to nearest, it would stop growing once a summand is less
// than half a unit in its last place.
func (t *Training) accumulate(b *graph.Builder, s *graph.State, grad *graph.Value) {
	sum := t.gradientOf(s)
	if sum.Type.DType == graph.BF16 {
		b.AccumulateBF16(b.State(sum), grad, t.Optimizer.Round.Seed, graph.WeightStream(cmp.Or(sum.OldName, sum.Name)))
		return
	}
	b.Accumulate(b.State(sum), grad)
}

// companion returns a state of the weight s, named prefix and its name. For a part of a
// weight it is the corresponding part of the state of that name.
func companion(s *graph.State, prefix string, t graph.Type, role graph.Role) *graph.State {
	s0 := s.Home()
	c := &graph.State{Name: prefix + s0.Name, Type: t, Role: role, From: s.From}
	if s0.OldName != "" {
		c.OldName = prefix + s0.OldName
	}
	return c
}

func counter(b *graph.Builder, name string, init float64) *graph.Value {
	return b.State(&graph.State{Name: name, Type: graph.T(graph.F32), Role: graph.Counter, Init: graph.Const(init)})
}

func (t *Training) scale(b *graph.Builder) *graph.Value {
	return counter(b, StateScale, t.LossScaling.Initial)
}

// update emits clipping, the optimizer and the loss scale's next value. zero means that the
// gradients are states, to be cleared; norm is the global norm if these are not all the
// gradients.
func (t *Training) update(b *graph.Builder, params, grads []*graph.Value, zero bool, norm *graph.Value) {
	o := t.Optimizer
	if !zero && t.LossScaling == nil && (o.MaxGradNorm == 0 || o.Clip == ClipPrevious) {
		t.updateEach(b, params, grads)
		return
	}
	b.Scope("optimizer", func() {
		switch {
		case norm != nil:
		case !zero && t.twoPasses():
			norms := make([]*graph.Value, len(grads))
			for i, g := range grads {
				norms[i] = b.GlobalNorm(g)
			}
			norm = b.GlobalNorm(norms...)
		case !zero:
			for i, w := range params {
				grads[i] = b.Cast(grads[i], t.kept(w.State)) // until the norm is known
			}
			fallthrough
		default:
			norm = b.GlobalNorm(grads...)
		}
		gscale := b.Scalar(1)
		var scale *graph.Value
		if t.LossScaling != nil {
			scale = t.scale(b)
			gscale = b.Apply(graph.FnRecip, scale)
			norm = b.Mul(norm, gscale)
		}
		ok := b.Apply(graph.FnIsFinite, norm)
		if zero && t.LossScaling == nil {
			ok = b.Mul(ok, b.Apply(graph.FnIsFinite, b.Sum(t.losses(b), 0)))
		}
		if o.MaxGradNorm > 0 {
			gscale = b.Mul(gscale, o.clip(b, norm))
		}
		step := counter(b, StateStep, 0)
		now := b.Assign(step, b.Add(step, ok))
		lr := b.Input(InputLR, graph.T(graph.F32))
		for i, w := range params {
			o.step(b, w, grads[i], zero, scalars{lr, gscale, now, ok})
		}
		b.Output(OutputGradNorm, norm)
		b.Output(OutputOK, ok)
		if scale != nil {
			b.Output(OutputScale, t.nextScale(b, scale, ok))
		}
	})
}

// clip is what gradients of a norm are multiplied by.
func (o *Optimizer) clip(b *graph.Builder, norm *graph.Value) *graph.Value {
	return b.MinC(b.Apply(graph.FnDiv, b.Scalar(o.MaxGradNorm), b.AddC(norm, 1e-6)), 1)
}

// updateEach emits the optimizer so that each weight depends on its own
// gradient only, which is dead afterwards: nothing scales them all, or what does is known
// already. A weight whose gradient is not finite is left as it is, and all are when the loss is not.
func (t *Training) updateEach(b *graph.Builder, params, grads []*graph.Value) {
	o := &t.Optimizer
	b.Scope("optimizer", func() {
		var before *graph.Value
		if o.MaxGradNorm > 0 {
			before = counter(b, StateClip, 0)
		}
		fine := b.Apply(graph.FnIsFinite, b.F.Output(OutputLoss))
		step := counter(b, StateStep, 0)
		now := b.Assign(step, b.Add(step, fine))
		lr, one := b.Input(InputLR, graph.T(graph.F32)), b.Scalar(1)
		norms := make([]*graph.Value, len(params))
		for i, w := range params {
			norms[i] = b.GlobalNorm(grads[i])
			ok := b.Mul(fine, b.Apply(graph.FnIsFinite, norms[i]))
			gscale := one
			if before != nil {
				gscale = o.clip(b, b.Select(b.Apply(graph.FnGreater, norms[i], before), norms[i], before))
			}
			o.step(b, w, grads[i], false, scalars{lr, gscale, now, ok})
		}
		norm := b.GlobalNorm(norms...)
		if before != nil {
			b.Assign(before, b.Select(b.Apply(graph.FnIsFinite, norm), norm, before))
		}
		b.Output(OutputGradNorm, norm)
		b.Output(OutputOK, b.Mul(fine, b.Apply(graph.FnIsFinite, norm)))
	})
}

// largestScale ends the growth of loss scales: an infinite one would never become less.
const largestScale = 0x1p126

// nextScale halves the scale after an overflow and doubles it after a run of
// good updates.
func (t *Training) nextScale(b *graph.Builder, scale, ok *graph.Value) *graph.Value {
	ls := t.LossScaling
	good := counter(b, StateGood, 0)
	count := b.Mul(b.AddC(good, 1), ok)
	full := b.Apply(graph.FnGreater, count, b.Scalar(float64(ls.Interval)-0.5))
	grown := b.Select(full, b.MinC(b.MulC(scale, ls.Growth), largestScale), scale)
	next := b.Select(ok, grown, b.MulC(scale, ls.Backoff))
	b.Assign(good, b.Select(full, b.Scalar(0), count))
	return b.Assign(scale, next)
}

// TrainedWeights returns the states of role Weight that the program updates.
func (p *Program) TrainedWeights() []*graph.State {
	var w []*graph.State
	for _, s := range p.States {
		if s.Role == graph.Weight && !slices.Contains(p.Untrained, s.Name) {
			w = append(w, s)
		}
	}
	return w
}
