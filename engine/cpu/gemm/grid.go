package gemm

import (
	"math"
	"sync"
)

// grid cuts the columns of C that belong to a panel group into blocks of mb rows by nb
// columns, one task each.
type grid struct {
	rows   int // blocks along the rows
	mb, nb int
}

// directRows is the number of rows of C up to which B is read in place instead of being
// packed first: so few rows would use each packed word that packing costs more than it
// saves.
const directRows = 48

// Costs in the model below, in cycles.
const (
	taskCycles   = 400 // taking a task and starting its loops
	touchBytes   = 16  // bytes a cycle from beyond the second-level cache
	packACycles  = 24  // packing one word row of a tile of A, read from beyond the cache
	mapACycles   = 12  // applying a function to it
	kernelCycles = 60  // starting a kernel and writing its tile
)

// choice is all that the grid of a product depends on.
type choice struct {
	m                     *machine
	rows, k, kc           int
	blocks, cols          int // of groups
	moreBlocks            bool
	c                     DType
	source                sourceA
	mapped                bool // A
	workers, fixMB, fixNB int
}

// chosen remembers grids: the products of a model have few shapes, and plans try many programs.
var chosen struct {
	sync.Mutex
	grids map[choice]grid
}

// mostChosen is how many are kept, lest a process that sees ever new shapes keeps them all.
const mostChosen = 4096

// chooseGrid picks the block size with the least modeled time on the workers.
func (p *Plan) chooseGrid(workers int, opts Options) grid {
	key := choice{
		m: p.m, rows: p.rows, k: p.k, kc: p.packing.kc, blocks: p.groups.blocks, cols: p.groups.cols, moreBlocks: p.packing.blocks > 1,
		c: p.c, source: p.source, mapped: p.mapA != nil, workers: workers, fixMB: opts.MB, fixNB: opts.NB,
	}
	chosen.Lock()
	g, known := chosen.grids[key]
	chosen.Unlock()
	if known {
		return g
	}
	g = p.bestGrid(workers, opts)
	chosen.Lock()
	defer chosen.Unlock()
	if chosen.grids == nil || len(chosen.grids) >= mostChosen {
		chosen.grids = map[choice]grid{}
	}
	chosen.grids[key] = g
	return g
}

// bestGrid is chosen anew.
func (p *Plan) bestGrid(workers int, opts Options) grid {
	var best grid
	least := math.Inf(1)
	for _, mb := range p.heights(opts.MB) {
		rows := ceil(p.rows, mb)
		for _, nb := range p.widths(opts.NB, mb, 32*workers/rows) {
			g := grid{rows, mb, nb}
			if cost := p.cost(g, workers); cost < least {
				least, best = cost, g
			}
		}
	}
	return best
}

// heights lists the block heights worth trying: equal parts of the rows whose
// block of A fits its share of the cache.
func (p *Plan) heights(fixed int) []int {
	if fixed > 0 {
		return []int{fixed}
	}
	unit := min(4, p.m.mr)
	if p.source == tilesA || p.source == rowTilesA {
		unit = p.m.mr // short tiles are slower to pack
	}
	return equalHeights(p.rows, p.m.mr, unit, blockBytesA/(p.m.bytes()*p.packing.kc))
}

// equalHeights returns the heights, in multiples of unit, that cut rows into equal parts:
// each once, from about least up to most, but at least one.
func equalHeights(rows, least, unit, most int) (list []int) {
	for parts := ceil(rows, least); parts >= 1; {
		mb := roundUp(ceil(rows, parts), unit)
		if len(list) > 0 && mb > most {
			break
		}
		list = append(list, mb)
		parts = ceil(rows, mb) - 1 // more parts have the same height up to this number
	}
	return list
}

// widths lists the block widths worth trying for a height: up to parts equal
// parts of a group, whose block of C, if it is summed in scratch or visited
// several times, fits its share of the cache.
func (p *Plan) widths(fixed, mb, parts int) []int {
	nr := p.m.nr
	if fixed > 0 {
		return []int{roundUp(fixed, nr)}
	}
	panels := ceil(p.groups.cols, nr)
	revisited := p.c != F32 || p.packing.blocks > 1
	var list []int
	for n := 1; n <= panels; n++ {
		nb := roundUp(ceil(p.groups.cols, n), nr)
		if !revisited || mb*nb*4 <= blockBytesC || n == panels {
			list = append(list, nb)
		}
		if n > parts && len(list) > 0 {
			break
		}
	}
	return list
}

// cost models the cycles until the last worker is done, plus a share of one task
// for workers that are delayed.
func (p *Plan) cost(g grid, workers int) float64 {
	m := p.m
	w := float64(min(m.words(p.k), p.groups.blocks*p.packing.kc))
	full, r1, r2 := m.tiles(min(g.mb, p.rows))
	rowCycles := float64(full)*tileCycles(m, m.mr) + tileCycles(m, r1) + tileCycles(m, r2)
	tiles := float64(full + btoi(r1 > 0) + btoi(r2 > 0))
	panels := float64(g.nb / m.nr)
	task := taskCycles + panels*w*rowCycles + panels*tiles*kernelCycles
	task += (float64(m.bytes()*(g.mb+g.nb))*w + 4*float64(g.mb*g.nb)) / touchBytes
	if p.source != directA {
		task += tiles * w * packACycles
	}
	if p.mapA != nil {
		task += tiles * w * mapACycles
	}
	tasks := g.rows * ceil(p.groups.cols, g.nb)
	cost := float64(ceil(tasks, workers)) * task
	if workers > 1 {
		cost += 0.25 * task
	}
	return cost
}

// tileCycles is the time of one word step of a tile of mr rows: a step takes one cycle
// per row, but not less than the latency of a multiply-add.
func tileCycles(m *machine, mr int) float64 {
	if mr == 0 {
		return 0
	}
	return float64(max(mr, 4*m.mr/12+1))
}
