package simd

import "golang.org/x/sys/cpu"

// detect returns the levels the CPU and the operating system support.
func detect() []Level {
	x := &cpu.X86
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C || !x.HasBMI1 || !x.HasBMI2 || !x.HasPOPCNT {
		return []Level{Portable}
	}
	if x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		return []Level{Portable, AVX2, AVX512}
	}
	return []Level{Portable, AVX2}
}
