package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/counts"
)

// solve finds what each unit takes from what kernels did with so many of each: by least
// squares of the relative errors. What known has is taken as it is.
func solve(list []observation, known map[string]counts.Work) (map[string]counts.Work, error) {
	e := &equations{list: list, known: known, found: map[string]counts.Work{}}
	own := func(o observation) []counts.Units { return o.units }
	sectors, bytes, alone := slices.Index(counts.Columns, "sectors"), slices.Index(counts.Columns, "bytes"), slices.Index(counts.Columns, "alone")
	var rest []int
	for i := range counts.Columns {
		if i != sectors && i != bytes && i != alone {
			rest = append(rest, i)
		}
	}
	if free := e.solve(own, rest...); len(free) > 0 {
		return nil, fmt.Errorf("the samples do not tell these units from others: %s", strings.Join(free, ", "))
	}
	// Loops and epilogues say which sectors they touch, and what they move.
	moving := func(o observation) []counts.Units {
		return slices.DeleteFunc(slices.Clone(o.units), func(u counts.Units) bool {
			kind, _, _ := strings.Cut(u.Of, " ")
			return kind == "loop" || kind == "step" || kind == "place"
		})
	}
	e.solve(moving, sectors)
	e.solve(moving, bytes)
	// Of the time that a block takes alone a part is the same for all blocks of a kernel. Where
	// a unit goes with blocks in all samples, either may have the time.
	e.solve(func(o observation) []counts.Units { return append([]counts.Units{o.blocks}, o.units...) }, alone)
	return e.found, nil
}

// equations are what is known of units.
type equations struct {
	list         []observation
	known, found map[string]counts.Work
}

// solve finds some columns of the units that are named, and returns those which nothing decides.
func (e *equations) solve(units func(observation) []counts.Units, columns ...int) (undecided []string) {
	index := map[string]int{}
	for _, o := range e.list {
		for _, u := range units(o) {
			if _, ok := e.known[u.Of]; !ok && u.Of != counts.Sector {
				index[u.Of] = 0
			}
		}
	}
	names := slices.Sorted(maps.Keys(index))
	for i, n := range names {
		index[n] = i
	}
	rows := make([][]float64, len(e.list)) // of coefficients, then results
	for i, o := range e.list {
		row, rest := make([]float64, len(names)), o.did
		for _, u := range units(o) {
			if j, ok := index[u.Of]; ok {
				row[j] += u.N
			} else {
				rest = rest.Plus(-u.N, of(u.Of, e.known))
			}
		}
		size := o.did.Issued()
		if len(columns) == 1 {
			size = o.did.Values()[columns[0]]
		}
		for _, c := range columns {
			row = append(row, rest.Values()[c])
		}
		for j := range row {
			row[j] /= max(1, size)
		}
		rows[i] = row
	}
	x, free := leastSquares(rows, len(names))
	for i, name := range names {
		w := e.found[name]
		values := w.Values()
		for k, c := range columns {
			values[c] = x[i][k]
		}
		w.Set(values)
		e.found[name] = w
	}
	for _, j := range free {
		undecided = append(undecided, names[j])
	}
	return undecided
}

// of is the work of a unit that is known.
func of(unit string, known map[string]counts.Work) counts.Work {
	if unit == counts.Sector {
		return counts.Work{Sectors: 1}
	}
	return known[unit]
}

// rounding is more than rounding errors make equally long columns differ. Columns begin with length 1.
const rounding = 1e-9

// leastSquares solves rows of n coefficients and any number of results, by Householder's
// reflections with the longest column next, of equally long ones the first: where unknowns always come together,
// the first has all of it, whatever else is solved for. free are the unknowns that nothing decides.
func leastSquares(rows [][]float64, n int) (x [][]float64, free []int) {
	m, columns := len(rows), 0
	if m > 0 {
		columns = len(rows[0]) - n
	}
	a := make([][]float64, m)
	for i := range rows {
		a[i] = slices.Clone(rows[i])
	}
	size := make([]float64, n)
	order := make([]int, n)
	for j := range n {
		order[j] = j
		for i := range m {
			size[j] = math.Hypot(size[j], a[i][j])
		}
		for i := range m {
			if size[j] > 0 {
				a[i][j] /= size[j]
			}
		}
	}
	rank := 0
	for ; rank < min(m, n); rank++ {
		best, longest := -1, rounding
		for j := rank; j < n; j++ {
			var s float64
			for i := rank; i < m; i++ {
				s = math.Hypot(s, a[i][order[j]])
			}
			if s > longest*(1+rounding) || best >= 0 && s >= longest*(1-rounding) && order[j] < order[best] {
				best, longest = j, s
			}
		}
		if best < 0 {
			break
		}
		order[rank], order[best] = order[best], order[rank]
		c := order[rank]
		if a[rank][c] > 0 {
			longest = -longest
		}
		v := make([]float64, m)
		var norm float64
		for i := rank; i < m; i++ {
			v[i] = a[i][c]
		}
		v[rank] -= longest
		for i := rank; i < m; i++ {
			norm += v[i] * v[i]
		}
		reflect := func(j int) {
			var dot float64
			for i := rank; i < m; i++ {
				dot += v[i] * a[i][j]
			}
			for i := rank; i < m; i++ {
				a[i][j] -= 2 * dot / norm * v[i]
			}
		}
		for _, j := range order[rank:] {
			reflect(j)
		}
		for j := range columns {
			reflect(n + j)
		}
	}
	x = make([][]float64, n)
	for k := range n {
		x[k] = make([]float64, columns)
	}
	for k := rank - 1; k >= 0; k-- {
		for j := range columns {
			s := a[k][n+j]
			for q := k + 1; q < rank; q++ {
				s -= a[k][order[q]] * x[order[q]][j]
			}
			x[order[k]][j] = s / a[k][order[k]]
		}
	}
	for k := range rank {
		for j := range columns {
			if x[order[k]][j] /= size[order[k]]; math.Abs(x[order[k]][j]) < 1e-6 {
				x[order[k]][j] = 0
			}
		}
	}
	return x, order[rank:]
}
