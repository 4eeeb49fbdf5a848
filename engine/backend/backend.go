// Package backend chooses the device that runs programs. It is the one room
// that knows them all.
package backend

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/refdevice"
)

// Options choose a device.
type Options struct {
	// Device is "cpu", "reference" or "auto", the best that there is.
	Device string
	// Threads compute on a processor; 0: as many as Go may use.
	Threads int
	// Kernels are those of a processor: auto, portable, avx2 or avx512; "" is
	// what the environment's SNUG_CPU_ISA says.
	Kernels string
}

// Open is the device that o asks for.
func Open(o Options) (engine.Backend, error) {
	if strings.HasPrefix(o.Device, "cuda") {
		return nil, fmt.Errorf("hardware.device %s: this build trains on the CPU only; use cpu or auto (`snug doctor` shows what was found)", o.Device)
	}
	switch o.Device {
	case "auto", "cpu":
	case "reference":
		return refdevice.Backend{}, nil
	default:
		return nil, fmt.Errorf("unknown device %q: want auto, cpu or reference", o.Device)
	}
	// What an earlier Open chose does not count.
	if err := cpu.Configure(cmp.Or(o.Kernels, os.Getenv("SNUG_CPU_ISA"))); err != nil {
		return nil, err
	}
	return CPU(o.Threads), nil
}

// CPU is the processor with the given number of threads; 0: as many as Go may
// use.
func CPU(threads int) engine.Backend { return cpu.Backend{Threads: threads} }
