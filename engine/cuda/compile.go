package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// code is a compiled program.
type code struct {
	target int // of the PTX
	sms    int // multiprocessors, by which work is divided
	// sizesOnly means that nothing will be run: no kernel text is generated.
	sizesOnly bool
	// library means that cuBLASLt may compute products.
	library   bool
	funcs     map[string][]launch
	generated map[string]generated // kernels made for this program, by name
	// workspace is the most that any node needs besides the arena, in bytes.
	workspace int64
	used      int64 // the end of the highest range of the arena that a kernel is given
	// tables hold data for kernels that is known when the program is loaded.
	tables params
	books  *address // the 8-bit moments' codebooks in tables; nil: not there yet
	// products are those that cuBLASLt could compute, by their text, in program order.
	products []*replaced
}

// compile lowers every function of a program. With library, products that cuBLASLt could compute are marked.
func compile(p *engine.Program, target, sms int, library bool) (*code, error) {
	c := &code{target: target, sms: sms, library: library, funcs: map[string][]launch{}, generated: map[string]generated{}}
	for _, f := range p.Funcs {
		l := &lowering{code: c, place: func(v *graph.Value) (address, error) {
			at, err := p.Place(f, v)
			if err != nil {
				return address{}, err
			}
			c.used = max(c.used, p.End(at))
			return address{at.Region, at.Offset}, nil
		}}
		if err := l.nodes(f.F.Nodes); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		c.funcs[f.Name] = l.launches
	}
	c.limits()
	return c, nil
}

// nodes appends the launches of consecutive nodes.
func (l *lowering) nodes(nodes []*graph.Node) error {
	for _, n := range nodes {
		if graph.IsFree(n.Op) {
			continue
		}
		if _, step := n.Op.(graph.Optimizer); !step {
			l.flush()
		}
		if err := l.node(n); err != nil {
			return fmt.Errorf("%s (%s): %w", n.Op.Name(), n.Layer, err)
		}
	}
	l.flush()
	return nil
}

// lowering makes the launches of one function.
type lowering struct {
	*code
	place    func(*graph.Value) (address, error)
	launches []launch
	n        *graph.Node // being lowered
	scratch  int64       // workspace that the node has taken so far
	later    []func()    // the epilogue of its product
	steps    *stepBatch  // nodes that wait for more of their kind
}

// lowerError carries an error out of deep helpers by panic, as when a card has no kernel for an operation.
type lowerError struct{ err error }

func (l *lowering) fail(format string, args ...any) { panic(lowerError{fmt.Errorf(format, args...)}) }

// node appends the launches of a node.
func (l *lowering) node(n *graph.Node) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case lowerError:
			err = r.err
		default:
			panic(r)
		}
	}()
	l.n, l.scratch = n, 0
	l.lower(n)
	return nil
}

// at is the address of a value.
func (l *lowering) at(v *graph.Value) address {
	a, err := l.place(v)
	if err != nil {
		panic(lowerError{err})
	}
	return a
}

// take reserves workspace for the node.
func (l *lowering) take(bytes int64) address {
	a := address{workspace, l.scratch}
	l.scratch += ceil(bytes, 256) * 256
	l.workspace = max(l.workspace, l.scratch)
	return a
}

// table stores numbers and addresses for kernels to read.
func (c *code) table(p *params) address {
	c.tables.align(256)
	at := len(c.tables.bytes)
	c.tables.bytes = append(c.tables.bytes, p.bytes...)
	for _, q := range p.pointers {
		c.tables.pointers = append(c.tables.pointers, pointer{at + q.at, q.to})
	}
	return address{tables, int64(at)}
}

// outside is what the program needs besides the arena, in bytes.
func (c *code) outside() int64 { return c.workspace + c.tableBytes() }

// tableBytes is the size of the tables; each takes a multiple of 256 bytes.
func (c *code) tableBytes() int64 { return ceil(int64(len(c.tables.bytes)), 256) * 256 }

// run appends a launch of a kernel with one-dimensional blocks and grid.
func (l *lowering) run(kernel string, blocks, threads int, p *params) *launch {
	return l.runGrid(kernel, [3]int{blocks, 1, 1}, threads, p)
}

// runGrid is run with a three-dimensional grid. The pointer that it returns is valid until the next launch.
func (l *lowering) runGrid(kernel string, grid [3]int, threads int, p *params) *launch {
	// These limits hold for every capability.
	if grid[0] < 1 || grid[0] > 1<<31-1 || grid[1] < 1 || grid[1] > 65535 || grid[2] < 1 || grid[2] > 65535 {
		l.fail("kernel %s would run on a grid of %v blocks, which no card allows", kernel, grid)
	}
	l.launches = append(l.launches, launch{
		node: l.n, kernel: kernel, kind: l.kindOf(kernel), grid: [3]uint32{uint32(grid[0]), uint32(grid[1]), uint32(grid[2])},
		block: [3]uint32{uint32(threads), 1, 1}, params: *p,
	})
	return &l.launches[len(l.launches)-1]
}

// generate adds a generated kernel to the program. text makes what follows its name, from the parameters on;
// equal texts share one kernel. Where only sizes are asked for, no kernel is made.
func (l *lowering) generate(kind string, text func() (string, listing, error)) (name string) {
	if l.sizesOnly {
		return kind
	}
	body, says, err := text()
	if err != nil {
		l.fail("%w", err)
	}
	sum := sha256.Sum256([]byte(body))
	name = kind + "_" + hex.EncodeToString(sum[:8])
	if _, ok := l.generated[name]; !ok {
		head := ".visible .entry " + name
		l.generated[name] = generated{head + body, says.moved(len(head))}
	}
	return name
}

// names lists the kernels that the program launches if cuBLASLt computes no product, sorted.
func (c *code) names() []string {
	used := map[string]bool{}
	for _, launches := range c.funcs {
		for _, l := range launches {
			if l.copy == nil {
				used[l.kernel] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// besides lists the kernels that are launched before and after cuBLASLt's products, sorted.
func (c *code) besides() []string {
	used := map[string]bool{}
	for _, launches := range c.funcs {
		for _, l := range launches {
			if l.product == nil {
				continue
			}
			for _, x := range slices.Concat(l.product.before, l.product.after) {
				used[x.kernel] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}
