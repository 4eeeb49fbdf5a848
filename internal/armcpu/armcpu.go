// Package armcpu asks for features of arm64 processors that golang.org/x/sys/cpu
// does not report.
package armcpu

var bf16 = hasBF16()

// BF16 reports whether the processor has FEAT_BF16: products of bfloat16 with sums
// in float32.
func BF16() bool { return bf16 }
