package cuda_test

import (
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// taking lists the calls that take something which is given back when a program is unloaded.
var taking = []string{"cuMemAlloc", "cuMemHostAlloc", "cuModuleLoadDataEx", "cuModuleGetFunction", "cuStreamCreate", "cuEventCreate", "cuStreamBeginCapture", "cuGraphInstantiate", "cuGraphUpload"}

// Nothing is allocated after Load, whatever runs do: micro-batches, followed or not, an update, states read
// and written.
func TestNothingIsTakenAfterLoad(t *testing.T) {
	for name, c := range map[string]struct {
		rows             int
		offload, watched bool
		segments         int // of a run of a micro-batch
	}{
		"plain":     {8, false, false, 2},
		"watched":   {8, false, true, 3},
		"offloaded": {engine.LeastOffloaded / 8, true, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			calls := map[string]int{}
			d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: func(call string) driver.Code { calls[call]++; return 0 }}
			ctx, err := d.Open(0)
			if err != nil {
				t.Fatal(err)
			}
			p := regression(t, c.rows, c.offload)
			p.Watched = c.watched
			on, err := cuda.New(ctx)
			if err != nil {
				t.Fatal(err)
			}
			x, err := p.Load(on)
			if err != nil {
				t.Fatal(err)
			}
			if calls["cuGraphInstantiate"] == 0 || calls["cuGraphUpload"] != calls["cuGraphInstantiate"] || calls["cuGraphLaunch"] != 0 {
				t.Errorf("%v", calls)
			}
			counted := map[string]int{}
			for _, name := range taking {
				counted[name] = calls[name]
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(x.Initialize(1))
			var begun, ended []string
			w := &engine.Watch{
				Begins: func(g []string) error { begun = append(begun, g...); return nil },
				Ends:   func(g []string) error { ended = append(ended, g...); return nil },
			}
			for slot := range engine.Slots {
				launched := calls["cuGraphLaunch"]
				must(x.RunWatched(engine.FuncMicro, slot, w))
				must(x.Run(engine.FuncMicro, slot))
				must(x.Sync())
				if n := calls["cuGraphLaunch"] - launched; n != 2*c.segments {
					t.Errorf("two micro-batches are %d graphs, want %d", n, 2*c.segments)
				}
			}
			must(x.Run(engine.FuncUpdate, 0))
			must(x.ScanState("w", func(engine.Tensor) bool { return true }))
			if slices.Sort(begun); len(begun) == 0 || !slices.Equal(begun, ended) {
				t.Errorf("%v begin, %v end", begun, ended)
			}
			for _, name := range taking {
				if calls[name] != counted[name] {
					t.Errorf("%s was called %d times after Load", name, calls[name]-counted[name])
				}
			}
			must(x.Close())
			must(ctx.Close())
			must(d.Left())
		})
	}
}
