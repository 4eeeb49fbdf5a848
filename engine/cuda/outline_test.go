package cuda

import (
	"fmt"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/graph"
)

// layered is a training step of a model with a number of equal layers.
func layered(t *testing.T, layers int) *engine.Program {
	t.Helper()
	p, err := engine.CompileTraining(engine.Training{
		Optimizer: engine.Optimizer{Rule: engine.AdamW8bit, Beta1: .9, Beta2: .999, Eps: 1e-8, MaxGradNorm: 1},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			h := b.Input("x", graph.T(graph.F32, 32, 128))
			for i := range layers {
				w := b.Param(fmt.Sprintf("w%d", i), graph.Init{Kind: graph.InitNormal, B: .1}, 128, 128)
				h = b.Add(h, b.Apply(graph.FnGELU, b.MatMul(h, w, false, false)))
			}
			return engine.Objective{Sum: b.Sum(b.Square(h), 0, 1)}
		},
	}, engine.CompileOptions{Traits: &engine.CUDA, ComputeDType: graph.BF16})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is lowered without addresses needs the memory of the program that is loaded.
func TestWorkspaceIsThatOfThePlacedProgram(t *testing.T) {
	programs := map[string]*engine.Program{"layers": layered(t, 3)}
	for _, c := range conformance.Cases() {
		p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, c.Func)
		if err != nil {
			t.Fatal(err)
		}
		programs[c.Name] = p
	}
	for _, capability := range []int{75, 80} {
		lower := Lower(capability, 40)
		used := 0
		for name, p := range programs {
			c, err := compile(p, kernels.Target(capability), 40, false)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := lower.Workspace(p)
			if err != nil || got != c.outside() {
				t.Errorf("%s on %d: %d bytes are planned, %d are used (%v)", name, capability, got, c.outside(), err)
			}
			if got > 0 {
				used++
			}
		}
		if used < 10 {
			t.Errorf("%d: only %d of the programs need any workspace", capability, used)
		}
	}
}

// A layer like those before costs no lowering, nor does a program whose nodes another had.
func TestEqualNodesAreLoweredOnce(t *testing.T) {
	lowered := func(programs ...*engine.Program) int {
		o := Lower(75, 40).(*outlines)
		for _, p := range programs {
			for _, f := range p.Funcs {
				if _, err := o.Launches(f.F.Nodes); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := o.Workspace(p); err != nil {
				t.Fatal(err)
			}
		}
		return len(o.known)
	}
	few, many := layered(t, 4), layered(t, 12)
	one := lowered(few)
	if one == 0 {
		t.Fatal("nothing was lowered")
	}
	if n := lowered(few, few); n != one {
		t.Errorf("%d kinds of nodes were lowered for a program, %d for it twice", one, n)
	}
	// The norm of all gradients is another operation if there are more of them.
	if n := lowered(few, many); n > one+2 {
		t.Errorf("%d kinds of nodes were lowered for 4 layers, %d with 12 more", one, n)
	}
}

// The launches of equal nodes name their own nodes.
func TestLaunchesNameTheirNodes(t *testing.T) {
	p := layered(t, 4)
	for _, f := range p.Funcs {
		list, err := Lower(75, 40).Launches(f.F.Nodes)
		if err != nil {
			t.Fatal(err)
		}
		named := map[*graph.Node]bool{}
		for _, l := range list {
			named[l.Node] = true
			for _, n := range l.Also {
				named[n] = true
			}
		}
		for _, n := range f.F.Nodes {
			if !graph.IsFree(n.Op) && !named[n] {
				t.Errorf("%s: no launch names %s", f.Name, n.Op.Name())
			}
		}
	}
}
