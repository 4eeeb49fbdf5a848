package train

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Resume loads the state of a checkpoint into the job.
func (j *Job) Resume(c *checkpoint.Checkpoint) (update int64, err error) {
	if err := LoadStates(j.Runner, c, graph.Weight, graph.Buffer, graph.Moment, graph.OuterMoment, graph.Counter, graph.Gradient); err != nil {
		return 0, &MisfitError{err}
	}
	return j.Restore(c)
}

// Restore is [Job.Resume] without the states of the program.
func (j *Job) Restore(c *checkpoint.Checkpoint) (update int64, err error) {
	if err := j.Loader.Seek(c.State.Loader); err != nil {
		return 0, fmt.Errorf("%s: %w", c.Path, err)
	}
	if err := j.Schedule.Restore(c.State.Schedule); err != nil {
		return 0, fmt.Errorf("%s: schedule: %w", c.Path, err)
	}
	if err := j.Eval.Early.Restore(c.State.EarlyStop); err != nil {
		return 0, fmt.Errorf("%s: early stopping: %w", c.Path, err)
	}
	if c.State.RNG.Seed != j.Seed {
		return 0, fmt.Errorf("%s: it was made with seed %d, this run has %d", c.Path, c.State.RNG.Seed, j.Seed)
	}
	j.tokens, j.position = c.State.Tokens, c.State.Loader
	j.best, j.bestAt = c.State.Best, c.State.BestAt
	j.history, j.seconds = c.Metadata.History, float64(c.Metadata.Seconds)
	j.saved = c.State.Update
	j.from, j.resumed, j.evaluated = c.Path, c.State.Update, -1
	if raw, ok := c.State.Extra["session"]; ok {
		s := session{Evaluated: -1}
		if err := json.Unmarshal(raw, &s); err != nil {
			return 0, fmt.Errorf("%s: session: %w", c.Path, err)
		}
		j.skipped, j.lastLoss = s.Skipped, float64(s.Loss)
		j.evaluated, j.latest = s.Evaluated, fromFloats(s.Metrics)
		j.lossZ, j.normZ, j.Learning.memory = s.LossZ, s.NormZ, s.Learned
	}
	return c.State.Update, nil
}

// Evaluated reports whether the state to continue from, after update u, has been evaluated: a run that was
// interrupted saves it before that, and once resumed evaluates it first.
func (j *Job) Evaluated(u int64) bool { return j.evaluated == u }

// MisfitError reports a checkpoint whose tensors are not the program's: it was made with
// other settings.
type MisfitError struct{ err error }

func (e *MisfitError) Error() string { return e.err.Error() }

// Unwrap returns what does not fit.
func (e *MisfitError) Unwrap() error { return e.err }

// session is what else a resumed run must restore to make the same reports.
type session struct {
	Skipped int64            `json:"skipped"`
	Loss    checkpoint.Float `json:"loss"`
	LossZ   Outliers         `json:"loss_outliers"`
	NormZ   Outliers         `json:"grad_norm_outliers"`
	Learned learned          `json:"learned"`
	// Evaluated is the update of the last evaluation, Metrics its result.
	Evaluated int64                       `json:"evaluated"`
	Metrics   map[string]checkpoint.Float `json:"metrics,omitempty"`
}

// Floats converts metrics to a form that JSON can hold, whatever their values.
func Floats(m map[string]float64) map[string]checkpoint.Float {
	out := make(map[string]checkpoint.Float, len(m))
	for k, v := range m {
		out[k] = checkpoint.Float(v)
	}
	return out
}

func fromFloats(m map[string]checkpoint.Float) map[string]float64 {
	out := make(map[string]float64, len(m))
	for k, v := range m {
		out[k] = float64(v)
	}
	return out
}

// LoadStates copies the states of the given roles from a checkpoint into a loaded
// program.
func LoadStates(r *engine.Executable, c *checkpoint.Checkpoint, roles ...graph.Role) error {
	return LoadSome(r, c, func(s *graph.State) bool { return slices.Contains(roles, s.Role) })
}

// LoadSome is LoadStates for some of the states.
func LoadSome(r *engine.Executable, c *checkpoint.Checkpoint, wanted func(*graph.State) bool) error {
	for _, s := range r.Program().States {
		if !wanted(s) {
			continue
		}
		file := c.Weights
		if optimizerState(s) {
			file = c.Optimizer
		}
		if file == nil {
			return fmt.Errorf("%s: it has no optimizer state, so training cannot continue exactly from it", c.Path)
		}
		if err := loadState(r, s, file); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
	}
	return nil
}

// optimizerState reports whether s is in the checkpoint's optimizer file.
func optimizerState(s *graph.State) bool {
	return s.Role == graph.Moment || s.Role == graph.OuterMoment || s.Role == graph.Counter || s.Role == graph.Gradient
}

func loadState(r *engine.Executable, s *graph.State, f *safetensors.File) error {
	x, err := f.Tensor(s.SavedName(f.Has))
	if err != nil {
		return err
	}
	defer x.Release() // otherwise the checkpoint would be in memory twice
	if s.Role == graph.Weight && s.Type.DType == graph.F32 && x.DType == safetensors.BF16 && slices.Equal(x.Shape, s.Type.Shape) {
		return r.ChangeState(s.Name, x.Float32s) // trained in 16 bits, used in any
	}
	data, err := savedPart(r.Program(), s, &x)
	if err != nil {
		return err
	}
	return r.WriteState(s.Name, data)
}

// stored returns the type of a state's elements in a file, which stores them as in
// memory. The two sets of names for element types (a program's, a file format's) meet
// only here.
func stored(d graph.DType) safetensors.DType {
	switch d {
	case graph.F32:
		return safetensors.F32
	case graph.BF16:
		return safetensors.BF16
	case graph.F16:
		return safetensors.F16
	case graph.I32:
		return safetensors.I32
	case graph.U8:
		return safetensors.U8
	}
	panic(fmt.Sprintf("train: checkpoints cannot store elements of type %v", d))
}

// Tensors returns the states of the program that a checkpoint holds, with r as its Live.
func Tensors(r *engine.Executable) (weights, optimizer []checkpoint.Tensor) {
	for _, s := range r.Program().States {
		if !Saved(s) {
			continue // states that are not saved may have a format that no file has
		}
		ct := checkpoint.Tensor{
			Name: s.Name, DType: stored(s.Type.DType), Shape: s.Type.Shape,
		}
		if optimizerState(s) {
			optimizer = append(optimizer, ct)
		} else {
			weights = append(weights, ct)
		}
	}
	return weights, optimizer
}

// Saved reports whether checkpoints hold the state.
func Saved(s *graph.State) bool {
	return s.Role == graph.Weight || s.Role == graph.Buffer || optimizerState(s)
}

// savedStates returns the states that checkpoints hold, in order. Moments that ranks share
// are whole.
func savedStates(p *engine.Program) (list []*graph.State) {
	for _, s := range p.States {
		if Saved(s) && (s.Role != graph.Moment || p.Shards == nil) {
			list = append(list, s)
		}
	}
	if p.Shards != nil {
		list = append(list, p.Shards.Whole...)
		slices.SortStableFunc(list, func(a, b *graph.State) int { return cmp.Compare(a.Role, b.Role) })
	}
	return list
}

// StagingBytes returns the memory that a save of the program's states needs while it is
// written, as part of a plan.
func StagingBytes(p *engine.Program) int64 {
	var sizes []int64
	for _, s := range savedStates(p) {
		sizes = append(sizes, s.Type.Bytes())
	}
	if p.Outer != nil {
		for range p.Outer.World - 1 {
			for _, s := range own(p) {
				sizes = append(sizes, s.Type.Bytes())
			}
		}
	}
	return checkpoint.StagingBytes(sizes...)
}

func (j *Job) snapshot(u int64) (*checkpoint.Snapshot, error) {
	cursor, err := json.Marshal(j.position)
	if err != nil {
		return nil, err
	}
	schedule, err := j.Schedule.State()
	if err != nil {
		return nil, err
	}
	early, err := j.Eval.Early.State()
	if err != nil {
		return nil, err
	}
	sess, err := json.Marshal(session{j.skipped, checkpoint.Float(j.lastLoss), j.lossZ, j.normZ, j.Learning.memory, j.evaluated, Floats(j.latest)})
	if err != nil {
		return nil, err
	}
	snap := j.Save.Run
	snap.Weights, snap.Optimizer = Tensors(j.Runner)
	snap.Live = j.live()
	switch {
	case j.shared():
		snap.Optimizer = wholeMoments(j.Runner.Program())
	case j.outer() != nil:
		for rank := 1; rank < j.Group.World(); rank++ {
			for _, s := range own(j.Runner.Program()) {
				snap.Optimizer = append(snap.Optimizer, checkpoint.Tensor{Name: ofRank(rank, s.Name), DType: stored(s.Type.DType), Shape: s.Type.Shape})
			}
		}
	}
	meta := &snap.Metadata
	meta.Created = time.Now().UTC().Format(time.RFC3339)
	meta.History = j.history.Clone()
	meta.Seconds = checkpoint.Float(j.elapsed())
	meta.Metrics = Floats(j.latest)
	meta.Metrics["loss"] = checkpoint.Float(j.lastLoss)
	if j.Save.Performance != nil {
		meta.Performance = j.Save.Performance()
	}
	snap.State = checkpoint.State{
		Update: u, Tokens: j.tokens, RNG: checkpoint.RNG{Seed: j.Seed, Counter: uint64(u)},
		Loader: cursor, Schedule: schedule, EarlyStop: early, Best: j.best, BestAt: j.bestAt,
		Extra: map[string]json.RawMessage{"session": sess},
	}
	snap.Problem = j.problem(u)
	if j.best != nil && j.bestAt == u {
		snap.Metric = j.best
	}
	return &snap, nil
}
