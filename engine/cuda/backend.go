// Package cuda runs programs on NVIDIA cards of compute capability 7.5 and up, through the driver alone:
// kernels are PTX (package kernels), compiled beforehand by clang, or generated here for fused loops.
//
// Everything a run needs is reserved when a program is loaded: one block of the card's memory for the arena
// and the kernels' workspace, and page-locked mirrors of inputs and outputs on the host. Each function is
// captured once for each input slot and replayed as a whole. No sum depends on timing, so runs repeat bit for
// bit on one kind of card.
package cuda

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/kernels"
)

// Backend is a card as a compute device.
type Backend struct {
	ctx     driver.Context
	target  int
	library *library // nil: snug's kernels compute all products
}

// Supports returns nil if there are kernels for a card, or an error that says why not.
func Supports(card driver.Card) error {
	if kernels.Target(card.Capability()) == 0 {
		return fmt.Errorf("%s has compute capability %d.%d; snug has kernels from 7.5 up (Turing: T4, RTX 20 and later)", card.Name, card.Major, card.Minor)
	}
	return nil
}

// New makes a backend of an opened card.
func New(ctx driver.Context) (*Backend, error) {
	if err := Supports(ctx.Card()); err != nil {
		return nil, err
	}
	return &Backend{ctx: ctx, target: kernels.Target(ctx.Card().Capability())}, nil
}

// Name implements [engine.Backend].
func (b *Backend) Name() string { return b.ctx.Card().Name }

// Arithmetic implements [engine.Backend].
func (b *Backend) Arithmetic() string {
	c := b.ctx.Card()
	return fmt.Sprintf("cuda kernels sm_%d on %d multiprocessors of sm_%d", b.target, c.SMs, c.Capability())
}

// Traits implements [engine.Backend].
func (b *Backend) Traits() engine.Traits { return engine.CUDA }

// Card describes the card.
func (b *Backend) Card() driver.Card { return b.ctx.Card() }

// CUDA is the version of CUDA that the driver supports, as text.
func (b *Backend) CUDA() string {
	v := b.ctx.Driver().Version()
	return fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10)
}

// Memory returns the card's free and total memory in bytes.
func (b *Backend) Memory() (free, total int64, err error) { return b.ctx.Memory() }

// Close releases the card.
func (b *Backend) Close() error { return b.ctx.Close() }

// Workspace implements [engine.Backend].
func (b *Backend) Workspace(p *engine.Program) (int64, error) {
	c := b.ctx.Card()
	return Lower(c.Capability(), c.SMs).Workspace(p)
}

// Load implements [engine.Backend].
func (b *Backend) Load(p *engine.Program) (engine.Image, error) {
	c, err := compile(p, b.target, b.ctx.Card().SMs, b.library != nil)
	if err != nil {
		return nil, err
	}
	x := &image{p: p, on: b, ctx: b.ctx, code: c}
	if err := x.load(); err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), closing(err, x))
	}
	return x, nil
}

// Lost reports whether err means that the card is lost: this process can run nothing more on it.
func Lost(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code.Sticky()
}

// closing frees what a failed load has reserved and returns err.
func closing(err error, x *image) error {
	if e := x.Close(); e != nil && !Lost(err) {
		return fmt.Errorf("%w; then freeing what was reserved: %w", err, e)
	}
	return err
}

// PTX is the text that a program is assembled from on a card with a compute capability and a number of
// multiprocessors: one module of the kernels that the program launches.
func PTX(p *engine.Program, capability, sms int) (string, error) {
	c, err := compile(p, kernels.Target(capability), sms, false)
	if err != nil {
		return "", err
	}
	text, _, err := c.module(c.names())
	return text, err
}
