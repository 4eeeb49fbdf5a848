// Package backend chooses the device that runs programs. It is the only package
// that knows them all.
package backend

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cpu"
	"github.com/snug-ml/snug/engine/refdevice"
)

// Options choose a device.
type Options struct {
	// Device is "cpu", "cuda", "cuda:N", "reference" or "auto", the best available.
	Device string
	// Rank is the number of this process among the Ranks of a run that share this machine:
	// each has the card of its number. 0 Ranks: the process is alone.
	Rank, Ranks int
	// Precision is what will be computed in; empty: what suits the card. Fits reports whether there
	// is room on a card for what will be computed; nil: that is not known. Of several cards the
	// fastest is taken that it fits on, and Chosen is called with the reason; it may be nil.
	Precision device.Precision
	Fits      func(c Candidate) (bool, error)
	Chosen    func(why string)
	// Note is called with the reason why auto did not take a card that is there, and with what
	// goes wrong without harm when a program is loaded; may be nil.
	Note func(text string)
	// Threads compute on a processor; 0: as many as Go may use.
	Threads int
	// Kernels are those of a processor: auto, portable, avx2, avx512, neon or neon-bfdot; ""
	// is the environment's SNUG_CPU_ISA.
	Kernels string
	// BLAS is the library that may compute plain fp32 matmuls on a processor: "off" or "", a
	// path, or "auto", that of the system.
	BLAS string
	// NoCublas leaves matmuls on a card to snug's kernels, whether NVIDIA's library is
	// installed or not.
	NoCublas bool
}

// Open is the device that o asks for. With auto that is a card if one can be used;
// one that cannot be is reported to o.Note, with the reason.
func Open(o Options) (engine.Backend, error) {
	switch {
	case o.Device == "reference":
		return refdevice.Backend{}, nil
	case o.Device == "cuda" || strings.HasPrefix(o.Device, "cuda:"):
		b, err := openCard(o)
		if err != nil {
			return nil, fmt.Errorf("hardware.device %s: %w (`snug doctor` shows what was found)", o.Device, err)
		}
		return b, nil
	case o.Device == "auto":
		b, err := openCard(o)
		if err == nil {
			return b, nil
		}
		if !errors.Is(err, ErrNoDriver) && o.Note != nil {
			// One line, however many cards there are.
			why := strings.ReplaceAll(err.Error(), "\n", "; ")
			o.Note("the CPU computes, because the NVIDIA card cannot be used: " + why)
		}
	case o.Device != "cpu":
		return nil, fmt.Errorf("unknown device %q: want auto, cpu, cuda, cuda:N or reference", o.Device)
	}
	// What an earlier Open chose does not count.
	if err := cpu.Configure(cmp.Or(o.Kernels, os.Getenv("SNUG_CPU_ISA"))); err != nil {
		return nil, err
	}
	return o.processor()
}

// CPU is the processor with the given number of threads; 0: as many as Go may
// use.
func CPU(threads int) engine.Backend { return cpu.Backend{Threads: threads} }
