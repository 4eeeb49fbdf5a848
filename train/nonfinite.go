package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// NonFiniteError reports a loss or gradient that is not finite.
type NonFiniteError struct {
	Update int64
	Loss   float64
	Norm   float64
	// First is the first bad value, in micro-batch Micro; nil if none reappeared when all
	// micro-batches were recomputed.
	First *engine.NonFinite
	Micro int
	// Kept is the path of the newest checkpoint, empty if there is none.
	Kept  string
	Helps []string // what to change
}

func (e *NonFiniteError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "update %d: the loss is %v and the gradient norm %v; the update was not applied", e.Update, e.Loss, e.Norm)
	if e.First != nil {
		fmt.Fprintf(&s, "\nmicro-batch %d: %v", e.Micro+1, e.First)
	}
	if e.First != nil && e.First.Value.Type.DType == graph.F16 {
		s.WriteString("\nthe value left the range of fp16, 65504")
	}
	s.WriteString(whatHelps(e.Helps))
	if e.Kept != "" {
		fmt.Fprintf(&s, "\nthe last good state is %s: --resume continues from it", e.Kept)
	}
	return s.String()
}

// whatHelps returns a line about what to change.
func whatHelps(helps []string) string {
	if len(helps) == 0 {
		return ""
	}
	return "\ntry " + strings.Join(helps, ", ")
}

// diagnose computes the micro-batches of a failed update again until the first
// bad value shows. The optimizer left the weights as they were.
func (j *Job) diagnose(f *filler, s *Step) error {
	f.close() // the slot of the last micro-batch belongs to the host, the others are done
	e := &NonFiniteError{Update: s.Update, Loss: s.Loss, Norm: s.GradNorm, Helps: j.advice(Diverged)}
	data := j.last.update
	if data.Micro > 1 { // the inputs of a single one are still there, those of several are overwritten
		again, err := j.again()
		if err != nil {
			return errors.Join(e, err)
		}
		data = &again
	}
	for e.Micro = range data.Micro {
		if j.outer() != nil && !j.turns().has(e.Micro) {
			continue // another rank's
		}
		if data.Micro > 1 {
			if err := j.Prepare(Inputs{Runner: j.Runner, Slot: j.slot}, data, s.Update-1, e.Micro); err != nil {
				return errors.Join(e, err)
			}
		}
		var err error
		if e.First, err = j.Runner.Diagnose(engine.Variant(j.outputs.fn, data.Variant(e.Micro)), j.slot); err != nil {
			return errors.Join(e, err)
		}
		if e.First != nil {
			break
		}
	}
	e.Kept = j.kept()
	return e
}

// again reads the data of the last update once more.
func (j *Job) again() (Update, error) {
	position, err := json.Marshal(j.previous)
	if err != nil {
		return Update{}, err
	}
	if err := j.Loader.Seek(position); err != nil {
		return Update{}, err
	}
	return j.Loader.Next()
}

// UnderflowError reports gradients that overflow at every loss scale.
type UnderflowError struct {
	Update int64
	Scale  float64
	Loss   float64
	Kept   string // path of the newest checkpoint, empty if there is none
	Helps  []string
}

func (e *UnderflowError) Error() string {
	text := fmt.Sprintf("update %d: the loss scale fell to %g: gradients overflow at every scale, so the model diverged (loss %v)", e.Update, e.Scale, e.Loss) + whatHelps(e.Helps)
	if e.Kept != "" {
		text += fmt.Sprintf("\nthe last state saved is %s: --resume continues from it", e.Kept)
	}
	return text
}

// BadStateError reports a run that ended in a state that is not a trained model: weights
// or moments that are not finite, or an evaluation that is not finite.
type BadStateError struct {
	Update int64
	Bad    checkpoint.BadError
	Helps  []string
	Kept   string // path of the newest good checkpoint, empty if there is none
}

func (e *BadStateError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "update %d: the run diverged: %s", e.Update, e.Bad.Problem)
	if e.Bad.Path != "" {
		fmt.Fprintf(&s, "\n%s is kept as it is, marked as bad, and never used", e.Bad.Path)
	}
	s.WriteString(whatHelps(e.Helps))
	if e.Kept != "" {
		fmt.Fprintf(&s, "\nthe last good state is %s: --resume continues from it", e.Kept)
	} else {
		s.WriteString("\nno good state was saved: start over with --fresh")
	}
	return s.String()
}

// Unwrap makes the store's error visible to errors.As.
func (e *BadStateError) Unwrap() error { return &e.Bad }

// problem says what is wrong with the state after update u apart from its numbers, empty
// if nothing is: its evaluation is not finite or, without one, its loss on the last
// trained batch is not. Weights of 1e10 are finite.
func (j *Job) problem(u int64) string {
	if j.evaluated == u && j.latest != nil {
		if v := j.latest[j.Eval.Monitor.Name]; !finite(v) {
			return fmt.Sprintf("its evaluation is not a number: %s is %v", j.Eval.Monitor.Name, v)
		}
		return ""
	}
	if !j.ran {
		return "" // nothing to try it with
	}
	fn := engine.Variant(engine.FuncEval, j.last.variant())
	if j.Runner.Program().Func(fn) == nil {
		return ""
	}
	if err := j.fillEval(fn); err != nil {
		return fmt.Sprintf("the batch that was trained on last cannot be evaluated: %v", err)
	}
	if err := j.Runner.Run(fn, j.slot); err != nil {
		return fmt.Sprintf("the batch that was trained on last cannot be evaluated: %v", err)
	}
	sum, err := j.Runner.OutputF32(fn, engine.OutputSum)
	if err != nil {
		return fmt.Sprintf("the batch that was trained on last cannot be evaluated: %v", err)
	}
	if v := float64(sum[0]); !finite(v) {
		return fmt.Sprintf("the batch that was trained on last has a loss of %v after the update", v)
	}
	return ""
}

// fillEval copies the inputs of the last trained micro-batch to the inputs of its
// evaluation, if these differ: as many rows as both have; further rows are zero and have
// no weight.
func (j *Job) fillEval(fn string) error {
	for _, v := range j.Runner.Program().Func(fn).F.Inputs {
		name, own := strings.CutPrefix(v.Name, engine.EvalInput(""))
		if !own {
			continue
		}
		to, _ := j.Runner.Input(j.slot, v.Name)
		from, ok := j.Runner.Input(j.slot, name)
		if !ok {
			return fmt.Errorf("the program has no input %q", name)
		}
		clear(to.Data[copy(to.Data, from.Data):])
	}
	return nil
}

// badSave returns the last save whose state was bad, nil if there was none.
func (j *Job) badSave() *checkpoint.BadError {
	if j.Save.Store == nil {
		return nil
	}
	return j.Save.Store.Bad()
}

// spoiled turns the error of a bad saved state into a *BadStateError, and leaves
// others as they are.
func (j *Job) spoiled(u int64, err error) error {
	var bad *checkpoint.BadError
	if !errors.As(err, &bad) {
		return err
	}
	return &BadStateError{u, *bad, j.advice(Diverged), j.kept()}
}

// kept returns the path of the newest good checkpoint of the run, empty if there is none.
func (j *Job) kept() string {
	if j.Save.Store == nil {
		return ""
	}
	// This waits for a save in flight; if it fails, that was reported.
	_ = j.Save.Store.Flush(context.Background())
	if last := j.Save.Store.Status().Last; last != "" {
		return last
	}
	return j.from
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
