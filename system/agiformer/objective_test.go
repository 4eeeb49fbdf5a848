package agiformer

import (
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
)

// TestProgramOfManyRows: a program does not grow with its rows, so the largest batch that a setting allows is
// planned like any other.
func TestProgramOfManyRows(t *testing.T) {
	c, err := config.Load(config.Sources{Systems: []config.System{System.Config}, Overrides: []config.Override{
		{Key: "system", Text: "agiformer"}, {Key: "model.d_model", Text: "8"}, {Key: "model.n_heads", Text: "1"}, {Key: "model.d_ff", Text: "8"},
		{Key: "model.n_layers", Text: "1"}, {Key: "training.batch_size", Text: "65536"}, {Key: "data.source", Text: "x"},
	}, NeedData: true})
	if err != nil {
		t.Fatal(err)
	}
	m, err := System.Describe(c)
	if err != nil {
		t.Fatal(err)
	}
	if m.Classes == 0 {
		t.Error("the planner does not know the width of the logits")
	}
	m.Shape.CEChunk = 64
	p, err := engine.CompileTraining(m.Training(m.Shape), engine.CompileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Funcs {
		if n := len(f.F.Nodes); n > 20*256 {
			t.Errorf("function %s has %d operations", f.Name, n)
		}
	}
}
