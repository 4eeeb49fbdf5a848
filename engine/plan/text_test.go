package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/pass"
)

func TestUnits(t *testing.T) {
	for _, c := range []struct {
		got  string
		want string
	}{
		{FLOPRate(24e12), "24.0 TFLOP/s"},
		{ByteRate(1.555e12), "1.55 TB/s"},
		{FLOPRate(0), "0.00 FLOP/s"},
		{seconds(3e-6), "3.00 us"},
		{seconds(0.0123), "12.3 ms"},
		{seconds(64), "64.0 s"},
		{seconds(600), "10.0 min"},
		{span("a.0.mlp", "a.23.mlp"), "a.0-23.mlp"},
		{span("a.23.mlp", "a.0.mlp"), "a.0-23.mlp"},
		{span("a.0.mlp", "b.0.mlp"), "a.0.mlp to b.0.mlp"},
		{span("a", "a.1"), "a to a.1"},
		{unnumbered("layers.3.attention.10"), "layers.*.attention.*"},
		{commonLayer("m.layers.3.attention", "m.layers.3.mlp.up"), "m.layers.3"},
		{commonLayer("", "m"), "m"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	var s strings.Builder
	indented(&s, [][]string{{"a", "1", "x"}, {"long", "1000"}, {"µ", "22", "y"}}, 1)
	if want := "  a        1  x\n  long  1000\n  µ       22  y\n"; s.String() != want {
		t.Errorf("got\n%swant\n%s", s.String(), want)
	}
}

// TestHalve: a change keeps the batch of an update and stops at the model's smallest micro-batch.
func TestHalve(t *testing.T) {
	for least, want := range [][]int{{6, 3, 1}, {6, 3, 1}, {6, 3}, {6, 3}, {6}} {
		p := &Planner{LeastMicroBatch: least}
		var batches []int
		for to, ok := p.halve(Settings{MicroBatch: 12}); ok; to, ok = p.halve(to) {
			if to.Effective() != 12 {
				t.Errorf("%v is a batch of %d", to, to.Effective())
			}
			batches = append(batches, to.MicroBatch)
		}
		if !slices.Equal(batches, want) {
			t.Errorf("12 becomes %v, want %v down to %d", batches, want, least)
		}
		if got := divisors(12, max(1, least), 12); got[0] < least || got[len(got)-1] != 12 {
			t.Errorf("divisors of 12 from %d: %v", least, got)
		}
	}
}

func TestDifference(t *testing.T) {
	from := Settings{MicroBatch: 4, Precision: device.FP32}
	to := Settings{MicroBatch: 2, Accumulation: 2, Precision: device.FP16, CEChunk: 256, Recompute: pass.RecomputeFull}
	want := "training.mixed_precision: fp16, training.ce_chunk: 256, training.batch_size: 2, training.gradient_accumulation_steps: 2, training.gradient_checkpointing: full"
	if got := difference(from, to); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLossChunk: the chunk costs a quarter of its matmuls on any card.
func TestLossChunk(t *testing.T) {
	for _, c := range device.Cards() {
		for _, p := range []device.Precision{device.FP32, device.FP16} {
			s := CardSpeed(c, p, nil)
			if s.Half == 0 {
				continue
			}
			weight := map[device.Precision]float64{device.FP32: 4, device.FP16: 2}[p]
			n := float64(LossChunk(s, p))
			products, traffic := 6*n/s.Half, (weight+8)/s.Bandwidth
			if n > 64 && (traffic > products/4*1.0001 || traffic < products/8*.9999) {
				t.Errorf("%v %s: %v rows: products %g s, traffic %g s", c, p, n, products, traffic)
			}
		}
	}
	for classes, want := range map[int]int{0: 1024, 8192: 1024, 32000: 256, 1 << 24: 64} {
		if n := (Target{}).LossChunk(device.BF16, classes); n != want {
			t.Errorf("%d classes: %d rows on the CPU, want %d", classes, n, want)
		}
	}
}
