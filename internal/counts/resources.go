package counts

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
)

// Resources are what a kernel takes of a multiprocessor, as NVIDIA's assembler says.
type Resources struct {
	Threads   int // of a block
	Registers int // of a thread
	Shared    int // bytes of a block
}

//go:embed resources_sm_75.tsv
var resources string

// Needs are the resources of a kernel; ok is false where it was not assembled.
func Needs(kernel string) (r Resources, ok bool) {
	r, ok = allResources()[kernel]
	return r, ok
}

var allResources = sync.OnceValue(func() map[string]Resources {
	t, err := ParseResources(resources)
	if err != nil {
		panic(err) // a test reads it
	}
	return t
})

// ParseResources reads a table of kernels.
func ParseResources(text string) (map[string]Resources, error) {
	t := map[string]Resources{}
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); line == "" || line[0] == '#' {
			continue
		}
		var name string
		var r Resources
		if n, err := fmt.Sscanf(line, "%s\t%d\t%d\t%d", &name, &r.Threads, &r.Registers, &r.Shared); n != 4 {
			return nil, fmt.Errorf("%q: want a kernel, threads, registers and bytes: %w", line, err)
		}
		t[name] = r
	}
	return t, nil
}

// Blocks is how many blocks of a kernel a multiprocessor of capability 7.5 holds at a time, and
// what limits it: 32 warps, 16 blocks, 65,536 registers, which schedulers give to warps in
// units of 256, and 64 KiB of shared memory (NVIDIA's occupancy calculator).
func (r Resources) Blocks() (blocks int, limit string) {
	const (
		warpsOfSM      = 32
		blocksOfSM     = 16
		sharedOfSM     = 64 << 10
		schedulers     = 4
		registersOfOne = 65536 / schedulers
		registerUnit   = 256 // of a warp
		sharedUnit     = 256
	)
	warps := r.Warps()
	blocks, limit = blocksOfSM, "blocks"
	at := func(n int, what string) {
		if n < blocks {
			blocks, limit = n, what
		}
	}
	at(warpsOfSM/warps, "threads")
	at(registersOfOne/up(32*r.Registers, registerUnit)*schedulers/warps, "registers")
	if r.Shared > 0 {
		at(sharedOfSM/up(r.Shared, sharedUnit), "shared memory")
	}
	return blocks, limit
}

// Warps of a block.
func (r Resources) Warps() int { return up(r.Threads, 32) / 32 }

func up(n, unit int) int { return (n + unit - 1) / unit * unit }
