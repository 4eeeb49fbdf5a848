package device

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/suggest"
)

// Precision is the number format that matmuls are computed in. Weights (or a master
// copy of them), sums and reductions are fp32 in every case.
type Precision string

// The precisions, named as in the key training.mixed_precision.
const (
	Auto Precision = "auto" // the chip decides
	FP32 Precision = "fp32"
	TF32 Precision = "tf32" // fp32 storage, 10 bits of mantissa in matmuls
	BF16 Precision = "bf16"
	FP16 Precision = "fp16" // with dynamic loss scaling
)

// Precisions lists all of them.
func Precisions() []Precision { return []Precision{Auto, FP32, TF32, BF16, FP16} }

// ParsePrecision reads a name.
func ParsePrecision(s string) (Precision, error) {
	var names []string
	for _, p := range Precisions() {
		if strings.EqualFold(s, string(p)) {
			return p, nil
		}
		names = append(names, string(p))
	}
	hint := ""
	if n, ok := suggest.Nearest(s, names); ok {
		hint = fmt.Sprintf(" (did you mean %s?)", n)
	}
	return "", fmt.Errorf("unknown precision %q, want one of %s%s", s, strings.Join(names, ", "), hint)
}

// LossScaling reports whether gradients need a loss scale: fp16 has 5 bits of exponent, the others
// 8.
func (p Precision) LossScaling() bool { return p == FP16 }

// ChoosePrecision decides what a program for this chip computes in, and says why in one sentence.
// Auto takes the chip's best; anything else is checked: a precision that the hardware cannot
// multiply is an error that names those it can.
func ChoosePrecision(requested Precision, on Chip) (p Precision, reason string, err error) {
	best, why := on.automatic()
	switch requested {
	case Auto, "":
		return best, why, nil
	case FP32, TF32, BF16, FP16:
	default:
		_, err := ParsePrecision(string(requested))
		return "", "", err
	}
	reason, err = on.check(requested)
	if err != nil {
		return "", "", fmt.Errorf("%s cannot train in %s: %w; use %s (%s) or auto", on, requested, err, best, why)
	}
	return requested, reason, nil
}
