package cuda

import (
	"errors"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
)

// CodeTime is the cost of making a program's kernels ready, for bench/gpu.sh.
type CodeTime struct {
	Kernels int `json:"kernels"`
	Bytes   int `json:"ptx_bytes"`
	// Load is the time in seconds of the driver's calls that load kernels: to assemble them, or to find them
	// in its cache.
	Load float64               `json:"load_seconds"`
	Use  map[string]driver.Use `json:"use"` // of each kernel
}

// TimeCode makes a program's kernels ready and then unloads them.
func (b *Backend) TimeCode(p *engine.Program) (t CodeTime, err error) {
	c, err := compile(p, b.target, b.ctx.Card().SMs, false)
	if err != nil {
		return t, err
	}
	names := c.names()
	text, _, err := c.module(names)
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
	for _, name := range names { // a driver may put off work until a kernel is looked up
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
