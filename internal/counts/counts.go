// Package counts is what kernels of engine/cuda do for a unit of their work: how many
// warp instructions of each pipe, how often they use shared memory, how many sectors
// of global memory they touch, how long a block takes alone. The interpreter of PTX
// counted (tools/counts). What a launch does is so many of some units: engine/cuda says
// so where it launches, and engine/plan prices it.
package counts

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Work is warp instructions by pipe, the traffic that they cause, and the time that they
// take by themselves.
type Work struct {
	Tensor, FP32, FP64, Integer, XU float64 // instructions of the pipes
	Other                           float64 // of all others: accesses, branches, barriers
	Shared                          float64 // wavefronts of shared memory, of 128 bytes
	Sectors                         float64 // of global memory, of 32 bytes
	Bytes                           float64 // that have to move between the card's memory and caches that hold nothing for long
	// Alone is clocks of blocks that have a multiprocessor to themselves, summed over blocks.
	Alone float64
}

// Columns name the figures of a Work in the table.
var Columns = []string{"tensor", "fp32", "fp64", "integer", "xu", "other", "shared", "sectors", "bytes", "alone"}

func (w *Work) figures() [10]*float64 {
	return [...]*float64{&w.Tensor, &w.FP32, &w.FP64, &w.Integer, &w.XU, &w.Other, &w.Shared, &w.Sectors, &w.Bytes, &w.Alone}
}

// Plus is w and n times o.
func (w Work) Plus(n float64, o Work) Work {
	a, b := w.figures(), o.figures()
	for i := range a {
		*a[i] += n * *b[i]
	}
	return w
}

// Issued is all instructions.
func (w Work) Issued() float64 { return w.Tensor + w.FP32 + w.FP64 + w.Integer + w.XU + w.Other }

// Values are the figures in the order of Columns.
func (w Work) Values() []float64 {
	var v []float64
	for _, f := range w.figures() {
		v = append(v, *f)
	}
	return v
}

// Set sets the figures, in the order of Columns.
func (w *Work) Set(values []float64) {
	for i, f := range w.figures() {
		*f = values[i]
	}
}

// Units are N of a unit of work.
type Units struct {
	Of string
	N  float64
}

// Blocks is the unit of which a launch has one for each block. It takes time alone and nothing else:
// what a block takes whatever its other units are.
func Blocks(kernel string) string { return kernel + " blocks" }

// Sector is a unit that touches a sector of global memory and nothing else.
const Sector = "sector"

//go:embed sm_75.tsv
var text string

// Of is the work of a unit: "gemm_128_nn_f16 step".
func Of(unit string) (Work, bool) {
	if unit == Sector {
		return Work{Sectors: 1}, true
	}
	w, ok := Table()[unit]
	return w, ok
}

// Uncounted is a unit that is not in the table.
type Uncounted string

func (u Uncounted) Error() string { return fmt.Sprintf("there are no counts for %q", string(u)) }

// Sum is the work of some units.
func Sum(units []Units) (w Work, err error) {
	for _, u := range units {
		of, ok := Of(u.Of)
		if !ok {
			return w, Uncounted(u.Of)
		}
		w = w.Plus(u.N, of)
	}
	return w, nil
}

// Kernel is what a launch does.
type Kernel struct {
	Units []Units
	// Phases are what it does in its main loop, and then for the rest of each tile. Pipes overlap within a phase,
	// and phases do not.
	Phases [2]Work
	// Alone is clocks that each block takes whatever its units are. Resident is how many blocks a multiprocessor
	// holds at once; 1 if that is not known.
	Alone    float64
	Resident int
	Err      error // an [Uncounted]; nil: all units are in the table
}

// Launched is what a launch of a kernel with some units does.
func Launched(kernel string, units []Units) Kernel {
	k := Kernel{Units: units, Resident: 1}
	blocks, _ := Of(Blocks(kernel)) // not every kernel has them
	k.Alone = blocks.Alone
	if r, ok := Needs(kernel); ok {
		k.Resident, _ = r.Blocks()
	}
	var main, ends []Units
	tiled := false
	for _, u := range units {
		kind, unit, _ := strings.Cut(u.Of, " ")
		tile := unit == "tile"
		tiled = tiled || tile
		if tile || kind == "step" || kind == "place" || u.Of == Sector {
			ends = append(ends, u)
		} else {
			main = append(main, u)
		}
	}
	if !tiled {
		main, ends = units, nil
	}
	for i, units := range [...][]Units{main, ends} {
		if k.Phases[i], k.Err = Sum(units); k.Err != nil {
			break
		}
	}
	return k
}

// Table is all of it, by unit.
var Table = sync.OnceValue(func() map[string]Work {
	t, err := Parse(text)
	if err != nil {
		panic(err) // a test reads it
	}
	return t
})

// Parse reads a table.
func Parse(text string) (map[string]Work, error) {
	t := map[string]Work{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 1+len(Columns) {
			return nil, fmt.Errorf("%q: want a unit and %d figures", line, len(Columns))
		}
		values := make([]float64, len(Columns))
		for i := range values {
			var err error
			if values[i], err = strconv.ParseFloat(fields[i+1], 64); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		var w Work
		w.Set(values)
		t[fields[0]] = w
	}
	return t, nil
}
