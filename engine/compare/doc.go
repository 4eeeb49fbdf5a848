// Package compare runs one function of two loaded programs side by side, the
// same model in two formats (or on two devices), and finds the first values
// that differ by more than their formats explain.
//
// Values are matched by the names that [engine.CompileOptions.Label] gives
// before casting and fusing, so programs of different precision, fused or not,
// can be compared wherever both store a value.
//
// # The rule
//
// A value is looked at row by row (all dimensions but the last joined). The
// difference of a row is |b-a|/|a| in the Euclidean norm; a row that is much
// shorter than the others of its tensor counts as a sixteenth of their root
// mean square. The part that is explained is
//
//	e + s*u + 2*sqrt(n)*2^-24
//
// with e the difference of the operands, u the unit roundoff of the format that the
// result is stored in (2^-8 for bfloat16, 2^-11 for float16, 2^-24 for float32), s
// the roundings to it on the way (1, and one for each instruction of a fused loop)
// and n the length of the sums that lead to an element. e is that of the same row
// where an operation works row by row, otherwise the largest of any row. A row is
// suspect when its difference is more than [Options.Factor] times what is explained.
//
// Suspects are then compared with the definition of the operation (engine/ref, in float64) on
// exactly its operands: a result that is far from the definition is [Own], the kernel's fault;
// one that agrees with it is [Amplified]: the operation makes small differences of its operands
// large (the norm of a row that is nearly constant, say). Sums whose terms cancel amplify too: a
// linear operation is cleared when the difference is small against the same sum of absolute
// values. So are operations that only move elements, and AdamW, which makes any gradient large,
// as long as they agree with their definition. Statistics that only an operation's own gradient
// reads are not compared; their effect is.
package compare
