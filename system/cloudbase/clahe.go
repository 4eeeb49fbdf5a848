package cloudbase

import "math"

// These are the grid of tiles and the number of levels of local histogram equalization.
const (
	claheTiles  = 8
	claheLevels = 256
)

// equalize performs contrast-limited adaptive histogram equalization (Zuiderveld 1994) on an image with
// pixels of any range. Each of 8 x 8 tiles maps brightness by its cumulative histogram, clipped at a share of
// the tile's pixels, with the rest spread evenly. Between the centers of tiles the maps are blended. The
// result is in [0, 1].
func equalize(picture []float32, height, width int, clip float64) {
	normalize(picture, "minmax")
	down, across := min(claheTiles, height), min(claheTiles, width)
	maps := make([][claheLevels]float64, down*across)
	for i := range down {
		for j := range across {
			tileMap(&maps[i*across+j], picture, width, i*height/down, (i+1)*height/down, j*width/across, (j+1)*width/across, clip)
		}
	}
	// place returns the tile whose center is at or before k, and how far k is past it.
	place := func(k, n, tiles int) (at int, behind float64) {
		x := (float64(k)+0.5)*float64(tiles)/float64(n) - 0.5
		at = int(math.Floor(x))
		return at, x - float64(at)
	}
	for y := range height {
		i, v := place(y, height, down)
		for x := range width {
			j, u := place(x, width, across)
			l := level(picture[y*width+x])
			value := func(i, j int) float64 {
				return maps[min(down-1, max(0, i))*across+min(across-1, max(0, j))][l]
			}
			picture[y*width+x] = float32(lerp(lerp(value(i, j), value(i, j+1), u), lerp(value(i+1, j), value(i+1, j+1), u), v))
		}
	}
}

func level(v float32) int { return min(claheLevels-1, max(0, int(v*claheLevels))) }

// tileMap computes the map of the rows from top to bottom and the columns from left to right.
func tileMap(m *[claheLevels]float64, picture []float32, width, top, bottom, left, right int, clip float64) {
	n := float64((bottom - top) * (right - left))
	for y := top; y < bottom; y++ {
		for x := left; x < right; x++ {
			m[level(picture[y*width+x])]++
		}
	}
	limit, excess := max(1, clip*n), 0.0
	for l := range m {
		if m[l] > limit {
			excess += m[l] - limit
			m[l] = limit
		}
	}
	sum := 0.0
	for l := range m {
		sum += m[l] + excess/claheLevels
		m[l] = sum / n
	}
}
