package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// device runs cases with the kernels of a set on an interpreted card.
type device struct {
	conformance.Device
	on  *cuda.Backend
	set *kernels.Set
	ctx driver.Context
	ran map[string]bool      // names of kernels
	out map[string][]float64 // of the last case
}

// newDevice opens a card. Everything that the interpreter can check is, of kernels that other tests do not check.
func newDevice(card driver.Card, set *kernels.Set) (*device, error) {
	d := &device{set: set, ran: map[string]bool{}}
	fake := &fakegpu.Driver{Installed: []driver.Card{card}, Break: func(kernel string) driver.Code {
		d.ran[kernel] = true
		return 0
	}}
	if set != kernels.Embedded {
		fake.Options.Checks = ptxsim.CheckAll
	}
	var err error
	if d.ctx, err = fake.Open(0); err != nil {
		return nil, err
	}
	b, err := cuda.New(d.ctx)
	if err != nil {
		return nil, errors.Join(err, d.ctx.Close())
	}
	d.on, d.Device = b, conformance.On(b, "fuse")
	return d, nil
}

// Run implements [conformance.Device].
func (d *device) Run(f *graph.Func, in map[string][]float64) (map[string][]float64, error) {
	defer kernels.Use(d.set)()
	var err error
	d.out, err = d.Device.Run(f, in)
	return d.out, err
}

// operation is the operation that a case is about.
func operation(c conformance.Case) string {
	name, _, _ := strings.Cut(c.Name, "/")
	return name
}

// heads is what tells apart the kernels of attention.
var heads = regexp.MustCompile(`^attention\w*/(f32|f16|bf16)/b\d+h\d+q\d+k\d+(d\d+)_`)

// some picks up to n cases of each operation, evenly spread over the smaller half; 0 picks all. Of attention, one of
// each type and head size is picked.
func some(cases []conformance.Case, n int, only []string) (picked []conformance.Case) {
	of := map[string][]conformance.Case{}
	for _, c := range cases {
		if len(only) == 0 || slices.Contains(only, operation(c)) {
			group := operation(c)
			if m := heads.FindString(c.Name); m != "" {
				group += heads.ReplaceAllString(m, "/$1/$2")
			}
			of[group] = append(of[group], c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		all := of[name]
		m := len(all)
		if n > 0 {
			slices.SortStableFunc(all, func(a, b conformance.Case) int { return size(a) - size(b) })
			all = all[:(m+1)/2]
			m = min(n, len(all))
			if strings.Contains(name, "/") {
				m = 1
			}
		}
		for i := range m {
			picked = append(picked, all[i*len(all)/m])
		}
	}
	return picked
}

// size is the number of elements that a case reads and writes.
func size(c conformance.Case) (n int) {
	for _, x := range c.In {
		n += len(x)
	}
	for _, o := range c.Func.Outputs {
		n += int(o.Value.Type.Shape.Elems())
	}
	return n
}

// result is what a comparison found about an operation.
type result struct {
	cases, same int
	off         float64 // the largest difference of the two compilers' results, over the largest result
}

// compare runs cases on a card by the kernels of both compilers. Those of the other set must keep to the bounds
// of each case.
func compare(ctx context.Context, card driver.Card, other *kernels.Set, cases []conformance.Case) (found map[string]*result, ran map[string]bool, err error) {
	ours, err := newDevice(card, kernels.Embedded)
	if err != nil {
		return nil, nil, err
	}
	theirs, err := newDevice(card, other)
	if err != nil {
		return nil, nil, err
	}
	found = map[string]*result{}
	var wrong []error
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if _, err := ours.Run(c.Func, c.In); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		if err := conformance.Check(theirs, c); err != nil {
			wrong = append(wrong, fmt.Errorf("%s on %s: %w", c.Name, card.Name, err))
			if cuda.Lost(err) {
				if theirs, err = newDevice(card, other); err != nil {
					return nil, nil, err
				}
			}
			continue
		}
		r := found[operation(c)]
		if r == nil {
			r = &result{}
			found[operation(c)] = r
		}
		r.cases++
		off, same := difference(ours.out, theirs.out)
		r.off = max(r.off, off)
		if same {
			r.same++
		}
	}
	return found, theirs.ran, errors.Join(wrong...)
}

// difference is the largest difference of an output, as a share of the largest element, and whether all bits are
// the same.
func difference(a, b map[string][]float64) (off float64, same bool) {
	same = true
	for name, x := range a {
		y := b[name]
		top, apart := 0.0, 0.0
		for i, v := range x {
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				top = max(top, math.Abs(v))
			}
			if math.Float64bits(v) == math.Float64bits(y[i]) || math.IsNaN(v) && math.IsNaN(y[i]) {
				continue
			}
			same = false
			if d := math.Abs(v - y[i]); !math.IsNaN(d) {
				apart = max(apart, d)
			}
		}
		if apart > 0 {
			off = max(off, apart/top)
		}
	}
	return off, same
}
