// Package simd contains the vector functions of the CPU executor: elementwise
// arithmetic, transcendental functions, activations and their gradients,
// reductions, row operations (softmax, norms, cross entropy, rotary), the passes
// of norms over columns, maximum pooling, the AdamW step, 16-bit conversions,
// counter-based random numbers and transposes.
//
// Every function is a plain function over slices, allocates nothing, and exists
// as portable Go, AVX2, AVX-512 and NEON code (package isa has the levels). The level is
// chosen once at start from the CPU's features; Use overrides it. The assembly is generated
// by tools/asm/simd and committed, and so is the table of it, dispatch_*.s: a row an
// operation, a column a level.
//
// # What the package promises
//
//   - The value written for an element depends on that element's inputs and the
//     level only: not on the slice's length, alignment or place in a larger
//     slice. Work may be split anywhere between elements.
//   - Add, Sub, Mul, Div and every other function that is not transcendental
//     rounds each operation on its own (no fused multiply-add), so a chain of
//     calls and a fused loop agree bit for bit, and so do portable Go and all
//     assembly. Only the functions built on Exp, Log, Tanh, Erf, Sin or Cos may
//     differ between portable Go and assembly; AVX2 and NEON agree there too, and
//     AVX-512 with them but for the GELU with erf.
//   - A float32 reduction adds element i to lane i mod 64 in order of i, then
//     adds the lanes in a tree (lane j with j+32, then j+16, ...), over blocks
//     of 4096 elements that are added pairwise. A float64 reduction has 32
//     lanes and no blocks. The result depends on length and content only.
//   - Which NaN comes out (sign and payload) is not promised; that a NaN comes
//     out is.
//
// Slices of one call must have equal lengths; dst may be the same slice as an
// input, but must not overlap one otherwise. A wrong length is a bug of the
// caller and panics.
package simd

//go:generate go run -C ../../tools/asm ./simd -o ../../internal/simd
