package main

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// memory compares a program's use of a card's memory with its plan, and counts the energy
// that it draws; all zero on the processor.
type memory struct {
	on            engine.Backend
	before        int64 // free
	planned, used int64
	energy        *backend.Meter
	joules        float64 // of a step; 0: not known
}

func newMemory(on engine.Backend) (*memory, error) {
	_, free, err := backend.CardOf(on)
	return &memory{on: on, before: free, energy: backend.NewMeter(on)}, err
}

// measure looks at the card while the program is loaded and has run so many steps.
func (m *memory) measure(e *engine.Executable, steps int) error {
	m.joules = m.energy.Joules() / float64(steps)
	card, free, err := backend.CardOf(m.on)
	if card == nil || err != nil {
		return err
	}
	workspace, err := m.on.Workspace(e.Program())
	m.planned, m.used = e.Program().Layout.Bytes+workspace, m.before-free
	return err
}

// hash identifies the weights, bit for bit.
func hash(e *engine.Executable) (string, error) {
	h := sha256.New()
	for _, s := range e.Program().States {
		if s.Role != graph.Weight {
			continue
		}
		if err := e.ScanState(s.Name, func(part engine.Tensor) bool {
			_, _ = h.Write(part.Data) // a hash never fails to write
			return true
		}); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
