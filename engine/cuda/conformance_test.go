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

// number is the card of this machine that the tests use instead of interpreted
// ones; negative: none. bench/gpu.sh sets it.
var number = flag.Int("card", -1, "the number of the card to use, instead of the interpreter of its kernels")

// part is which cases are checked: on a card several processes share the work, most of
// which is assembling kernels, and what makes one of them lose the card does not stop
// the others.
var part = flag.String("part", "0/1", "I/N: every N-th case, from number I on")

// ofPart reports whether case i is one of the part.
func ofPart(t testing.TB, i int) bool {
	t.Helper()
	var first, of int
	if n, err := fmt.Sscanf(*part, "%d/%d", &first, &of); n != 2 || err != nil || of < 1 || first < 0 || first >= of {
		t.Fatalf("-part %s: want I/N, with I from 0 to N-1", *part)
	}
	return i%of == first
}

// openDriver loads the driver of this machine.
var openDriver = func() (driver.Driver, error) { return driver.Open(nil) }

// cards are those whose kernels differ, or the one of this machine.
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
	d, err := openDriver()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// open opens a card, one that is not there unless the tests use one of this machine.
func open(t testing.TB, card driver.Card, o ptxsim.Options) *cuda.Backend {
	t.Helper()
	var d driver.Driver = &fakegpu.Driver{Installed: []driver.Card{card}, Options: o}
	n := 0
	if *number >= 0 {
		d, n = installed(t), *number
	}
	ctx, err := d.Open(n)
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

// check reports whether the device can go on: after some errors a driver refuses
// whatever it is asked.
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

// library is cuBLASLt of this machine, for tests on its card.
func library(t testing.TB, d driver.Driver) func() (cublaslt.Library, error) {
	t.Helper()
	for _, l := range device.DiscoverNVIDIA().Libraries {
		if l.Name == "libcublasLt.so" {
			return func() (cublaslt.Library, error) { return cublaslt.Open(d.Version(), l.Seen) }
		}
	}
	return nil
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

// The programs that the passes make, with everything fused that cards fuse.
func TestCompiledOperations(t *testing.T) {
	checkAll(t, conformance.On(open(t, cards(t)[0], ptxsim.Options{})), conformance.Cases())
}
