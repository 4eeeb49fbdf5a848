package cuda

import (
	"errors"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
)

// CodeTime is what making a program's kernels ready takes, for bench/gpu.sh.
type CodeTime struct {
	Kernels int `json:"kernels"`
	Bytes   int `json:"ptx_bytes"`
	// Load is the time of the driver's calls that give kernels, in seconds: that of its
	// assembler, or of finding what it has kept.
	Load float64               `json:"load_seconds"`
	Use  map[string]driver.Use `json:"use"` // of each kernel
}

// TimeCode makes a program's kernels ready and lets go of them.
func (b *Backend) TimeCode(p *engine.Program) (t CodeTime, err error) {
	c, err := compile(p, b.target, b.ctx.Card().SMs, false)
	if err != nil {
		return t, err
	}
	names := c.names()
	text, err := c.module(names)
	if err != nil {
		return t, err
	}
	began := time.Now()
	m, err := b.ctx.Load(text)
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
	t.Kernels, t.Bytes, t.Use = len(names), len(text), map[string]driver.Use{}
	for name, f := range functions {
		if t.Use[name], err = f.Use(); err != nil {
			return t, err
		}
	}
	return t, nil
}
