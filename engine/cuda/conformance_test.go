package cuda_test

import (
	"fmt"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// open opens a card that is not there.
func open(t testing.TB, card driver.Card, o ptxsim.Options) *cuda.Backend {
	t.Helper()
	ctx, err := (&fakegpu.Driver{Installed: []driver.Card{card}, Options: o}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := cuda.New(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func check(t *testing.T, dev conformance.Device, c conformance.Case) {
	if err := conformance.Check(dev, c); err != nil {
		t.Errorf("%v\n%v", err, c.Func)
	}
}

// Every operation, on the cards whose kernels differ, with everything that the
// interpreter can check.
func TestOperations(t *testing.T) { checkCases(t, conformance.Cases()) }

// What PyTorch computed, with gradients by the engine's own differentiation.
func TestGoldens(t *testing.T) {
	cases, err := conformance.Goldens("../testdata/goldens")
	if err != nil {
		t.Fatal(err)
	}
	checkCases(t, cases)
}

func checkCases(t *testing.T, cases []conformance.Case) {
	for _, card := range []driver.Card{fakegpu.T4, fakegpu.A10} {
		t.Run(fmt.Sprintf("sm_%d", card.Capability()), func(t *testing.T) {
			dev := conformance.On(open(t, card, ptxsim.Options{Checks: ptxsim.CheckAll}), "fuse")
			for i, c := range cases {
				if testing.Short() && i%16 != 0 {
					continue
				}
				t.Run(c.Name, func(t *testing.T) { check(t, dev, c) })
			}
		})
	}
}

// The programs that the passes make, with everything fused that cards fuse.
func TestCompiledOperations(t *testing.T) {
	dev := conformance.On(open(t, fakegpu.T4, ptxsim.Options{}))
	for _, c := range conformance.Cases() {
		t.Run(c.Name, func(t *testing.T) { check(t, dev, c) })
	}
}
