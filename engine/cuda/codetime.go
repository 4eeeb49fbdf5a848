package cuda

import (
	"errors"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
)

// CodeTime is what making a program's kernels ready takes, for bench/gpu.sh: with a cubin,
// as snug does it, or by giving the driver PTX, for which it has a cache of its own.
type CodeTime struct {
	Kernels int `json:"kernels"`
	Bytes   int `json:"code_bytes"` // of the cubin, or of the PTX
	// Assemble is the time of the assembler where a cubin is made, Load that of the driver's
	// call that gives kernels, in seconds.
	Assemble float64 `json:"assemble_seconds"`
	Load     float64 `json:"load_seconds"`
	// Registers of each kernel: those ways need not give the same code. None where the driver
	// does not say.
	Registers map[string]int `json:"registers,omitempty"`
}

// TimeCode makes a program's kernels ready and lets go of them. Nothing that is kept is used.
func (b *Backend) TimeCode(p *engine.Program, cubin bool) (t CodeTime, err error) {
	c, err := compile(p, b.target, b.ctx.Card().SMs, false)
	if err != nil {
		return t, err
	}
	names := c.names()
	text, err := c.module(names)
	if err != nil {
		return t, err
	}
	code := []byte(text)
	if cubin {
		began := time.Now()
		if code, err = b.ctx.Assemble(text); err != nil {
			return t, err
		}
		t.Assemble = time.Since(began).Seconds()
	}
	began := time.Now()
	m, err := b.ctx.Load(code)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, m.Unload()) }()
	functions := map[string]driver.Function{}
	for _, name := range names { // a driver may put off what belongs to one
		if functions[name], err = m.Function(name); err != nil {
			return t, err
		}
	}
	t.Load = time.Since(began).Seconds()
	t.Kernels, t.Bytes, t.Registers = len(names), len(code), map[string]int{}
	for name, f := range functions {
		r, ok := f.(interface{ Registers() (int, error) })
		if !ok {
			continue
		}
		if t.Registers[name], err = r.Registers(); err != nil {
			return t, err
		}
	}
	return t, nil
}
