package cuda

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/graph"
)

// Every access to memory that is generated, and every instruction of a body, is in the listing, where the text of
// the module has it.
func TestEveryGeneratedAccessIsListed(t *testing.T) {
	accesses, bodies := 0, 0
	for i, c := range conformance.Cases() {
		if i%12 != 0 {
			continue
		}
		p, err := engine.CompileForward(engine.CompileOptions{Traits: &engine.CUDA}, c.Func)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		made, err := compile(p, 75, 40, false)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		text, says, err := made.module(made.names())
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		listed := map[string]bool{}
		generated := false
		for i, line := range strings.Split(text, "\n") {
			what := says(i + 1)
			_, what, _ = strings.Cut(what, ": ")
			listed[what] = true
			if rest, ok := strings.CutPrefix(line, ".visible .entry "); ok {
				generated = strings.HasPrefix(rest, "loop_")
			}
			if !generated && !strings.Contains(line, "@%inside") && !strings.Contains(line, "@%also") {
				continue
			}
			for access, want := range map[string]string{"ld.global": " is operand ", "st.global": "result "} {
				if !strings.Contains(line, access) {
					continue
				}
				accesses++
				if !strings.Contains(what, want) {
					t.Fatalf("%s: line %d, %s, is for %q", c.Name, i+1, line, what)
				}
			}
		}
		for _, n := range p.Funcs[0].F.Nodes {
			op, ok := n.Op.(graph.Fused)
			if !ok {
				continue
			}
			bodies++
			for i := range op.Body.Instrs {
				if !listed[op.Body.InstrString(i)] {
					t.Fatalf("%s: %s is nowhere", c.Name, op.Body.InstrString(i))
				}
			}
		}
	}
	if accesses < 500 || bodies < 5 {
		t.Errorf("%d accesses and %d bodies", accesses, bodies)
	}
}
