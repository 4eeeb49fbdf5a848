package cuda

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/internal/size"
)

// Matmuls is how a card may compute products other than with snug's kernels.
type Matmuls struct {
	// Open loads cuBLASLt, or returns an error that says why there is none. It is called once, for the first
	// program with products.
	Open func() (cublaslt.Library, error)
	// Folder keeps the measurements; empty: products are measured each time.
	Folder string
	// Driver is the driver's CUDA version.
	Driver int
	// Once measures with a single run, as is enough for interpreted kernels.
	Once bool
}

// library is a backend's use of cuBLASLt.
type library struct {
	Matmuls
	lib cublaslt.Library // nil: not opened, or refused
	// begun are the choices of the run being continued; nil: none.
	begun *Choices
	// chosen are the choices made in this process.
	chosen known
	// refused is why the library is not used.
	refused error
}

// UseLibrary lets cuBLASLt compute products where it is faster. It must be called before the first program is
// loaded.
func (b *Backend) UseLibrary(m Matmuls) { b.library = &library{Matmuls: m, chosen: known{}} }

// Begun makes programs loaded from now on compute their products as in the run being continued: c is what
// that run recorded, without products if it used snug's kernels alone. With another card, or another version
// of the library, choices are made anew.
func (b *Backend) Begun(c *Choices) {
	if b.library != nil {
		b.library.begun, b.library.chosen = c, known{}
	}
}

// LibraryText says what computes products, for `doctor`.
func (b *Backend) LibraryText() string {
	l := b.library
	if l == nil {
		return "snug's kernels"
	}
	h, err := b.openLibrary()
	if err == nil {
		err = b.ctx.Do(h.Close)
	}
	if err != nil {
		return fmt.Sprintf("snug's kernels: %v", err)
	}
	return fmt.Sprintf("snug's kernels or cuBLASLt %s (%s), whichever is faster for a shape when a program is loaded", b.maker().Library, l.lib.Path())
}

// LibraryName is cuBLASLt with its version, or says that there is none.
func (b *Backend) LibraryName() string {
	l := b.library
	if l == nil {
		return "cuBLASLt off"
	}
	if l.lib == nil && l.refused == nil {
		l.lib, l.refused = l.Open()
	}
	if l.refused != nil {
		return "no cuBLASLt"
	}
	return "cuBLASLt " + cublaslt.VersionText(l.lib.Version())
}

// maker identifies what choices for this card are valid for.
func (b *Backend) maker() Maker {
	c := b.ctx.Card()
	m := Maker{Card: c.Name, Capability: c.Capability(), SMs: c.SMs}
	if b.library != nil && b.library.lib != nil && b.library.refused == nil {
		m.Library = cublaslt.VersionText(b.library.lib.Version())
	}
	return m
}

// openLibrary opens a handle; if it is nil the library is not used, because it is off or for the error's
// reason.
func (b *Backend) openLibrary() (h *cublaslt.Handle, err error) {
	l := b.library
	switch {
	case l == nil:
		return nil, nil
	case l.refused != nil:
		return nil, l.refused
	case l.lib == nil:
		if l.lib, l.refused = l.Open(); l.refused != nil {
			return nil, l.refused
		}
	}
	if err := b.ctx.Do(func() (err error) {
		h, err = cublaslt.New(l.lib)
		return err
	}); err != nil {
		l.refused = fmt.Errorf("cuBLASLt %s (%s): %w", cublaslt.VersionText(l.lib.Version()), l.lib.Path(), err)
	}
	return h, l.refused
}

// kept is the file of measurements for this card.
func (b *Backend) kept() kept {
	return keptIn(b.library.Folder, b.maker(), b.library.Driver, kernels.Version())
}

// choice is what is known of a product before it is measured, and whether it may be measured.
func (l *library) choice(m Maker, stored known, product string) (c Choice, found, measure bool) {
	if c, ok := l.chosen[product]; ok {
		return c, true, true
	}
	if l.begun != nil {
		if l.begun.Maker.Library == "" { // snug's kernels alone
			return Choice{Product: product}, true, false
		}
		if l.begun.Maker == m {
			if c, ok := l.begun.known()[product]; ok {
				return c, true, true
			}
		}
	}
	c, ok := stored[product]
	return c, ok, true
}

// Arithmetic implements engine's optional interface of images: it says what decides how this program's
// results are rounded.
func (x *image) Arithmetic() string {
	text := x.on.Arithmetic()
	if x.choices != nil {
		if by := x.choices.String(); by != "" {
			text += ", " + by
		}
	}
	return text
}

// Choices returns the program's choices.
func (x *image) Choices() *Choices { return x.choices }

// Matmuls returns the choices as a record, without times, and a text about them.
func (x *image) Matmuls() (record []byte, text string) {
	if x.choices == nil {
		return nil, ""
	}
	c := &Choices{Maker: x.choices.Maker, Products: slices.Clone(x.choices.Products)}
	for i := range c.Products {
		c.Products[i].Ours, c.Products[i].Library = 0, 0
	}
	l := x.on.library
	var absent *cublaslt.Absent
	switch {
	case l.refused != nil && !errors.As(l.refused, &absent):
		text = fmt.Sprintf("matmuls: snug's kernels, because cuBLASLt cannot be used: %v", l.refused)
	case l.refused != nil:
	case l.begun != nil && l.begun.Maker.Library == "":
		text = "matmuls: snug's kernels, with which this run began"
	default:
		text = "matmuls: " + cmp.Or(c.String(), fmt.Sprintf("snug's kernels, faster than cuBLASLt %s in all of %d shapes", c.Maker.Library, len(c.Products)))
		if x.measured > 0 {
			text += fmt.Sprintf(", %d measured now", x.measured)
		}
		if x.aside > 0 {
			text += fmt.Sprintf("; its code takes %v of the card, which is not planned", size.Bytes(x.aside))
		}
	}
	return c.JSON(), text
}
