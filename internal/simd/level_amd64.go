package simd

import "golang.org/x/sys/cpu"

// detect returns the highest level the CPU and the operating system support.
func detect() Level {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C || !x.HasBMI1 || !x.HasBMI2 || !x.HasPOPCNT {
		return Portable
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		return AVX512
	}
	return AVX2
}
