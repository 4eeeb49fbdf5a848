// Package counts is what kernels of engine/cuda do for a unit of their work: how many
// warp instructions of each pipe, how often they use shared memory, how many sectors
// of global memory they touch. The interpreter of PTX counted (tools/counts);
// engine/plan prices it.
package counts

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Work is warp instructions by pipe, and the traffic that they cause.
type Work struct {
	Tensor, FP32, Integer, XU float64 // instructions of the pipes
	Other                     float64 // of all others: accesses, branches, barriers
	Shared                    float64 // wavefronts of shared memory, of 128 bytes
	Sectors                   float64 // of global memory, of 32 bytes
}

// Columns name the figures of a Work in the table.
var Columns = []string{"tensor", "fp32", "integer", "xu", "other", "shared", "sectors"}

func (w *Work) figures() [7]*float64 {
	return [...]*float64{&w.Tensor, &w.FP32, &w.Integer, &w.XU, &w.Other, &w.Shared, &w.Sectors}
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
func (w Work) Issued() float64 { return w.Tensor + w.FP32 + w.Integer + w.XU + w.Other }

// Values are the figures in the order of Columns.
func (w Work) Values() []float64 {
	var v []float64
	for _, f := range w.figures() {
		v = append(v, *f)
	}
	return v
}

//go:embed sm_75.tsv
var text string

// Of is the work of one unit of a kind: "gemm_128_nn_f16 step".
func Of(unit string) (Work, bool) {
	w, ok := Table()[unit]
	return w, ok
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
		var w Work
		figures := w.figures()
		if len(fields) != 1+len(figures) {
			return nil, fmt.Errorf("%q: want a unit and %d figures", line, len(figures))
		}
		for i, f := range figures {
			var err error
			if *f, err = strconv.ParseFloat(fields[i+1], 64); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		}
		t[fields[0]] = w
	}
	return t, nil
}
