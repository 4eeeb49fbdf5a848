//go:build !amd64 && !arm64

package gemm

import "github.com/snug-ml/snug/internal/isa"

// machines: there is assembly only for amd64 and arm64.
var machines map[isa.Level]*machine
