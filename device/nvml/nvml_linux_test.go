//go:build (amd64 || arm64) && !nocuda

package nvml

import (
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// A slice of a card has memory of its own, and the heat and clocks of the card; the use and power
// of the whole card are not reported for it.
func TestCardsAndSlices(t *testing.T) {
	for _, definitions := range [][]string{nil, {"BEFORE_535"}} {
		l, err := open(dynlibtest.Build(t, "libnvidia-ml.so.1", "testdata/standin.c", definitions...))
		if err != nil {
			t.Fatal(err)
		}
		cardAndSlice(t, l)
	}
}

func cardAndSlice(t *testing.T, l Library) {
	t.Helper()
	card := Sample{Busy: 97, MemoryBusy: 40, Used: 39, Total: 40, Celsius: 81, Watts: 69.5, Cap: 70, Joules: 3, SM: 1005, MaxSM: 1590, Memory: 5001, Throttle: PowerCap}
	slice := Unknown
	slice.Used, slice.Total, slice.Celsius, slice.SM, slice.MaxSM, slice.Memory, slice.Throttle = 4, 5, 81, 1005, 1590, 5001, PowerCap
	for uuid, want := range map[string]Sample{"GPU-1": card, "MIG-1": slice, "GPU-2": Unknown, "MIG-2": Unknown} {
		s, ok := l.Sample(uuid)
		if s != want || ok != strings.HasSuffix(uuid, "-1") {
			t.Errorf("%s: %+v, %v, want %+v", uuid, s, ok, want)
		}
	}
}

// The processes that compute on a card are listed, with their memory if it is reported.
func TestProcesses(t *testing.T) {
	l, err := open(dynlibtest.Build(t, "libnvidia-ml.so.1", "testdata/standin.c"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Process{{PID: 17, Used: 8 << 30}, {PID: 18, Used: -1}}
	if got := l.Processes("GPU-1"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, uuid := range []string{"MIG-1", "GPU-2"} {
		if got := l.Processes(uuid); got != nil {
			t.Errorf("%s: %v", uuid, got)
		}
	}
}

// The stand-in's functions, structures and numbers are those of NVIDIA's header.
func TestHeader(t *testing.T) { dynlibtest.CompareWithHeader(t, "testdata/standin.c", "nvml.h") }

// The error says if a library does not start, or is another one.
func TestLibrariesThatCannotBeUsed(t *testing.T) {
	for want, definitions := range map[string][]string{
		"nvmlInit_v2 fails with code 9":          {"INIT=9"},
		"no nvmlInit_v2":                         {"nvmlInit_v2=other"},
		"no nvmlDeviceGetHandleByUUID":           {"nvmlDeviceGetHandleByUUID=other"},
		"cannot open shared object file: No suc": nil,
	} {
		path := "/nowhere/libnvidia-ml.so.1"
		if definitions != nil {
			path = dynlibtest.Build(t, "libnvidia-ml.so.1", "testdata/standin.c", definitions...)
		}
		if l, err := open(path); l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", l, err, want)
		}
	}
}
