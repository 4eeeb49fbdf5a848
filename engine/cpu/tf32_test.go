package cpu_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cpu"
)

// No processor pretends to compute in TF32.
func TestTF32IsRefused(t *testing.T) {
	err := conformance.Check(conformance.On(cpu.Backend{Threads: 1}), conformance.TF32Cases()[0])
	if err == nil || !strings.Contains(err.Error(), "tf32") {
		t.Errorf("got %v", err)
	}
}
