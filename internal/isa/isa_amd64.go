package isa

import "golang.org/x/sys/cpu"

// supported asks golang.org/x/sys/cpu, which also checks that the operating system saves
// the vector registers.
func supported() map[Level]bool {
	x := &cpu.X86
	return map[Level]bool{
		AVX2:       x.HasAVX2 && x.HasFMA && x.HasF16C && x.HasBMI1 && x.HasBMI2 && x.HasPOPCNT,
		AVX512:     x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL,
		AVX512BF16: x.HasAVX512BF16,
	}
}
