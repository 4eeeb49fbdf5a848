package fakegpu

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// A cubin is a mark, the compute capability that it was assembled for, a hash of the
// rest, and the PTX.
const cubinMark = "\x7fELF of PTX, sm_"

// Assemble implements [driver.Context].
func (c *Context) Assemble(ptx string) (cubin []byte, err error) {
	if err := c.opening("cuLinkCreate"); err != nil {
		return nil, err
	}
	defer func() {
		if e := c.closing("cuLinkDestroy"); err == nil && e != nil {
			cubin, err = nil, e
		}
	}()
	const name = "cuLinkAddData"
	if err := c.call(name); err != nil {
		return nil, err
	}
	m, err := c.parse(name, ptx)
	if err != nil {
		return nil, err
	}
	if err := c.call("cuLinkComplete"); err != nil {
		return nil, err
	}
	cubin = fmt.Appendf(nil, "%s%d\n%x\n%s", cubinMark, c.card.Capability(), sha256.Sum256([]byte(ptx)), ptx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.driver.Assembled++
	c.parsed.cubin, c.parsed.m = bytes.Clone(cubin), m
	return cubin, nil
}

// Load implements [driver.Context].
func (c *Context) Load(code []byte) (driver.Module, error) {
	const name = "cuModuleLoadDataEx"
	if err := c.call(name); err != nil {
		return nil, err
	}
	m, err := c.module(name, code)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	return &module{c, m}, nil
}

// module reads a cubin or PTX. The driver would not notice that a cubin is damaged.
func (c *Context) module(name string, code []byte) (*ptxsim.Module, error) {
	rest, ok := bytes.CutPrefix(code, []byte(cubinMark))
	if !ok {
		if !bytes.Contains(code, []byte(".version ")) {
			return nil, &driver.Error{Call: name, Code: driver.InvalidImage}
		}
		return c.parse(name, string(code))
	}
	c.mu.Lock()
	last := c.parsed
	c.mu.Unlock()
	if bytes.Equal(code, last.cubin) {
		return last.m, nil
	}
	parts := bytes.SplitN(rest, []byte("\n"), 3)
	if len(parts) != 3 || string(parts[1]) != fmt.Sprintf("%x", sha256.Sum256(parts[2])) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return nil, c.lose(driver.Unknown, errors.New("a damaged cubin reached the driver"))
	}
	// A cubin is good for later cards of the same generation.
	if sm, err := strconv.Atoi(string(parts[0])); err != nil || sm/10 != c.card.Major || sm > c.card.Capability() {
		return nil, &driver.Error{Call: name, Code: driver.NoBinaryForGPU}
	}
	return c.parse(name, string(parts[2]))
}

// parse reads PTX as the assembler of this driver would.
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
	m, err := ptxsim.Parse(ptx)
	if err != nil {
		return nil, &driver.Error{Call: name, Code: driver.InvalidPTX, Log: err.Error()}
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
