//go:build (amd64 || arm64) && !nocuda

package driver

import "testing"

// Threads poll only where each card has eight processors.
func TestHowThreadsWait(t *testing.T) {
	for _, c := range []struct {
		processors, cards int
		flags             uintptr
	}{{2, 1, 4}, {7, 1, 4}, {8, 1, 0}, {16, 1, 0}, {16, 4, 4}, {64, 8, 0}} {
		if got := waiting(c.processors, c.cards); got != c.flags {
			t.Errorf("%d processors, %d cards: flags %d, want %d", c.processors, c.cards, got, c.flags)
		}
	}
}
