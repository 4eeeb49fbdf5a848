package device

import (
	"fmt"
	"math"
	"slices"
)

// Capability is a CUDA compute capability, for instance {7, 5}.
type Capability struct{ Major, Minor int }

func (c Capability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// AtLeast reports whether c is not older than major.minor.
func (c Capability) AtLeast(major, minor int) bool {
	return c.Major > major || c.Major == major && c.Minor >= minor
}

// Rate is the speed of dense matmuls with fp32 sums, in FLOP/s (a multiply-add is two).
type Rate struct {
	Peak      float64 // specification; 0: the hardware does not have this format
	Sustained float64 // large matmuls back to back, as published; 0: no known measurement
	// BySize are measurements of smaller matmuls, in ascending order; without any, all
	// run at the same speed.
	BySize []Sized
}

// Sized is the speed of a matmul of two N x N matrices, in FLOP/s.
type Sized struct {
	N     int
	FLOPs float64
}

// Of is the speed, in FLOP/s, of a matmul of work FLOPs on a card whose large matmuls run
// at the given speed. Between measurements it follows the logarithm of the work.
func (r Rate) Of(work, large float64) float64 {
	if len(r.BySize) == 0 {
		return large
	}
	last := r.BySize[0]
	if work <= last.work() {
		return last.FLOPs
	}
	for _, s := range slices.Concat(r.BySize[1:], []Sized{{largest, large}}) {
		if work < s.work() {
			return last.FLOPs + (s.FLOPs-last.FLOPs)*math.Log(work/last.work())/math.Log(s.work()/last.work())
		}
		last = s
	}
	return large
}

// largest is the side of the square matmuls that Sustained was measured on.
const largest = 4096

func (s Sized) work() float64 { return 2 * math.Pow(float64(s.N), 3) }

// Card is a GPU model.
type Card struct {
	Name       string // short, for instance "T4"
	Product    string // as the driver names it
	Aliases    []string
	Arch       string
	Capability Capability
	SMs        int
	Watts      int // board power limit

	Memory int64 // bytes, as nvidia-smi shows it
	Usable int64 // bytes, the total that CUDA reports to a program before any context
	// MeasuredContext is how much of it a process takes before its first allocation, in
	// bytes; 0: no known measurement.
	MeasuredContext int64

	Bandwidth          float64 // bytes/s, specification
	SustainedBandwidth float64 // bytes/s, measured on large arrays; 0: no known measurement
	RowBandwidth       float64 // bytes/s, measured on norms and softmax; 0: no known measurement
	// HostIn and HostOut are the measured speeds, in bytes/s, of copies from and to pinned memory
	// of the host; 0: no known measurement.
	HostIn, HostOut float64

	FP32, TF32, FP16, BF16 Rate

	Source string // where the measured figures come from, if any
}

// MarshalText implements [encoding.TextMarshaler]: in JSON a row of the table is its name.
func (c *Card) MarshalText() ([]byte, error) { return []byte(c.Name), nil }

// contextEstimate is what a driver context, the modules and cuBLASLt are assumed to need, in bytes,
// on a card without a measurement: 0.5 to 0.8 GB are reported for training processes.
const contextEstimate = 512 * mib

// Context returns what a driver context with its modules and libraries needs, in bytes,
// and whether that was measured.
func (c *Card) Context() (bytes int64, measured bool) {
	if c.MeasuredContext > 0 {
		return c.MeasuredContext, true
	}
	return contextEstimate, false
}

// DriverFloor is memory left free for the driver, in bytes: kernel stacks and events
// are allocated late, and a card filled to the last byte fails there. It also covers
// differences between drivers in the total that they report.
const DriverFloor = 256 * mib

// Budget is how much of this card a program's arena may take, in bytes.
func (c *Card) Budget() int64 {
	context, _ := c.Context()
	return c.Usable - context - DriverFloor
}

// Unlisted returns a card that the table lacks, from what its driver reports: the clock
// in Hz, the bandwidth in bytes/s. Its rates are those of its generation's
// multiprocessors at that clock.
func Unlisted(product string, cap Capability, sms int, memory int64, clock, bandwidth float64) *Card {
	lanes, tensor := 128.0, 512.0 // per multiprocessor and clock: fp32 lanes, and fp16 multiply-adds with fp32 sums
	switch {
	case !cap.AtLeast(8, 0):
		lanes = 64
	case cap.Major == 8 && cap.Minor == 0:
		lanes, tensor = 64, 1024
	case cap.AtLeast(9, 0):
		tensor = 2048
	}
	flops := func(perClock float64) Rate { return Rate{Peak: 2 * perClock * float64(sms) * clock} }
	c := &Card{Name: product, Product: product, Arch: "of capability " + cap.String(), Capability: cap, SMs: sms, Memory: memory, Usable: memory,
		Bandwidth: bandwidth, FP32: flops(lanes), FP16: flops(tensor)}
	if cap.AtLeast(8, 0) {
		c.TF32, c.BF16 = flops(tensor/2), c.FP16
	}
	return c
}

func (c *Card) String() string { return c.Name }

// Rate returns the speed in a precision; the zero Rate for Auto.
func (c *Card) Rate(p Precision) Rate {
	switch p {
	case FP32:
		return c.FP32
	case TF32:
		return c.TF32
	case FP16:
		return c.FP16
	case BF16:
		return c.BF16
	}
	return Rate{}
}

// Shares of the specification that are assumed without a known measurement: well-tuned matmuls
// and streaming kernels reach about this on cards that are not held down by their power limit.
const (
	AssumedGEMMShare      = 0.7
	AssumedBandwidthShare = 0.85
)

// MatmulRate is the speed to expect of large matmuls, in FLOP/s, and whether that is a
// measurement (otherwise AssumedGEMMShare of the peak).
func (c *Card) MatmulRate(p Precision) (flops float64, measured bool) {
	r := c.Rate(p)
	if r.Sustained > 0 {
		return r.Sustained, true
	}
	return AssumedGEMMShare * r.Peak, false
}

// Streaming is the memory bandwidth to expect, in bytes/s, and whether that is a measurement
// (otherwise AssumedBandwidthShare of the specification).
func (c *Card) Streaming() (bytes float64, measured bool) {
	if c.SustainedBandwidth > 0 {
		return c.SustainedBandwidth, true
	}
	return AssumedBandwidthShare * c.Bandwidth, false
}

// RowStreaming is the memory bandwidth to expect of norms and softmax, in bytes/s: as
// measured, otherwise that of streaming.
func (c *Card) RowStreaming() float64 {
	if c.RowBandwidth > 0 {
		return c.RowBandwidth
	}
	b, _ := c.Streaming()
	return b
}

func (c *Card) automatic() (Precision, string) {
	switch {
	case c.Capability.AtLeast(8, 0):
		return BF16, fmt.Sprintf("compute capability %v multiplies bf16", c.Capability)
	case c.Capability.AtLeast(7, 0):
		return FP16, fmt.Sprintf("compute capability %v has tensor cores for fp16 only: fp16 with loss scaling", c.Capability)
	}
	return FP32, fmt.Sprintf("compute capability %v has no tensor cores", c.Capability)
}

func (c *Card) check(p Precision) (string, error) {
	switch p {
	case TF32:
		if !c.Capability.AtLeast(8, 0) {
			return "", fmt.Errorf("tf32 needs compute capability 8.0 or newer, this card has %v", c.Capability)
		}
		return "as asked; float32 whose matmuls round their factors to 10 bits of mantissa", nil
	case BF16:
		if !c.Capability.AtLeast(8, 0) {
			return "", fmt.Errorf("%s needs compute capability 8.0 or newer, this card has %v and could only emulate it slowly", p, c.Capability)
		}
	case FP16:
		if !c.Capability.AtLeast(7, 0) {
			return "", fmt.Errorf("fp16 matmuls with fp32 sums need tensor cores (compute capability 7.0 or newer), this card has %v", c.Capability)
		}
		return "as asked; with dynamic loss scaling", nil
	}
	return "as asked", nil
}
