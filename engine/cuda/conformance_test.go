package cuda_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// number is the card of this machine that the tests use instead of interpreted ones; negative: none.
// bench/gpu.sh sets it.
var number = flag.Int("card", -1, "the number of the card to use, instead of the interpreter of its kernels")

// part selects the cases to check. On a card several processes share the work, most of which is assembling
// kernels, and a case that loses the card in one process does not stop the others.
var part = flag.String("part", "0/1", "I/N: every N-th case, from number I on")

// ofPart reports whether case i belongs to the part.
func ofPart(t testing.TB, i int) bool {
	t.Helper()
	var first, of int
	if n, err := fmt.Sscanf(*part, "%d/%d", &first, &of); n != 2 || err != nil || of < 1 || first < 0 || first >= of {
		t.Fatalf("-part %s: want I/N, with I from 0 to N-1", *part)
	}
	return i%of == first
}

// cards are those whose kernels differ, or this machine's card.
func cards(t testing.TB) []driver.Card {
	t.Helper()
	if *number < 0 {
		return []driver.Card{fakegpu.T4, fakegpu.A10}
	}
	all, err := installed(t).Cards()
	if err != nil {
		t.Fatal(err)
	}
	if *number >= len(all) {
		t.Fatalf("-card %d: the driver shows %d cards", *number, len(all))
	}
	return all[*number:][:1]
}

func installed(t testing.TB) driver.Driver {
	t.Helper()
	d, err := driver.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a card: an interpreted one unless the tests use this machine's.
func open(t testing.TB, card driver.Card, o ptxsim.Options) *cuda.Backend {
	t.Helper()
	var d driver.Driver = &fakegpu.Driver{Installed: []driver.Card{card}, Options: o}
	n := 0
	if *number >= 0 {
		d, n = installed(t), *number
	}
	return openOn(t, d, n)
}

// openOn opens a card of a driver, and closes it when the test ends.
func openOn(t testing.TB, d driver.Driver, card int) *cuda.Backend {
	t.Helper()
	ctx, err := d.Open(card)
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

// check reports whether the device is still usable: after some errors a driver refuses every call.
func check(t *testing.T, dev conformance.Device, c conformance.Case) (ok bool) {
	err := conformance.Check(dev, c)
	if err != nil {
		t.Errorf("%v\n%v", err, c.Func)
	}
	return !cuda.Lost(err)
}

// checkAll checks the cases of the part, as subtests, until the card is lost.
func checkAll(t *testing.T, dev conformance.Device, cases []conformance.Case) {
	for i, c := range cases {
		if !ofPart(t, i) {
			continue
		}
		ok := true
		t.Run(c.Name, func(t *testing.T) { ok = check(t, dev, c) })
		if !ok {
			t.Fatalf("the card is lost: the cases after %s are not checked", c.Name)
		}
	}
}

// library opens this machine's cuBLASLt for tests on its card.
func library(t testing.TB, d driver.Driver) func() (cublaslt.Library, error) {
	t.Helper()
	for _, l := range device.DiscoverNVIDIA().Libraries {
		if l.Name == "libcublasLt.so" {
			return func() (cublaslt.Library, error) { return cublaslt.Open(d.Version(), l.Seen) }
		}
	}
	return nil
}

// Every operation runs on the cards whose kernels differ, with everything that the interpreter can check.
func TestOperations(t *testing.T) { checkCases(t, conformance.Cases()) }

// Results match those that PyTorch computed, with gradients by the engine's own differentiation.
func TestGoldens(t *testing.T) {
	cases, err := conformance.Goldens("../testdata/goldens")
	if err != nil {
		t.Fatal(err)
	}
	checkCases(t, cases)
}

func checkCases(t *testing.T, cases []conformance.Case) {
	if testing.Short() {
		var few []conformance.Case
		for i := 0; i < len(cases); i += 16 {
			few = append(few, cases[i])
		}
		cases = few
	}
	for _, card := range cards(t) {
		t.Run(fmt.Sprintf("sm_%d", card.Capability()), func(t *testing.T) {
			checkAll(t, conformance.On(open(t, card, ptxsim.Options{Checks: ptxsim.CheckAll}), "fuse"), cases)
		})
	}
}

// The compiled programs run, with everything fused that cards fuse.
func TestCompiledOperations(t *testing.T) {
	checkAll(t, conformance.On(open(t, cards(t)[0], ptxsim.Options{})), conformance.Cases())
}
