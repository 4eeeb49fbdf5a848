package ptxsim

import (
	"fmt"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/snug-ml/snug/internal/offheap"
)

// Memory is a device's memory: allocations with known bounds in a 64-bit address space, with gaps between
// them. Its methods may be called by one goroutine while no kernel runs.
type Memory struct {
	capacity, used int64
	next           uint64
	allocs         []*allocation // by address
	loading        sync.Mutex
	symbols        map[*symbol]uint64 // variables of loaded modules
	loaded         map[*Module]bool
	shadow         bool
	mapped         bool
	launches       uint32
	blocks         uint32 // the last number given to a block; see globalTouch
}

type allocation struct {
	base     uint64
	mem      []byte
	readOnly bool
	valid    []byte // if the memory has a shadow, one per byte: 1 once it is written
	shadow   *globalShadow
	mapping  []byte // the mapping that mem is part of, if the memory is mapped
}

// guard is the gap between allocations, in bytes.
const guard = 1 << 16

// NewMemory makes a device memory of the given size.
func NewMemory(bytes int64) *Memory {
	return &Memory{capacity: bytes, next: deviceBase, symbols: map[*symbol]uint64{}, loaded: map[*Module]bool{}}
}

// Alloc reserves zeroed memory, aligned to 256 bytes.
func (m *Memory) Alloc(bytes int64) (uint64, error) {
	if bytes < 0 || bytes > m.capacity-m.used {
		return 0, fmt.Errorf("device memory: %d bytes asked for, %d of %d are free", bytes, m.capacity-m.used, m.capacity)
	}
	a := &allocation{base: m.next}
	if m.mapped {
		var err error
		if a.mapping, err = offheap.Allocate(bytes + guard); err != nil {
			return 0, err
		}
		a.base, a.mem = uint64(uintptr(unsafe.Pointer(&a.mapping[0]))), a.mapping[:bytes:bytes]
	} else {
		a.mem = make([]byte, bytes)
		m.next = roundUp(m.next+uint64(bytes)+guard, 256)
	}
	if m.shadow {
		a.valid = make([]byte, bytes)
	}
	m.used += bytes
	i := sort.Search(len(m.allocs), func(i int) bool { return m.allocs[i].base > a.base })
	m.allocs = slices.Insert(m.allocs, i, a)
	return a.base, nil
}

// Map makes later allocations lie at their own addresses in main memory, where C code finds them. Those of
// several memories never overlap there.
func (m *Memory) Map() { m.mapped = true }

// Free frees an allocation. Its addresses are not used again.
func (m *Memory) Free(addr uint64) error {
	a := m.find(addr)
	if a == nil || a.base != addr {
		return fmt.Errorf("device memory: %#x is not the start of an allocation", addr)
	}
	i := sort.Search(len(m.allocs), func(i int) bool { return m.allocs[i].base >= addr })
	m.allocs = append(m.allocs[:i], m.allocs[i+1:]...)
	m.used -= int64(len(a.mem))
	return offheap.Release(a.mapping)
}

// Used is the number of bytes allocated.
func (m *Memory) Used() int64 { return m.used }

// Bytes is the host's view of n bytes that begin at an address.
func (m *Memory) Bytes(addr uint64, n int) ([]byte, error) {
	a := m.find(addr)
	if a == nil || n < 0 || addr-a.base+uint64(n) > uint64(len(a.mem)) {
		return nil, fmt.Errorf("device memory: %d bytes at %#x: %s", n, addr, m.describe(addr))
	}
	o := addr - a.base
	return a.mem[o : o+uint64(n) : o+uint64(n)], nil
}

// Shadow makes the memory record which bytes have been written, in existing and later allocations; a kernel
// that reads any other byte is then an error. The host must report what it writes with Written.
func (m *Memory) Shadow() {
	m.shadow = true
	for _, a := range m.allocs {
		if a.valid == nil {
			a.valid = make([]byte, len(a.mem))
		}
	}
}

// Written marks bytes as written by the host or, if content is false, as undefined again.
func (m *Memory) Written(addr uint64, n int, content bool) error {
	a := m.find(addr)
	if a == nil || n < 0 || addr-a.base+uint64(n) > uint64(len(a.mem)) {
		return fmt.Errorf("device memory: %d bytes at %#x: %s", n, addr, m.describe(addr))
	}
	if a.valid == nil {
		return nil
	}
	v := byte(0)
	if content {
		v = 1
	}
	o := int(addr - a.base)
	for i := o; i < o+n; i++ {
		a.valid[i] = v
	}
	return nil
}

// find returns the allocation that holds an address, or nil.
func (m *Memory) find(addr uint64) *allocation {
	i := sort.Search(len(m.allocs), func(i int) bool { return m.allocs[i].base > addr })
	if i == 0 {
		return nil
	}
	if a := m.allocs[i-1]; addr-a.base < uint64(len(a.mem)) || addr == a.base {
		return a
	}
	return nil
}

// number reserves numbers for the blocks of a launch and returns the first.
func (m *Memory) number(blocks int64) uint32 {
	n := uint32(min(blocks, strongBit-1))
	if n >= strongBit-m.blocks {
		for _, a := range m.allocs {
			a.shadow = nil
		}
		m.blocks = 0
	}
	first := m.blocks + 1
	m.blocks += n
	return first
}

// describe describes what is nearest to an address, for messages.
func (m *Memory) describe(addr uint64) string {
	i := sort.Search(len(m.allocs), func(i int) bool { return m.allocs[i].base > addr })
	if i == 0 {
		return "there is no allocation there"
	}
	a := m.allocs[i-1]
	return fmt.Sprintf("the allocation at %#x has %d bytes and this is byte %d", a.base, len(a.mem), addr-a.base)
}

// load allocates a module's variables, once.
func (m *Memory) load(mod *Module) error {
	m.loading.Lock()
	defer m.loading.Unlock()
	if m.loaded[mod] {
		return nil
	}
	for _, x := range mod.vars {
		addr, err := m.Alloc(int64(x.size))
		if err != nil {
			return fmt.Errorf("variable %s: %w", x.name, err)
		}
		a := m.find(addr)
		copy(a.mem, x.init)
		a.readOnly = x.space == constant
		for i := range a.valid {
			a.valid[i] = 1
		}
		m.symbols[x] = addr
	}
	m.loaded[mod] = true
	return nil
}

// Symbol loads a module's variables and returns the address and size of the named one.
func (m *Memory) Symbol(mod *Module, name string) (addr uint64, bytes int, err error) {
	if err := m.load(mod); err != nil {
		return 0, 0, err
	}
	for _, x := range mod.vars {
		if x.name == name {
			return m.symbols[x], int(x.size), nil
		}
	}
	return 0, 0, fmt.Errorf("the module has no variable %q", name)
}
