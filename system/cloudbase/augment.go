package cloudbase

import (
	"math"
	"math/rand/v2"
)

// draw returns the random source of one example in one epoch, which depends on nothing else.
func draw(seed uint64, epoch, index int64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(seed^mix(uint64(epoch))), uint64(index)))
}

// apply changes the images of a window, [frames, height, width], and the sun's angles in degrees. All frames
// change in the same way.
func (a *Augment) apply(r *rand.Rand, images []float32, height, width int, angles []float32) {
	flip, erase := r.Float64() < a.Flip, r.Float64() < a.Erase
	add, factor := a.Brightness*(2*r.Float64()-1), 1+a.Contrast*(2*r.Float64()-1)
	if flip {
		mirror(images, width)
		angles[1] = float32(math.Mod(360-float64(angles[1]), 360))
	}
	if add != 0 || factor != 1 {
		for i, v := range images {
			images[i] = float32(factor)*v + float32(add)
		}
	}
	if a.Noise > 0 {
		for i := range images {
			images[i] += float32(a.Noise * r.NormFloat64())
		}
	}
	if erase {
		blank(r, images, height, width)
	}
}

// mirror reverses each row.
func mirror(images []float32, width int) {
	for at := 0; at < len(images); at += width {
		row := images[at : at+width]
		for i, j := 0, width-1; i < j; i, j = i+1, j-1 {
			row[i], row[j] = row[j], row[i]
		}
	}
}

// blank sets a rectangle to 0 in every frame. It covers 2 to 10 % of the image, with an aspect ratio from 1:3
// to 3:1 (Zhong et al. 2020).
func blank(r *rand.Rand, images []float32, height, width int) {
	area := (0.02 + 0.08*r.Float64()) * float64(height*width)
	side := math.Exp((2*r.Float64() - 1) * math.Log(3) / 2)
	h := min(height, max(1, int(math.Round(math.Sqrt(area)*side))))
	w := min(width, max(1, int(math.Round(math.Sqrt(area)/side))))
	top, left := r.IntN(height-h+1), r.IntN(width-w+1)
	for at := 0; at < len(images); at += height * width {
		for y := top; y < top+h; y++ {
			clear(images[at+y*width+left : at+y*width+left+w])
		}
	}
}

// hide fills a mask: in each image of size places, a random share of them is 1.
func hide(r *rand.Rand, mask []float32, size int, share float64) {
	clear(mask)
	n := min(size, max(1, int(math.Round(share*float64(size)))))
	for at := 0; at < len(mask); at += size {
		for _, k := range r.Perm(size)[:n] {
			mask[at+k] = 1
		}
	}
}
