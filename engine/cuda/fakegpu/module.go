package fakegpu

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/kernels/lines"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// Load implements [driver.Context].
func (c *Context) Load(ptx string) (driver.Module, error) {
	return c.LoadDescribed(ptx, func(int) string { return "" })
}

// LoadDescribed implements [driver.Describer].
func (c *Context) LoadDescribed(ptx string, says func(line int) string) (driver.Module, error) {
	const name = "cuModuleLoadDataEx"
	if err := c.call(name); err != nil {
		return nil, err
	}
	if log := c.driver.Refuse; log != "" {
		return nil, &driver.Error{Call: name, Code: driver.InvalidPTX, Log: log}
	}
	m, err := c.parse(name, ptx)
	if err != nil {
		return nil, err
	}
	source := sync.OnceValue(func() func(int) string { return lines.Of(ptx) }) // only faults need it
	m = m.WithSource(func(line int) string {
		parts := slices.DeleteFunc([]string{source()(line), says(line)}, func(s string) bool { return s == "" })
		return strings.Join(parts, ", ")
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.driver.codeCache(); !kept.has(c, ptx) {
		c.driver.Assembled++
		kept.keep(c, ptx)
	}
	c.open++
	return &module{c, m}, nil
}

// parse parses PTX as this driver's assembler would.
func (c *Context) parse(name, ptx string) (*ptxsim.Module, error) {
	for _, line := range strings.Split(ptx, "\n") {
		if v, ok := strings.CutPrefix(line, ".version "); ok {
			// PTX 7.0 came with CUDA 11.0, 8.0 with 12.0.
			if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil && int(f*1000)+4000 > c.driver.Version() {
				return nil, &driver.Error{Call: name, Code: driver.UnsupportedPTX}
			}
		}
		if t, ok := strings.CutPrefix(line, ".target sm_"); ok {
			if sm, err := strconv.Atoi(strings.TrimRight(strings.TrimSpace(t), "a")); err == nil && sm > c.card.Capability() {
				return nil, &driver.Error{Call: name, Code: driver.NoBinaryForGPU}
			}
		}
	}
	m, err := parsedModules.parse(ptx)
	if err != nil {
		return nil, &driver.Error{Call: name, Code: driver.InvalidPTX, Log: err.Error()}
	}
	return m, nil
}

// recentModules are the modules parsed last. Tests load the same text again and again, and parsing takes longer
// than running small kernels.
type recentModules struct {
	mu     sync.Mutex
	recent []parsedModule // the latest last
}

type parsedModule struct {
	ptx    string
	module *ptxsim.Module
}

// maxRecent bounds the memory that they take. A run loads fewer.
const maxRecent = 24

var parsedModules recentModules

func (r *recentModules) parse(ptx string) (*ptxsim.Module, error) {
	r.mu.Lock()
	for i, p := range r.recent {
		if p.ptx == ptx {
			r.recent = append(slices.Delete(r.recent, i, i+1), p)
			r.mu.Unlock()
			return p.module, nil
		}
	}
	r.mu.Unlock()
	m, err := ptxsim.Parse(ptx)
	if err != nil {
		return nil, err
	}
	if m.Constant() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.recent) == maxRecent {
			r.recent = slices.Delete(r.recent, 0, 1)
		}
		r.recent = append(r.recent, parsedModule{ptx, m})
	}
	return m, nil
}

type module struct {
	c *Context
	m *ptxsim.Module
}

func (m *module) Function(name string) (driver.Function, error) {
	if err := m.c.call("cuModuleGetFunction"); err != nil {
		return nil, err
	}
	k := m.m.Kernel(name)
	if k == nil {
		return nil, &driver.Error{Call: "cuModuleGetFunction", Code: driver.NotFound}
	}
	return &function{m.c, k}, nil
}

func (m *module) Unload() error {
	return m.c.closing("cuModuleUnload")
}

type function struct {
	c *Context
	k *ptxsim.Kernel
}

func (f *function) Name() string { return f.k.Name }

// Shared is the kernel's shared memory in bytes.
func (f *function) Shared() int { return f.k.StaticShared }

// Use implements [driver.Function].
func (f *function) Use() (driver.Use, error) {
	return f.c.driver.Use, f.c.call("cuFuncGetAttribute")
}
