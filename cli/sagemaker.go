package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/session"
)

// SageMaker runs an image with the single argument train. It puts the request in a file, and keeps the
// contents of two folders: checkpoints during training, which it restores when a job restarts, and the model
// at the end.

// sageMakerRoot is the folder that SageMaker exchanges files in; tests use another.
var sageMakerRoot = "/opt/ml"

const maxHyperparameters = 1 << 20

// sageMakerJob is a training job of SageMaker.
type sageMakerJob struct {
	args []string // the command line that it stands for
	run  string   // the run directory
}

// onSageMaker returns the job that args start, or nil if they are an ordinary command line.
func onSageMaker(args []string) (*sageMakerJob, error) {
	if !slices.Equal(args, []string{"train"}) || os.Getenv("TRAINING_JOB_NAME") == "" {
		return nil, nil
	}
	file := filepath.Join(sageMakerRoot, "input/config/hyperparameters.json")
	b, err := regular.Read(file, maxHyperparameters)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the variable belongs to another program
	}
	given := map[string]string{}
	if err == nil {
		err = strictjson.Unmarshal(b, &given)
	}
	if err != nil {
		return nil, usage("%s: %w; want texts by name: preset, config, nproc, and settings such as training.max_steps", file, err)
	}
	j := &sageMakerJob{args: []string{"train"}, run: filepath.Join(sageMakerRoot, "checkpoints", "run")}
	if preset, ok := given["preset"]; ok {
		j.args = append(j.args, preset)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case name == "preset":
		case name == "nproc", name == "config", strings.Contains(name, "."):
			j.args = append(j.args, "--"+name, given[name])
		default:
			return nil, usage("%s: %q is no setting: want preset, config, nproc, or a setting such as training.max_steps", file, name)
		}
	}
	if given["preset"] == "" && given["config"] == "" { // with --resume, a run only begins if a preset or file is named
		j.args = append(j.args, session.DefaultPreset)
	}
	j.args = append(j.args, "--out", j.run, "--resume")
	return j, nil
}

// exports returns the arguments that export the model to where SageMaker looks for it, in a subfolder,
// because a mount point cannot be replaced. It returns nil if another process does that.
func (j *sageMakerJob) exports() ([]string, error) {
	launch, err := dist.FindLaunch(os.Getenv)
	if err != nil {
		return nil, err
	}
	if launch != nil && (launch.Rank > 0 || !launch.Machines) {
		return nil, nil
	}
	return []string{"export", j.run, filepath.Join(sageMakerRoot, "model", "huggingface")}, nil
}

func (j *sageMakerJob) String() string {
	return fmt.Sprintf("SageMaker's job %s: snug %s", os.Getenv("TRAINING_JOB_NAME"), strings.Join(j.args, " "))
}
