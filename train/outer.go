package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Ranks that train on their own between synchronizations (engine.Outer, DiLoCo): each applies updates of
// its own micro-batches to its own weights, and exchanges nothing. Every InnerSteps updates, and after the
// last, they add up what their weights changed by, in the order of ranks, and continue from common
// weights. Moments, the loss scale and counts of updates stay each rank's own.
//
// The ranks decide together, evaluate, save and stop only where their weights are the same.

// outer returns the outer optimizer; nil: ranks exchange gradients in every update, or there are none.
func (j *Job) outer() *engine.Outer {
	if j.Group == nil {
		return nil
	}
	return j.Runner.Program().Outer
}

// together reports whether all ranks have the same weights after update u.
func (j *Job) together(u int64) bool { return j.outer() == nil || j.synchronized == u }

// synchronizes reports whether ranks synchronize after update u.
func (j *Job) synchronizes(u int64) bool {
	o := j.outer()
	return o != nil && (u%int64(o.InnerSteps) == 0 || u == j.Updates)
}

// beginOuter prepares ranks that train on their own: what all have is where they start from.
func (j *Job) beginOuter(start int64) error {
	o := j.outer()
	if o == nil {
		return nil
	}
	if o.World != j.Group.World() {
		return fmt.Errorf("the program averages the weights of %d ranks, the group has %d", o.World, j.Group.World())
	}
	for _, x := range []struct {
		what string
		at   int64
	}{{"evaluations every", j.Eval.Every}, {"checkpoints every", j.Save.Every}, {"a stop after", min(j.Until, j.Updates)}} {
		if x.at != j.Updates && x.at%int64(o.InnerSteps) != 0 {
			return fmt.Errorf("%s %d updates: ranks have the same weights every %d, want a multiple", x.what, x.at, o.InnerSteps)
		}
	}
	j.synchronized = start
	return j.Runner.Run(engine.FuncOuterBegin, j.slot)
}

// lost returns why another rank has ended the group. Ranks that exchange nothing for a while would not
// notice otherwise.
func (j *Job) lost() error {
	w, ok := j.Group.(dist.Watched)
	if !ok {
		return nil
	}
	select {
	case <-w.Ended():
		return w.Cause(w.Rank(), errors.New("the group has ended"))
	default:
		return nil
	}
}

// ownStep is what a rank tells the others about its updates since the last synchronization.
type ownStep struct {
	data    [facts]byte // of the last update: what every rank must have read identically
	loss    float64     // of the last update
	skipped int64
}

const ownStepBytes = facts + 16

func (o *ownStep) encode() []byte {
	b := append(make([]byte, 0, ownStepBytes), o.data[:]...)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(o.loss))
	return binary.LittleEndian.AppendUint64(b, uint64(o.skipped))
}

func decodeOwnStep(b []byte) (o ownStep) {
	copy(o.data[:], b)
	o.loss = math.Float64frombits(binary.LittleEndian.Uint64(b[facts:]))
	o.skipped = int64(binary.LittleEndian.Uint64(b[facts+8:]))
	return o
}

// synchronize gives all ranks the same weights after update u. Of s, which may be nil, it sets the loss to
// that of all ranks.
func (j *Job) synchronize(u int64, data *Update, s *Step) error {
	r, began := j.ranks, time.Now()
	if err := j.outerStep(u); err != nil {
		return err
	}
	if err := j.shareBuffers(); err != nil {
		return err
	}
	own := ownStep{skipped: j.skippedAlone}
	if data != nil {
		putFacts(own.data[:], data)
	}
	if s != nil {
		own.loss = s.Loss
	}
	all, err := dist.Gather(r, own.encode())
	if err != nil {
		return err
	}
	sum := 0.0
	for rank, b := range all {
		x := decodeOwnStep(b)
		if !bytes.Equal(x.data[:], own.data[:]) {
			return otherData(rank, r.Rank(), x.data[:], own.data[:])
		}
		sum += x.loss
		if rank != r.Rank() && x.skipped > 0 {
			j.skipped += x.skipped
			if j.leads() {
				j.emit(Warned{u, fmt.Sprintf("rank %d skipped %d of its updates %d to %d: a gradient was not finite", rank, x.skipped, j.synchronized+1, u)})
			}
		}
	}
	j.synchronized, j.skippedAlone = u, 0
	if s != nil {
		s.Loss = sum / float64(r.World())
		s.Exchange += time.Since(began)
	}
	return nil
}

// outerStep adds up what the weights of all ranks changed by, and applies it.
func (j *Job) outerStep(u int64) error {
	e := j.ranks.exchange
	world := j.Group.World()
	if err := e.begin(&round{ctx: context.Background(), first: true, last: true, computed: world, mine: true}); err != nil {
		return err
	}
	if err := e.run(engine.FuncOuterGradient, j.slot); err != nil {
		return err
	}
	if err := e.wait(); err != nil {
		return err
	}
	e.times() // all of it was waited for
	if err := j.Runner.Run(engine.FuncOuterUpdate, j.slot); err != nil {
		return err
	}
	norm, err := j.Runner.OutputF32(engine.FuncOuterUpdate, engine.OutputOuterNorm)
	if err != nil {
		return err
	}
	if !finite(float64(norm[0])) {
		return fmt.Errorf("what the weights of all ranks changed by in updates %d to %d has a norm of %v: the run diverged", j.synchronized+1, u, norm[0])
	}
	return nil
}

// own returns the states that every rank has for itself, in order.
func own(p *engine.Program) (list []*graph.State) {
	if p.Outer == nil {
		return nil
	}
	for _, s := range p.States {
		if s.Role == graph.Moment || s.Role == graph.Counter {
			list = append(list, s)
		}
	}
	return list
}

// ofRank returns the name under which a checkpoint has a state of a rank's own. That of rank 0 is the
// state's, so that whoever wants one optimizer finds it.
func ofRank(rank int, name string) string {
	if rank == 0 {
		return name
	}
	return fmt.Sprintf("rank.%d.%s", rank, name)
}

// optimizersIn returns how many ranks a checkpoint has own states of, by the names of its tensors.
func optimizersIn(p *engine.Program, has func(name string) bool) int {
	list := own(p)
	for n := 1; ; n++ {
		if len(list) == 0 || !has(ofRank(n, list[0].Name)) {
			return n
		}
	}
}

// in returns how ranks add up in a program: each rank has one outer gradient.
func (s Sums) in(p *engine.Program) Sums {
	if p.Outer != nil {
		return Fast
	}
	return s
}
