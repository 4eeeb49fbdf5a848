package ptxsim

// useAssembly switches to the AVX2 forms.
func useAssembly() {
	add32, sub32, mul32, fused32 = add32AVX2, sub32AVX2, mul32AVX2, fused32AVX2
	fromHalf32, toHalf32 = fromHalfAVX2, toHalfAVX2
	addWords, addWide, less32, equal32, span = addWordsAVX2, addWideAVX2, lessAVX2, equalAVX2, spanAVX2
	mmaKernels = map[string]func(regs *lanes32, f *fragment){
		"m16n8k8.f32.f16": mmaHalf8AVX2, "m16n8k16.f32.f16": mmaHalf16AVX2,
		"m16n8k8.f16.f16": mmaHalf8HalfAVX2, "m16n8k16.f16.f16": mmaHalf16HalfAVX2,
		"m16n8k8.f32.bf16": mmaBrain8AVX2, "m16n8k16.f32.bf16": mmaBrain16AVX2,
		"m16n8k8.f32.tf32": mmaTensor8AVX2,
	}
}
