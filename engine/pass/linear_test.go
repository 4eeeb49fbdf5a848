package pass_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
)

// layersVariable makes the process of TestCompileIsLinear compile a model of that many
// layers.
const layersVariable = "SNUG_TEST_LAYERS"

// linearPackages are those whose statements count as work, with the library's
// loops.
const linearPackages = "github.com/snug-ml/snug/engine,github.com/snug-ml/snug/engine/graph,github.com/snug-ml/snug/engine/pass," +
	"github.com/snug-ml/snug/engine/plan,github.com/snug-ml/snug/engine/plan/pack,github.com/snug-ml/snug/nn/...,slices"

// Compiling and planning take work in proportion to the layers: four times the
// layers, four times the statements run, counted by the compiler's coverage
// instrumentation. No clock is used.
func TestCompileIsLinear(t *testing.T) {
	if layers, err := strconv.Atoi(os.Getenv(layersVariable)); err == nil {
		compileDeep(t, layers)
		return
	}
	if testing.Short() {
		t.Skip("builds the packages anew")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "pass.test")
	build := exec.Command("go", "test", "-c", "-covermode=count", "-coverpkg="+linearPackages, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	few, many := statements(t, binary, 32), statements(t, binary, 128)
	var a, b int64
	for place, n := range many {
		if strings.Contains(place, "/pack/shelf.go") {
			continue // a scan over what is placed: quadratic, with a small factor
		}
		a, b = a+few[place], b+n
		// A loop within a loop over the layers grows sixteenfold.
		if n > 1_000_000 && n > 6*few[place] {
			t.Errorf("%s: %d statements for 32 layers, %d for 128", place, few[place], n)
		}
	}
	t.Logf("32 layers take %d statements, 128 take %d (%.2f times)", a, b, float64(b)/float64(a))
	if b < 3*a || 2*b > 9*a {
		t.Errorf("32 layers take %d statements, 128 take %d", a, b)
	}
}

// statements counts the statements of each block of source that compiling a number of layers runs.
func statements(t *testing.T, binary string, layers int) map[string]int64 {
	t.Helper()
	profile := fmt.Sprintf("%s.%d", binary, layers)
	cmd := exec.Command(binary, "-test.run=^TestCompileIsLinear$", "-test.coverprofile="+profile)
	cmd.Env = append(os.Environ(), layersVariable+"="+strconv.Itoa(layers))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	work := map[string]int64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		place, counts, ok := strings.Cut(s.Text(), " ") // name.go:1.2,3.4 statements runs
		if !ok || strings.HasPrefix(place, "mode:") {
			continue
		}
		var size, runs int64
		if _, err := fmt.Sscan(counts, &size, &runs); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		work[place] += size * runs
	}
	return work
}

// compileDeep compiles and plans a training step in each way that has passes of
// its own: clipped or not, accumulating, mixed precision, with activations
// rebuilt by a recipe and to fit a budget.
func compileDeep(t *testing.T, layers int) {
	s := reference()
	s.model.Layers, s.model.D, s.model.FF, s.model.Vocab, s.t, s.model.Tied, s.model.Dropout = layers, 48, 48, 64, 16, true, .1
	card, err := device.Lookup("t4")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		clip float64
		acc  int
		o    engine.CompileOptions
	}{
		{1, 1, engine.CompileOptions{}},
		{0, 1, engine.CompileOptions{Recompute: pass.RecomputeFull}},
		{1, 4, engine.CompileOptions{ComputeDType: graph.BF16, Recompute: pass.RecomputeSelective}},
		{1, 4, engine.CompileOptions{Recompute: pass.RecomputeSlices, Slices: 2}},
		{0, 1, engine.CompileOptions{Recompute: pass.RecomputeAuto, Budget: int64(layers) * 200_000}},
	} {
		s.clip, s.acc = c.clip, c.acc
		p, _ := s.compile(t, c.o)
		plan.New(p, plan.OnCard(card, nil), plan.Run{Settings: plan.Settings{MicroBatch: s.batch, Accumulation: s.acc, Precision: device.FP32}})
	}
}
