package dynamo

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// TestOldTensorNames: a checkpoint whose tensors, including moments, have the names of earlier versions is
// loaded bit for bit.
func TestOldTensorNames(t *testing.T) {
	g := openGolden(t, nameTranslation)
	trained := g.prepare(nameTranslation, engine.CompileOptions{})
	g.losses(trained, 3, g.goldenWeight(nameTranslation))

	weights, optimizer := train.Tensors(trained)
	renamed := 0
	for _, list := range [][]checkpoint.Tensor{weights, optimizer} {
		for i, x := range list {
			s, err := trained.State(x.Name)
			if err != nil {
				t.Fatal(err)
			}
			list[i].Data = s.Data
			if old := trained.Program().State(x.Name).OldName; old != "" {
				list[i].Name = old
				renamed++
			}
		}
	}
	// There are two blocks with two attentions of four linear layers and a norm, each with weight and bias,
	// and two moments for each of these.
	if want := 2 * 2 * 5 * 2 * 3; renamed != want {
		t.Errorf("%d tensors had other names, want %d", renamed, want)
	}
	store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(context.Background(), &checkpoint.Snapshot{Weights: weights, Optimizer: optimizer, State: checkpoint.State{Update: 3}}); err != nil {
		t.Fatal(err)
	}
	c, _, err := store.Latest()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(c.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}()
	if name := "heads.translation.layers.0.own.query.weight"; !c.Weights.Has(name) {
		t.Errorf("the checkpoint has no tensor %s", name)
	}
	loaded := g.prepare(nameTranslation, engine.CompileOptions{})
	if err := train.LoadStates(loaded, c, graph.Weight, graph.Buffer, graph.Moment, graph.Counter); err != nil {
		t.Fatal(err)
	}
	for _, s := range trained.Program().States {
		want, _ := trained.State(s.Name)
		got, _ := loaded.State(s.Name)
		if train.Saved(s) && !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s differs after loading", s.Name)
		}
	}
}
