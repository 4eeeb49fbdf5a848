package fakegpu_test

import (
	"fmt"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/driver"
)

// A launch without blocks or without threads is refused, as by a driver.
func TestEmptyLaunchesAreRefused(t *testing.T) {
	r := newRig(t)
	m, err := r.ctx.Load(".version 7.4\n.target sm_75\n.address_size 64\n.visible .entry nothing() { ret; }\n")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { r.must(m.Unload()) }()
	f, err := m.Function("nothing")
	if err != nil {
		t.Fatal(err)
	}
	whole := driver.Launch{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}}
	r.must(r.a.Launch(f, whole), r.a.Sync())
	for i := range 3 {
		for _, part := range []string{"grid", "block"} {
			t.Run(fmt.Sprint(part, i), func(*testing.T) {
				l := whole
				if part == "grid" {
					l.Grid[i] = 0
				} else {
					l.Block[i] = 0
				}
				r.wants(r.a.Launch(f, l), driver.InvalidValue)
			})
		}
	}
	r.must(r.a.Sync())
}
