package isa

// supported: every arm64 processor has NEON. golang.org/x/sys/cpu does not report
// FEAT_BF16.
func supported() map[Level]bool {
	bf16 := hasBF16()
	return map[Level]bool{NEON: true, NEONBF16: bf16, NEONBFMMLA: bf16}
}
