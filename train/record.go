package train

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// MetricsFile is the log of a run, one JSON object a line.
const MetricsFile = "metrics.jsonl"

// Recorder writes a run's metrics. Lines come in order of updates, each update
// once: a resumed run first drops what comes after the checkpoint. Where the
// disk is full, lines wait for the next one that can be written.
type Recorder struct {
	// Renewed is called after the file was written again because somebody had removed or
	// replaced it; nil: nobody is to know.
	Renewed func()

	dir     *rundir.Dir
	since   Since      // the last line of an update; steps come from one goroutine
	mu      sync.Mutex // of f and waiting, and held while it is written
	f       logFile
	waiting []byte
}

// logFile is an *os.File; tests substitute one that records what is synced.
type logFile interface {
	io.WriteCloser
	Sync() error
}

// maxWaiting bounds what a full disk makes a Recorder keep.
const maxWaiting = 4 << 20

// Line is one line of metrics.jsonl. Event is "run" for the first one, which
// identifies the run, and then "update", "eval", "checkpoint", "warning" or
// "trouble". Timings are separate from what a resumed run repeats exactly.
type Line struct {
	Event    string                      `json:"event"`
	Update   int64                       `json:"update"`
	Run      string                      `json:"run,omitempty"` // identity of the run
	Loss     *checkpoint.Float           `json:"loss,omitempty"`
	LR       *checkpoint.Float           `json:"learning_rate,omitempty"`
	GradNorm *checkpoint.Float           `json:"grad_norm,omitempty"`
	Scale    float64                     `json:"loss_scale,omitempty"`
	Skipped  bool                        `json:"skipped,omitempty"`
	Tokens   int64                       `json:"tokens,omitempty"`
	LossZ    checkpoint.Float            `json:"loss_z,omitempty"`
	NormZ    checkpoint.Float            `json:"grad_norm_z,omitempty"`
	Metrics  map[string]checkpoint.Float `json:"metrics,omitempty"`
	Best     bool                        `json:"best,omitempty"`
	Kind     WarningKind                 `json:"kind,omitempty"`
	Text     string                      `json:"text,omitempty"`
	// Timing: seconds, units per second.
	Seconds float64 `json:"seconds,omitempty"`
	Rate    float64 `json:"rate,omitempty"`
	Wait    float64 `json:"wait_seconds,omitempty"`
	// Time is when the line was written, in seconds since 1970; 0 in the logs of
	// earlier versions. Since is what happened since the previous line of an update.
	Time  float64 `json:"time,omitempty"`
	Since *Since  `json:"since,omitempty"`
}

// Since sums up the updates after the last line of one, up to that of the line it
// is in.
type Since struct {
	Updates int64 `json:"updates"`
	// Seconds are those of the updates, of which Wait were spent waiting for data.
	// Save and Evaluation come on top: what the run waited for checkpoints and spent
	// on evaluations.
	Seconds    float64 `json:"seconds"`
	Wait       float64 `json:"wait_seconds"`
	Save       float64 `json:"save_seconds,omitempty"`
	Evaluation float64 `json:"evaluation_seconds,omitempty"`
	// Exchange is the part of Seconds that was spent on waiting for the sums of gradients of
	// all ranks. Hidden is the time that adding them up took during computation.
	Exchange float64 `json:"exchange_seconds,omitempty"`
	Hidden   float64 `json:"exchange_hidden_seconds,omitempty"`
	// Tokens are in the unit of the data, FLOPs those of the matmuls.
	Tokens int64   `json:"tokens"`
	FLOPs  float64 `json:"flops,omitempty"`
}

// NewRecorder opens metrics.jsonl in a run folder, keeping the lines of the
// folder's run about updates up to keep. The evaluation after update keep is
// dropped unless evaluated, because the run repeats it.
func NewRecorder(dir *rundir.Dir, keep int64, evaluated bool) (*Recorder, error) {
	head, err := json.Marshal(Line{Event: "run", Run: dir.ID()})
	if err != nil {
		return nil, err
	}
	kept, err := keepLines(dir, keep, evaluated)
	if err != nil {
		return nil, err
	}
	if err := dir.Replace(MetricsFile, append(append(head, '\n'), kept...)); err != nil {
		return nil, err
	}
	f, err := dir.Append(MetricsFile)
	if err != nil {
		return nil, err
	}
	return &Recorder{dir: dir, f: f}, nil
}

// keepLines returns the whole lines of a log that [NewRecorder] keeps; none if the log
// is that of another run.
func keepLines(dir *rundir.Dir, keep int64, evaluated bool) ([]byte, error) {
	raw, err := dir.Read(MetricsFile, regular.Log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []byte
	for line := range bytes.Lines(raw) {
		var l Line
		// A line torn by a crash is the last one; it is written again.
		if json.Unmarshal(line, &l) != nil || line[len(line)-1] != '\n' || l.Update > keep || l.Update == keep && l.Event == "eval" && !evaluated {
			continue
		}
		if l.Event != "run" {
			out = append(out, line...)
		} else if l.Run != "" && l.Run != dir.ID() {
			return nil, nil
		}
	}
	return out, nil
}

// Record writes the line of an event, if it has one; any goroutine may call it.
func (r *Recorder) Record(e Event) error {
	switch e := e.(type) {
	case Step:
		s := &r.since
		s.Updates++
		s.Seconds, s.Wait, s.Save = s.Seconds+e.Took.Seconds(), s.Wait+e.Wait.Seconds(), s.Save+e.Save.Seconds()
		s.Tokens, s.FLOPs, s.Exchange = s.Tokens+e.NewTokens, s.FLOPs+e.FLOPs, s.Exchange+e.Exchange.Seconds()
		s.Hidden += e.Hidden.Seconds()
		if !e.Log && !e.Skipped && max(e.LossZ, e.NormZ) <= SpikeZ && finite(e.Loss) {
			return nil
		}
		since := r.since
		r.since = Since{}
		loss, lr, norm := checkpoint.Float(e.Loss), checkpoint.Float(e.LR), checkpoint.Float(e.GradNorm)
		return r.write(Line{Event: "update", Update: e.Update, Loss: &loss, LR: &lr, GradNorm: &norm, Scale: e.Scale,
			Skipped: e.Skipped, Tokens: e.Tokens, LossZ: checkpoint.Float(e.LossZ), NormZ: checkpoint.Float(e.NormZ),
			Seconds: e.Took.Seconds(), Rate: float64(e.NewTokens) / e.Took.Seconds(), Wait: e.Wait.Seconds(), Since: &since})
	case Evaluated:
		r.since.Evaluation += e.Took.Seconds()
		m := map[string]checkpoint.Float{}
		for k, v := range e.Metrics {
			m[k] = checkpoint.Float(v)
		}
		return r.write(Line{Event: "eval", Update: e.Update, Metrics: m, Best: e.Best, Seconds: e.Took.Seconds()})
	case Warned:
		return r.write(Line{Event: "warning", Update: e.Update, Text: e.Text})
	case Ended:
		return r.write(Line{Event: "trouble", Update: e.Warning.Update, Kind: e.Warning.Kind, Text: e.Warning.String()})
	case checkpoint.Event:
		text := string(e.Kind) + " "
		if e.Path != "" {
			text += filepath.Base(e.Path)
		}
		if e.Err != nil {
			text = fmt.Sprintf("%s: %v", text, e.Err)
		}
		return r.write(Line{Event: "checkpoint", Update: e.Update, Text: text, Seconds: e.Took.Seconds()})
	}
	return nil
}

func (r *Recorder) write(l Line) error {
	l.Time = float64(time.Now().UnixMilli()) / 1e3
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if len(r.waiting) < maxWaiting {
		r.waiting = append(append(r.waiting, raw...), '\n')
	}
	renewed, err := r.flush()
	r.mu.Unlock()
	r.tell(renewed)
	return err
}

func (r *Recorder) tell(renewed bool) {
	if renewed && r.Renewed != nil {
		r.Renewed()
	}
}

// flush writes as many waiting lines as it can, to the file that has the name.
func (r *Recorder) flush() (renewed bool, err error) {
	if f, ok := r.f.(*os.File); ok && !r.dir.Named(MetricsFile, f) {
		again, err := r.dir.Again(MetricsFile, f)
		if err != nil {
			return false, err
		}
		_ = f.Close() // it has no name any more
		r.f, renewed = again, true
	}
	n, err := r.f.Write(r.waiting)
	r.waiting = slices.Delete(r.waiting, 0, n)
	return renewed, err
}

// Sync makes the lines recorded so far durable; any goroutine may call it.
// Record does not wait for the disk meanwhile.
func (r *Recorder) Sync() error {
	r.mu.Lock()
	renewed, err := r.flush()
	f := r.f
	r.mu.Unlock()
	r.tell(renewed)
	return errors.Join(err, f.Sync())
}

// Close makes the log durable and ends it.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.flush()
	if err != nil {
		err = fmt.Errorf("%w; %d bytes of it are lost", err, len(r.waiting))
	}
	return errors.Join(err, r.f.Sync(), r.f.Close())
}
