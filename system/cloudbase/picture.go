package cloudbase

import (
	"fmt"
	"math"
)

// fit crops and scales the images of a flight to height x width.
func fit(f *flight, d *Data, height, width int) (*flight, error) {
	rows, err := cut(d.Rows, f.Height, "data.rows")
	if err != nil {
		return nil, fmt.Errorf("flight %s: %w", f.Name, err)
	}
	cols, err := cut(d.Columns, f.Width, "data.columns")
	if err != nil {
		return nil, fmt.Errorf("flight %s: %w", f.Name, err)
	}
	h, w := rows[1]-rows[0], cols[1]-cols[0]
	if same := h == height && w == width; !same && !d.Resize {
		return nil, fmt.Errorf("flight %s: images are %dx%d after data.rows and data.columns, the model takes %dx%d: set model.height and model.width, crop them, or scale them with --data.resize", f.Name, h, w, height, width)
	} else if same && h == f.Height && w == f.Width {
		return f, nil
	}
	out := *f
	out.Height, out.Width = height, width
	if h != height || w != width {
		out.pixels = pixelF32 // scaled pixels are no longer integers
	}
	whole, part := make([]float32, f.Height*f.Width), make([]float32, h*w)
	out.frame = func(i int, dst []float32) error {
		if err := f.frame(i, whole); err != nil {
			return err
		}
		for r := range h {
			copy(part[r*w:(r+1)*w], whole[(rows[0]+r)*f.Width+cols[0]:])
		}
		scale(dst, height, width, part, h, w)
		return nil
	}
	return &out, nil
}

// cut returns a range of rows or columns, or all of them if none is set.
func cut(ends []int, n int, key string) ([2]int, error) {
	if len(ends) == 0 {
		return [2]int{0, n}, nil
	}
	if len(ends) != 2 || ends[0] < 0 || ends[0] >= ends[1] || ends[1] > n {
		return [2]int{}, fmt.Errorf("%s %v: want the first and the one after the last, of %d", key, ends, n)
	}
	return [2]int{ends[0], ends[1]}, nil
}

// scale resizes an image by averaging over the area that each new pixel covers.
func scale(dst []float32, height, width int, src []float32, h, w int) {
	if h == height && w == width {
		copy(dst, src)
		return
	}
	across := make([]float64, h*width)
	share := func(n, m, i int, add func(k int, weight float64)) {
		from, to := float64(i)*float64(n)/float64(m), float64(i+1)*float64(n)/float64(m)
		for k := int(from); k < n && float64(k) < to; k++ {
			if part := min(to, float64(k+1)) - max(from, float64(k)); part > 0 {
				add(k, part/(to-from))
			}
		}
	}
	for c := range width {
		share(w, width, c, func(k int, weight float64) {
			for r := range h {
				across[r*width+c] += weight * float64(src[r*w+k])
			}
		})
	}
	line := make([]float64, width)
	for r := range height {
		clear(line)
		share(h, height, r, func(k int, weight float64) {
			for c := range line {
				line[c] += weight * across[k*width+c]
			}
		})
		for c, v := range line {
			dst[r*width+c] = float32(v)
		}
	}
}

// flatten divides an image by the flat field of its flight, scaled by the field's mean to keep the
// brightness.
func flatten(picture, field []float32) {
	if len(field) == 0 {
		return
	}
	mean := 0.0
	for _, v := range field {
		mean += float64(v)
	}
	mean /= float64(len(field))
	for i, v := range field {
		picture[i] *= float32(mean / max(float64(v), 1e-3*math.Abs(mean)+1e-12))
	}
}

// normalize gives an image mean 0 and standard deviation 1 ("zscore"), or the range 0 to 1 ("minmax"). An
// image of uniform brightness becomes 0.
func normalize(picture []float32, how string) {
	switch how {
	case "zscore":
		mean, sq := 0.0, 0.0
		for _, v := range picture {
			mean += float64(v)
		}
		mean /= float64(len(picture))
		for _, v := range picture {
			sq += (float64(v) - mean) * (float64(v) - mean)
		}
		rescale(picture, mean, math.Sqrt(sq/float64(len(picture))))
	case "minmax":
		low, high := picture[0], picture[0]
		for _, v := range picture {
			low, high = min(low, v), max(high, v)
		}
		rescale(picture, float64(low), float64(high)-float64(low))
	}
}

func rescale(picture []float32, zero, unit float64) {
	if unit < 1e-12 {
		clear(picture)
		return
	}
	for i, v := range picture {
		picture[i] = float32((float64(v) - zero) / unit)
	}
}
