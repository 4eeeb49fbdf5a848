package gemm

// grid cuts a slab of C into blocks of mb rows by nb columns, one task each.
type grid struct {
	rows   int // blocks along the rows
	mb, nb int
}

// directRows is the number of rows of C up to which B is read where it is
// instead of being packed first: each packed word would be used by so few rows
// that packing costs more than it saves.
const directRows = 48

// Costs in the model below, in cycles.
const (
	taskCycles   = 400 // taking a task and starting its loops
	touchBytes   = 16  // bytes a cycle from beyond the second-level cache
	packACycles  = 4   // packing one word row of a tile of A
	kernelCycles = 60  // starting a kernel and writing its tile
)

// chooseGrid picks the block size with the least modelled time on the workers.
func (p *Plan) chooseGrid(workers int, opts Options) grid {
	m := p.m
	minRows := m.mr
	bestCost := -1.0
	var bestGrid grid
	maxRows := ceil(p.rows, minRows)
	maxCols := ceil(p.slabs.cols, m.nr)
	words := min(m.words(p.k), p.slabs.blocks*p.packing.kc)
	unit := min(4, m.mr)
	if p.source == tilesA {
		unit = m.mr // short tiles are slower to pack
	}
	for g := 1; g <= maxRows; g++ {
		mb := roundUp(ceil(p.rows, g), unit)
		if opts.MB > 0 {
			mb = opts.MB
		}
		if mb*p.packing.kc*4 > blockBytesA && g < maxRows && opts.MB == 0 {
			continue
		}
		gr := ceil(p.rows, mb)
		for h := 1; h <= maxCols; h++ {
			nb := roundUp(ceil(p.slabs.cols, h), m.nr)
			if opts.NB > 0 {
				nb = roundUp(opts.NB, m.nr)
			}
			if (p.c != F32 || p.packing.blocks > 1) && mb*nb*4 > blockBytesC && h < maxCols && opts.NB == 0 {
				continue
			}
			cost := p.cost(grid{gr, mb, nb}, workers, words)
			if bestCost < 0 || cost < bestCost {
				bestCost, bestGrid = cost, grid{gr, mb, nb}
			}
			if opts.NB > 0 || gr*h > 32*workers {
				break
			}
		}
		if opts.MB > 0 {
			break
		}
	}
	return bestGrid
}

// cost models the cycles until the last worker is done, plus a share of one
// task for workers that are held up.
func (p *Plan) cost(g grid, workers, words int) float64 {
	m := p.m
	full, r1, r2 := m.tiles(min(g.mb, p.rows))
	rowCycles := float64(full)*tileCycles(m, m.mr) + tileCycles(m, r1) + tileCycles(m, r2)
	tiles := float64(full + btoi(r1 > 0) + btoi(r2 > 0))
	panels := float64(g.nb / m.nr)
	w := float64(words)
	task := taskCycles + panels*w*rowCycles + panels*tiles*kernelCycles
	task += 4 * (float64(g.mb+g.nb)*w + float64(g.mb*g.nb)) / touchBytes
	if p.source != directA {
		task += tiles * w * packACycles
	}
	tasks := g.rows * ceil(p.slabs.cols, g.nb)
	cost := float64(ceil(tasks, workers)) * task
	if workers > 1 {
		cost += 0.25 * task
	}
	return cost
}

// tileCycles is the time of one word step of a tile of mr rows: a step takes
// one cycle a row, but not less than the latency of a multiply-add.
func tileCycles(m *machine, mr int) float64 {
	if mr == 0 {
		return 0
	}
	return float64(max(mr, 4*m.mr/12+1))
}
