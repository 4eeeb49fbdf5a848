package cuda

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
)

// image is a program loaded on a card.
type image struct {
	p    *engine.Program
	on   *Backend
	ctx  driver.Context
	code *code
	// choices say what computes each product, measured is how many of them were measured for this program;
	// nil: snug's kernels compute all.
	choices  *Choices
	measured int
	warmed   bool             // the card has computed before products are timed
	handle   *cublaslt.Handle // nil: cuBLASLt is not used
	aside    int64            // bytes of the card's memory that cuBLASLt's own code took

	memory  driver.Ptr // the arena, the workspace and the tables
	modules []driver.Module
	runs    map[string]*function
	kernels map[string]driver.Function

	// compute runs functions; copies brings in inputs meanwhile.
	compute, copies driver.Stream
	// ready says that the inputs of a slot have arrived, done that the last run that reads them has ended.
	ready, done [engine.Slots]driver.Event
	inputs      [engine.Slots][]byte // page-locked mirrors
	outputs     []byte
	staging     []byte // buffer that Read and Write copy through
	peeker      *peeker
	transfers   *transfers                  // nil: no state is offloaded
	guard       func(states []string) error // called before states change; nil: no guard is set
	observer    *engine.Observer
	// began and ended are around a node that is observed; nil: none was.
	began, ended driver.Event
	// beside says that the last run was followed: states are read and written on the peeker's stream, perhaps
	// while the run goes on.
	beside atomic.Bool
	// queued are the functions run since the last Sync.
	queued []string
	// free says that the host knows that no run reads a slot anymore.
	free [engine.Slots]atomic.Bool
	// unread is set if the host could not wait for the runs that read a slot, and may have changed it while
	// they did; or if Guard has failed.
	unread atomic.Pointer[error]
}

// function is one of the program's functions on the card.
type function struct {
	f        *graph.Func
	launches [engine.Slots][]bound
	// segments are the captured launches; the last also copies the outputs to the host.
	segments [engine.Slots][]segment
	followed bool     // segments end where the use of gradients does
	changes  []string // states
	// inputs are the parts of a slot that the function reads, with adjacent parts joined.
	inputs []engine.Span
	// outputs is the part of the outputs that the function writes.
	outputs engine.Span
}

// bound is a launch with its addresses.
type bound struct {
	node  *graph.Node
	also  []*graph.Node
	f     driver.Function
	l     driver.Launch
	first bool      // of its node: nothing in the workspace is in use
	copy  *transfer // replaces a kernel; nil: there is a kernel
	// product is computed by cuBLASLt instead, with the addresses in at; nil: there is a kernel.
	product *replaceable
	at      *[regions]driver.Ptr
}

// bind fills in a launch's addresses.
func (x *image) bind(l launch, bases *[regions]driver.Ptr) bound {
	if l.copy != nil {
		return bound{node: l.node, copy: l.copy}
	}
	return bound{node: l.node, also: l.also, f: x.kernels[l.kernel], l: driver.Launch{Grid: l.grid, Block: l.block, Params: l.params.bind(bases)}}
}

// launch queues a launch, or the product or copy that replaces it.
func (x *image) launch(b *bound) (err error) {
	if b.first {
		if err := x.spoil(x.memory+driver.Ptr(x.p.Layout.Bytes), x.code.workspace); err != nil {
			return err
		}
	}
	switch {
	case b.copy != nil:
		err = x.transfer(x.compute, b.copy)
	case b.product != nil:
		err = x.library(b.product, b.product.choice.Algorithm, b.at)
	default:
		err = x.compute.Launch(b.f, b.l)
	}
	if err != nil {
		return b.failed(err)
	}
	return nil
}

// spoil lets a simulated driver show reads of what memory holds now.
func (x *image) spoil(p driver.Ptr, bytes int64) error {
	if s, ok := x.compute.(driver.Spoiler); ok {
		return s.Spoil(p, bytes)
	}
	return nil
}

// Fault is an error together with the operation in which it happened.
type Fault struct {
	node   *graph.Node
	kernel string
	err    error
}

// Unwrap returns the driver's error.
func (f *Fault) Unwrap() error { return f.err }

func (f *Fault) Error() string { return fmt.Sprintf("%s: %v", f.Place(), f.err) }

// Place describes the operation, with its layer and shapes, the kernel, and what was fused into it.
func (f *Fault) Place() string {
	types := func(values []*graph.Value) string {
		var list []string
		for _, v := range values[:min(len(values), mostOperands)] {
			list = append(list, v.Type.String())
		}
		if more := len(values) - mostOperands; more > 0 {
			list = append(list, fmt.Sprintf("and %d more", more))
		}
		return strings.Join(list, ", ")
	}
	place := fmt.Sprintf("%s (%s) of %s to %s, %s", f.node.Op.Name(), f.node.Layer, types(f.node.In), types(f.node.Out), f.kernel)
	if b := graph.BodyOf(f.node.Op); b != nil {
		place += fmt.Sprintf(" {%v}", b)
	}
	return place
}

// mostOperands is how many operands of an operation are named; an optimizer has those of all parameters.
const mostOperands = 12

// failed adds to an error the launch in which it happened.
func (b *bound) failed(err error) error {
	f := &Fault{node: b.node, kernel: "a copy", err: err}
	switch {
	case b.product != nil:
		f.kernel = "cuBLASLt"
	case b.copy == nil:
		f.kernel = "kernel " + b.f.Name()
	}
	return f
}

// stagingBytes is how much of a state is copied at a time.
const stagingBytes = 4 << 20

func (x *image) load() (err error) {
	l := &x.p.Layout
	if x.memory, err = x.reserve(l.Bytes + x.code.outside()); err != nil {
		return err
	}
	for s := range x.inputs {
		if x.inputs[s], err = x.ctx.AllocHost(l.InputStride); err != nil {
			return err
		}
		if x.ready[s], err = x.ctx.NewEvent(false); err != nil {
			return err
		}
		if x.done[s], err = x.ctx.NewEvent(false); err != nil {
			return err
		}
	}
	if x.outputs, err = x.ctx.AllocHost(l.Outputs.Bytes); err != nil {
		return err
	}
	if x.staging, err = x.ctx.AllocHost(stagingBytes); err != nil {
		return err
	}
	if x.compute, err = x.ctx.NewStream(); err != nil {
		return err
	}
	if x.copies, err = x.ctx.NewStream(); err != nil {
		return err
	}
	if x.peeker, err = newPeeker(x.ctx); err != nil {
		return err
	}
	if x.transfers, err = newTransfers(x.ctx, l.Host.Bytes); err != nil {
		return err
	}
	if err := x.clear(l.Bytes + x.code.outside()); err != nil {
		return err
	}
	// Tables hold no addresses of inputs, so either slot's bases will do.
	if err := x.upload(x.memory+driver.Ptr(l.Bytes+x.code.workspace), x.code.tables.bind(x.bases(0))); err != nil {
		return err
	}
	x.kernels = map[string]driver.Function{}
	if err := x.assemble(x.code.names()); err != nil {
		return err
	}
	if err := x.choose(); err != nil {
		return err
	}
	if x.choices != nil { // the measurements have left numbers behind
		if err := x.clear(l.Bytes + x.code.workspace); err != nil {
			return err
		}
	}
	x.runs = map[string]*function{}
	for _, f := range x.p.Funcs {
		fn := &function{f: f.F, followed: x.p.Watched && engine.IsVariant(f.Name, engine.FuncMicro)}
		x.runs[f.Name] = fn // so that Close finds what was captured
		if err := x.capture(f, fn); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return x.compute.Sync()
}

// clear clears the first bytes of the card's memory, of which kernels may rely on states and inputs alone.
func (x *image) clear(bytes int64) error {
	out, temps := x.p.Layout.Outputs, x.p.Layout.Temps
	if err := x.compute.Clear(x.memory, bytes); err != nil {
		return err
	}
	if err := x.spoil(x.memory+driver.Ptr(out.Offset), out.Bytes); err != nil {
		return err
	}
	return x.spoil(x.memory+driver.Ptr(temps.Offset), temps.Bytes)
}

// TooFull means that the card no longer has the free memory that the plan counted on.
type TooFull struct {
	Need, Free int64
	Err        error
}

func (e *TooFull) Error() string {
	return fmt.Sprintf("%s are needed, %s are free: %v", size.Bytes(e.Need), size.Bytes(e.Free), e.Err)
}

// Unwrap returns the driver's error.
func (e *TooFull) Unwrap() error { return e.Err }

// ExitCode is 3: the program does not fit.
func (*TooFull) ExitCode() int { return 3 }

// reserve allocates memory on the card.
func (x *image) reserve(bytes int64) (driver.Ptr, error) {
	at, err := x.ctx.Alloc(bytes)
	var e *driver.Error
	if errors.As(err, &e) && e.Code == driver.OutOfMemory {
		if free, _, e := x.ctx.Memory(); e == nil {
			err = &TooFull{bytes, free, err}
		}
	}
	return at, err
}

// assemble loads kernels, except those that are loaded already.
func (x *image) assemble(names []string) error {
	names = slices.DeleteFunc(names, func(name string) bool { return x.kernels[name] != nil })
	if len(names) == 0 {
		return nil
	}
	m, err := x.code.load(x.ctx, names)
	if err != nil {
		return fmt.Errorf("kernels: %w", err)
	}
	x.modules = append(x.modules, m)
	for _, name := range names {
		if x.kernels[name], err = m.Function(name); err != nil {
			return err
		}
	}
	return nil
}

// capture binds the launches of a function to addresses and records them.
func (x *image) capture(f *engine.Func, fn *function) error {
	layout := &x.p.Layout
	for _, v := range f.F.Inputs {
		s := layout.Input[v.Name]
		s.Bytes = x.p.Align(s.Bytes)
		if n := len(fn.inputs); n > 0 && fn.inputs[n-1].Offset+fn.inputs[n-1].Bytes == s.Offset {
			fn.inputs[n-1].Bytes += s.Bytes
		} else {
			fn.inputs = append(fn.inputs, s)
		}
	}
	for _, o := range f.F.Outputs {
		if s, ok := layout.Output[f.Name+"/"+o.Name]; ok {
			end := max(fn.outputs.Offset+fn.outputs.Bytes, s.Offset+s.Bytes)
			if fn.outputs.Bytes == 0 {
				fn.outputs.Offset = s.Offset
			}
			fn.outputs.Offset = min(fn.outputs.Offset, s.Offset)
			fn.outputs.Bytes = end - fn.outputs.Offset
		}
	}
	for slot := range engine.Slots {
		bases := x.bases(slot)
		list := x.code.funcs[f.Name]
		var last *graph.Node
		add := func(b bound) {
			if b.copy == nil {
				b.first, last = b.node != last, b.node
			}
			fn.launches[slot] = append(fn.launches[slot], b)
		}
		addAll := func(list []launch) {
			for _, l := range list {
				add(x.bind(l, bases))
			}
		}
		for i, l := range list {
			switch {
			case l.product == nil || l.product.choice == nil:
				add(x.bind(l, bases))
			case i == 0 || list[i-1].product != l.product: // the first launch stands for all of the product
				addAll(l.product.before)
				add(bound{node: l.node, also: l.also, product: l.product, at: bases})
				addAll(l.product.after)
			}
		}
		var uses []use
		if fn.followed {
			uses = usesOf(f.F, fn.launches[slot], x.p.Buckets())
		}
		if err := x.record(fn, slot, uses); err != nil {
			return err
		}
	}
	return nil
}

// bases are the addresses of the regions, with the inputs of one slot.
func (x *image) bases(slot int) *[regions]driver.Ptr {
	var b [regions]driver.Ptr
	layout := &x.p.Layout
	for r := range engine.Host {
		b[r] = x.memory + driver.Ptr(layout.Region(r).Offset)
	}
	b[engine.Inputs] = x.memory + driver.Ptr(layout.Slot(slot).Offset)
	b[workspace] = x.memory + driver.Ptr(layout.Bytes)
	b[tables] = b[workspace] + driver.Ptr(x.code.workspace)
	return &b
}

// queue puts launches into the compute stream, and copies of offloaded states into the transfer streams.
func (x *image) queue(launches []bound) error {
	c := newCrossing(x, launches)
	for i := range launches {
		if err := c.launch(&launches[i]); err != nil {
			return err
		}
	}
	return c.end()
}

// results queues the copy of a function's outputs.
func (x *image) results(fn *function) error {
	s := fn.outputs
	if s.Bytes == 0 {
		return nil
	}
	return x.compute.CopyOut(x.outputs[s.Offset:s.Offset+s.Bytes], x.memory+driver.Ptr(x.p.Layout.Outputs.Offset+s.Offset))
}

// Run implements [engine.Image].
func (x *image) Run(name string, slot int) error {
	fn, err := x.begin(name)
	if err != nil {
		return err
	}
	x.beside.Store(false)
	if err := x.run(fn, slot, nil, nil); err != nil {
		return x.during(err)
	}
	return nil
}

// begin looks up the function to run.
func (x *image) begin(name string) (*function, error) {
	fn := x.runs[name]
	if fn == nil {
		return nil, fmt.Errorf("the program has no function %q", name)
	}
	if !slices.Contains(x.queued, name) {
		x.queued = append(x.queued, name)
	}
	return fn, nil
}

// run queues the copies of a function's inputs and then the function; w and ended are as for replay.
func (x *image) run(fn *function, slot int, w *engine.Watch, ended chan<- *segment) error {
	if err := x.unread.Load(); err != nil {
		return *err
	}
	x.free[slot].Store(false)
	if err := x.copies.Wait(x.done[slot]); err != nil {
		return err
	}
	at := x.p.Layout.Slot(slot).Offset
	for _, s := range fn.inputs {
		if err := x.copies.CopyIn(x.memory+driver.Ptr(at+s.Offset), x.inputs[slot][s.Offset:s.Offset+s.Bytes]); err != nil {
			return err
		}
	}
	if err := x.copies.Record(x.ready[slot]); err != nil {
		return err
	}
	if err := x.compute.Wait(x.ready[slot]); err != nil {
		return err
	}
	var err error
	if x.observer != nil {
		if err = x.ask(fn); err == nil {
			err = x.observed(fn, slot)
		}
	} else {
		err = x.replay(fn, slot, w, ended)
	}
	if err != nil {
		return err
	}
	return x.compute.Record(x.done[slot])
}

// ask calls the guard with the states that a function changes.
func (x *image) ask(fn *function) error {
	if x.guard == nil || len(fn.changes) == 0 {
		return nil
	}
	return x.guard(fn.changes)
}

// during names the functions that an error may come from: all that were run since the last Sync, as a card
// reports errors long after the call that caused them.
func (x *image) during(err error) error {
	if len(x.queued) == 0 {
		return err
	}
	return fmt.Errorf("in %s: %w", strings.Join(x.queued, " or "), err)
}

// observed runs a function node by node. The card times a node: the host would add what a launch and a wait take.
func (x *image) observed(fn *function, slot int) error {
	launches, timed := fn.launches[slot], x.observer.After != nil
	if timed && x.ended == nil {
		var err error
		if x.began == nil {
			if x.began, err = x.ctx.NewEvent(true); err != nil {
				return err
			}
		}
		if x.ended, err = x.ctx.NewEvent(true); err != nil {
			return err
		}
	}
	for i := 0; i < len(launches); {
		n, also := launches[i].node, launches[i].also
		if x.observer.Before != nil {
			if err := x.compute.Sync(); err != nil {
				return err
			}
			for _, n := range slices.Concat([]*graph.Node{n}, also) {
				x.observer.Before(n)
			}
		}
		if timed {
			if err := x.compute.Record(x.began); err != nil {
				return launches[i].failed(err)
			}
		}
		for ; i < len(launches) && launches[i].node == n; i++ {
			if err := x.launch(&launches[i]); err != nil {
				return err
			}
			if x.observer.Narrow {
				if err := x.compute.Sync(); err != nil {
					return launches[i].failed(err)
				}
			}
		}
		if timed {
			if err := x.compute.Record(x.ended); err != nil {
				return launches[i-1].failed(err)
			}
		}
		if err := x.compute.Sync(); err != nil {
			return launches[i-1].failed(err)
		}
		if !timed {
			continue
		}
		took, err := x.ended.Since(x.began)
		if err != nil {
			return launches[i-1].failed(err)
		}
		// The time of a launch that serves several nodes counts for the first.
		for _, n := range slices.Concat([]*graph.Node{n}, also) {
			if !x.observer.After(n, took) {
				return x.results(fn)
			}
			took = 0
		}
	}
	return x.results(fn)
}

// Sync implements [engine.Image]. Each output of an update that the host reads asks for it, but only the first waits.
func (x *image) Sync() error {
	if len(x.queued) == 0 && x.unread.Load() == nil {
		return nil
	}
	return x.wait()
}

// wait waits for everything that computes, which may be more than runs.
func (x *image) wait() error {
	if err := x.unread.Load(); err != nil {
		return x.during(*err)
	}
	if err := x.compute.Sync(); err != nil {
		return x.during(err)
	}
	x.queued = x.queued[:0]
	return nil
}

// Input implements [engine.Image]. Its errors are reported by the next Run or Sync.
func (x *image) Input(slot int) []byte {
	if x.free[slot].Load() {
		return x.inputs[slot]
	}
	if err := x.done[slot].Sync(); err != nil {
		x.unread.Store(&err)
	} else {
		x.free[slot].Store(true)
	}
	return x.inputs[slot]
}

// Outputs implements [engine.Image].
func (x *image) Outputs() []byte { return x.outputs }

// Read implements [engine.Image].
func (x *image) Read(dst []byte, offset int64) error {
	if host := x.onHost(offset, int64(len(dst))); host != nil {
		err := x.Sync()
		copy(dst, host)
		return err
	}
	if x.beside.Load() {
		return x.peeker.copy(dst, x.memory+driver.Ptr(offset))
	}
	return x.download(dst, offset)
}

// Write implements [engine.Image].
func (x *image) Write(offset int64, src []byte) error {
	if host := x.onHost(offset, int64(len(src))); host != nil {
		err := x.Sync()
		copy(host, src)
		return err
	}
	if x.beside.Load() {
		return x.peeker.write(x.memory+driver.Ptr(offset), src)
	}
	return x.upload(x.memory+driver.Ptr(offset), src)
}

// download copies from the card's memory to dst.
func (x *image) download(dst []byte, offset int64) error {
	for len(dst) > 0 {
		part := x.staging[:min(len(dst), len(x.staging))]
		if err := x.compute.CopyOut(part, x.memory+driver.Ptr(offset)); err != nil {
			return err
		}
		if err := x.wait(); err != nil {
			return err
		}
		n := copy(dst, part)
		dst, offset = dst[n:], offset+int64(n)
	}
	return nil
}

// upload copies src to the card's memory.
func (x *image) upload(to driver.Ptr, src []byte) error {
	for len(src) > 0 {
		n := copy(x.staging, src)
		if err := x.compute.CopyIn(to, x.staging[:n]); err != nil {
			return err
		}
		if err := x.wait(); err != nil {
			return err
		}
		src, to = src[n:], to+driver.Ptr(n)
	}
	return nil
}

// Observe implements [engine.Image].
func (x *image) Observe(o *engine.Observer) { x.observer = o }

// Used implements [engine.Image].
func (x *image) Used() int64 { return x.code.used }

// Close implements [engine.Image].
func (x *image) Close() error {
	var errs []error
	var lost error // stands for all: everything is freed with the context
	add := func(err error) {
		if Lost(err) && lost == nil {
			lost = err
		}
		errs = append(errs, err)
	}
	x.peeker.close(add)
	if x.compute != nil {
		add(x.compute.Sync())
	}
	x.transfers.close(x.ctx, add)
	for _, fn := range x.runs {
		for slot := range fn.segments {
			for i := range fn.segments[slot] {
				fn.segments[slot][i].close(add)
			}
		}
	}
	if x.handle != nil {
		add(x.ctx.Do(x.handle.Close))
	}
	for _, m := range x.modules {
		add(m.Unload())
	}
	for s := range x.inputs {
		for _, e := range []driver.Event{x.ready[s], x.done[s]} {
			if e != nil {
				add(e.Close())
			}
		}
	}
	for _, e := range []driver.Event{x.began, x.ended} {
		if e != nil {
			add(e.Close())
		}
	}
	for _, s := range []driver.Stream{x.compute, x.copies} {
		if s != nil {
			add(s.Close())
		}
	}
	for _, b := range [][]byte{x.inputs[0], x.inputs[1], x.outputs, x.staging} {
		if b != nil {
			add(x.ctx.FreeHost(b))
		}
	}
	if x.memory != 0 {
		add(x.ctx.Free(x.memory))
	}
	if lost != nil {
		return lost
	}
	return errors.Join(errs...)
}
