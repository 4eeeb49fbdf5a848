//go:build (amd64 || arm64) && !nocuda

package nvml

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/internal/dynlib"
)

const library = "libnvidia-ml.so.1"

// Open loads the library, once; its error says why there is none.
var Open = sync.OnceValues(func() (Library, error) {
	paths := []string{library}
	for _, l := range device.DiscoverNVIDIA().Libraries {
		if l.Name == "libnvidia-ml.so" {
			paths = append(paths, l.Seen...)
		}
	}
	l, ok, refused := dynlib.First(paths, open)
	switch {
	case ok:
		return l, nil
	case len(refused) > 0:
		return nil, fmt.Errorf("NVIDIA's management library cannot be used: %s", strings.Join(refused, "; "))
	}
	return nil, errors.New("NVIDIA's management library is not installed (" + library + " was not found)")
})

// open loads the library of a file.
func open(path string) (*nvml, error) {
	handle, err := dynlib.Load(path)
	if err != nil {
		return nil, err
	}
	l := &nvml{}
	dynlib.Find(handle, l.symbols()) // a missing one's figure is absent
	if l.throttle == 0 {             // drivers before 535
		dynlib.Find(handle, map[string]*uintptr{"nvmlDeviceGetCurrentClocksThrottleReasons": &l.throttle})
	}
	if l.init == 0 || l.handle == 0 {
		return nil, fmt.Errorf("%s has no nvmlInit_v2 or no nvmlDeviceGetHandleByUUID", path)
	}
	if code := l.call(l.init); code != success {
		return nil, fmt.Errorf("%s: nvmlInit_v2 fails with code %d", path, code)
	}
	return l, nil
}

// nvml is the library: the addresses of its functions. It may be called from any
// thread.
type nvml struct {
	init, handle, parent, utilization, memory, temperature, power, limit, energy, clock, maxClock, throttle, processes uintptr
}

func (l *nvml) symbols() map[string]*uintptr {
	return map[string]*uintptr{
		"nvmlInit_v2": &l.init, "nvmlDeviceGetHandleByUUID": &l.handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": &l.parent, "nvmlDeviceGetUtilizationRates": &l.utilization,
		"nvmlDeviceGetMemoryInfo": &l.memory, "nvmlDeviceGetTemperature": &l.temperature, "nvmlDeviceGetPowerUsage": &l.power,
		"nvmlDeviceGetEnforcedPowerLimit": &l.limit, "nvmlDeviceGetTotalEnergyConsumption": &l.energy, "nvmlDeviceGetClockInfo": &l.clock, "nvmlDeviceGetMaxClockInfo": &l.maxClock,
		"nvmlDeviceGetCurrentClocksEventReasons": &l.throttle, "nvmlDeviceGetComputeRunningProcesses_v3": &l.processes,
	}
}

const (
	success  = 0
	tooSmall = 7
	absent   = 13 // the function was not found
)

//go:uintptrescapes
func (l *nvml) call(f uintptr, args ...uintptr) int32 {
	if f == 0 {
		return absent
	}
	r, _, _ := purego.SyscallN(f, args...)
	return int32(r)
}

// number reads a number about a card, of a kind if there are several; -1 if it is not
// reported.
func (l *nvml) number(f, card uintptr, kind ...uintptr) int {
	var v uint32
	var r int32
	if len(kind) == 0 {
		r = l.call(f, card, uintptr(unsafe.Pointer(&v)))
	} else {
		r = l.call(f, card, kind[0], uintptr(unsafe.Pointer(&v)))
	}
	if r != success {
		return -1
	}
	return int(v)
}

// card returns the library's handle for a card, or for a slice of one. board is the card itself,
// whose heat and clocks a slice shares; nothing else of the whole card is reported for a slice.
func (l *nvml) card(uuid string) (h, board uintptr, ok bool) {
	text := append([]byte(uuid), 0)
	ok = l.call(l.handle, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&h))) == success
	board = h
	if ok && strings.HasPrefix(uuid, "MIG-") {
		l.call(l.parent, h, uintptr(unsafe.Pointer(&board))) // if it fails, the slice reports nothing
	}
	return h, board, ok
}

func (l *nvml) Sample(uuid string) (Sample, bool) {
	const (
		onDie      = 0
		sm, memory = 1, 2
	)
	h, board, ok := l.card(uuid)
	if !ok {
		return Unknown, false
	}
	s := Unknown
	var busy struct{ gpu, memory uint32 }
	if l.call(l.utilization, h, uintptr(unsafe.Pointer(&busy))) == success {
		s.Busy, s.MemoryBusy = int(busy.gpu), int(busy.memory)
	}
	var m struct{ total, free, used uint64 }
	if l.call(l.memory, h, uintptr(unsafe.Pointer(&m))) == success {
		s.Used, s.Total = int64(m.used), int64(m.total)
	}
	s.Celsius = l.number(l.temperature, board, onDie)
	if mw := l.number(l.power, h); mw >= 0 {
		s.Watts = float64(mw) / 1e3
	}
	if mw := l.number(l.limit, h); mw >= 0 {
		s.Cap = float64(mw) / 1e3
	}
	var mj uint64
	if l.call(l.energy, h, uintptr(unsafe.Pointer(&mj))) == success {
		s.Joules = float64(mj) / 1e3
	}
	s.SM, s.MaxSM, s.Memory = l.number(l.clock, board, sm), l.number(l.maxClock, board, sm), l.number(l.clock, board, memory)
	var why uint64
	if l.call(l.throttle, board, uintptr(unsafe.Pointer(&why))) == success {
		s.Throttle = Throttle(why)
	}
	return s, true
}

func (l *nvml) Processes(uuid string) []Process {
	h, _, ok := l.card(uuid)
	if !ok {
		return nil
	}
	type info struct {
		pid      uint32
		_        uint32
		used     uint64
		instance [2]uint32
	}
	list := make([]info, 64)
	n := uint32(len(list))
	if r := l.call(l.processes, h, uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&list[0]))); r != success && r != tooSmall {
		return nil
	}
	var out []Process
	for _, p := range list[:min(int(n), len(list))] {
		q := Process{PID: int(p.pid), Used: int64(p.used)}
		if p.used == ^uint64(0) {
			q.Used = -1
		}
		out = append(out, q)
	}
	return out
}
