package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// TestDoctorPrintsTrials: the text contains what the JSON does, and a missing optional part is no failure.
func TestDoctorPrintsTrials(t *testing.T) {
	t.Cleanup(backend.UseMonitor(blind{}))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}})
	wants(t, snug(t, "", "doctor"), 0, "cuda:0 Tesla T4: compute capability 7.5", "    kernel     ran, and its ", " NVML       FAILED: it does not know "+fakegpu.T4.UUID, "a run does without its figures", "the only card")
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, Fail: once("cuModuleLoadDataEx", 1, driver.JITNotFound)})
	wants(t, snug(t, "", "doctor"), exitFailed, " assembler  FAILED: cuModuleLoadDataEx: the driver's assembler, libnvidia-ptxjitcompiler", "kernel     not tried: there is no kernel", "copies     16 MiB to the card at ", "graph      not tried: there is no kernel")
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4, fakegpu.A10}, Fail: once("cuGraphLaunch", 1, driver.ECCUncorrectable)})
	x := snug(t, "", "doctor", "--json")
	var d struct{ Cards []backend.Tried }
	if err := json.Unmarshal([]byte(x.out), &d); err != nil || x.code != exitFailed || len(d.Cards) != 2 || !slices.Equal(d.Cards[0].Failed(), []string{"graph"}) || d.Cards[1].Failed() != nil {
		t.Errorf("exit code %d, %v, %+v", x.code, err, d.Cards)
	}
	wants(t, x, exitFailed, "cuda:0 (Tesla T4): runs would fail there, at: graph")
	old := fakegpu.T4
	old.Name, old.Major, old.Minor = "Tesla P100-PCIE-16GB", 6, 0
	use(t, &fakegpu.Driver{Installed: []driver.Card{old}})
	wants(t, snug(t, "", "doctor"), exitFailed, "context  FAILED: Tesla P100-PCIE-16GB has compute capability 6.0", "hardware.device: cpu")
	use(t, &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CUDA: 11020})
	if x := snug(t, "", "doctor"); x.code != exitFailed || !strings.Contains(x.err, "no run can use a card: ") || strings.Count(x.out, "supports CUDA 11.2") != 1 {
		t.Errorf("exit code %d\n%s%s", x.code, x.out, x.err)
	}
}

// blind is a management library that knows no card.
type blind struct{}

func (blind) Sample(string) (nvml.Sample, bool) { return nvml.Unknown, false }
func (blind) Processes(string) []nvml.Process   { return nil }
