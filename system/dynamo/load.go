package dynamo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// loader copies what earlier phases trained into the states of a program.
type loader struct {
	config *config.Config
	dir    string              // run directory of the whole training
	from   []checkpoint.Origin // checkpoints that the phase was made from
	log    func(string, ...any)
	states []*graph.State
	change hf.Change
}

// parameter reports whether s is a parameter of the model.
func parameter(s *graph.State) bool { return s.Role == graph.Weight || s.Role == graph.Frozen }

// ofEncoder reports whether s is one of the encoder's own parameters, rather than of an adapter.
func (l *loader) ofEncoder(s *graph.State) bool {
	return parameter(s) && strings.HasPrefix(s.Name, base(encoder(l.config))+".") && !strings.Contains(s.Name, ".lora.")
}

// encoder loads the encoder from the model folder or from phase 0.
func (l *loader) encoder() error {
	var own []*graph.State
	for _, s := range l.states {
		if l.ofEncoder(s) {
			own = append(own, s)
		}
	}
	dir := config.Of[Model](l.config).Folder
	if dir == "" {
		missing, err := l.adopt(stageEncoder, own)
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%s lacks %s: the configuration does not match phase 0", folder(stageEncoder), few.Of(missing))
		}
		return err
	}
	f, err := hf.ReadConfig(dir)
	if err != nil {
		return err
	}
	report, err := f.Load(dir, own, l.change, hf.LoadOptions{NewHead: true})
	if err != nil {
		return err
	}
	for _, line := range report.Lines() {
		l.log("model.folder: %s", line)
	}
	return nil
}

// beside returns the parameters that do not belong to the encoder.
func (l *loader) beside() []*graph.State {
	return slices.DeleteFunc(slices.Clone(l.states), func(s *graph.State) bool { return !parameter(s) || l.ofEncoder(s) })
}

// stages loads everything except the encoder from earlier stages.
func (l *loader) stages(names ...string) error {
	want := l.beside()
	for _, name := range names {
		var err error
		if want, err = l.adopt(name, want); err != nil {
			return err
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("the earlier phases in %s lack %s and %d more: the configuration does not match them", l.dir, want[0].Name, len(want)-1)
	}
	return nil
}

// adopt copies the states that the checkpoint of a stage holds, and returns the others.
func (l *loader) adopt(stage string, states []*graph.State) (missing []*graph.State, err error) {
	c, err := weights(l.dir, stage, l.from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if missing, err = system.CopyStates(c, states, l.change); err == nil {
		l.log("loaded %s of %s, update %d", size.Of(len(states)-len(missing), "weight"), folder(stage), c.State.Update)
	}
	return missing, err
}
