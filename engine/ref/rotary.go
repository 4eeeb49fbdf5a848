package ref

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

func rotaryTable(op graph.RotaryTable) []float64 {
	half := op.Dims / 2
	y := make([]float64, op.T*op.Dims)
	s := op.Scaling.Full()
	for t := range op.T {
		for i := range half {
			freq := math.Pow(op.Base, -2*float64(i)/float64(op.Dims))
			angle := float64(t) * freq * s.Scale(i, freq)
			y[t*op.Dims+i], y[t*op.Dims+half+i] = math.Cos(angle)*s.Magnitude, math.Sin(angle)*s.Magnitude
		}
	}
	return y
}

func rotary(op graph.Rotary, in []tensor) ([][]float64, error) {
	x, table := in[0], in[1]
	batch, time := x.Shape[0], x.Shape[1]
	k := op.HeadSize([]graph.Type{x.Type})
	half := op.Dims / 2
	y := append([]float64(nil), x.data...)
	turn := func(at, pos int) {
		row := table.data[pos*op.Dims:][:op.Dims]
		for i := range half {
			c, s := row[i], row[half+i]
			if op.Inverse {
				s = -s
			}
			a, b := x.data[at+i], x.data[at+half+i]
			y[at+i], y[at+half+i] = a*c-b*s, b*c+a*s
		}
	}
	for b := range batch {
		for t := range time {
			pos := t
			if op.Offset {
				pos += int(in[2].data[b])
			}
			if pos < 0 || pos >= table.Shape[0] {
				return nil, fmt.Errorf("row %d has position %d, the table has %d", b, pos, table.Shape[0])
			}
			at := (b*time + t) * x.Shape[2]
			for h := range op.Heads {
				switch op.Layout {
				case graph.PackedHeads:
					turn(at+h*3*k, pos)
					turn(at+h*3*k+k, pos)
				case graph.PackedQKV:
					turn(at+h*k, pos)
					turn(at+(op.Heads+h)*k, pos)
				default:
					turn(at+h*k, pos)
				}
			}
		}
	}
	return one(y), nil
}

func cacheWrite(cache, x, pos tensor) ([][]float64, error) {
	y := append([]float64(nil), cache.data...)
	rows, c := cache.Shape[1], cache.Shape[2]
	n := x.Shape[1] * c
	for b := range x.Shape[0] {
		p := int(pos.data[b])
		if p < 0 || p+x.Shape[1] > rows {
			return nil, fmt.Errorf("row %d writes positions %d..%d of a cache of %d", b, p, p+x.Shape[1]-1, rows)
		}
		copy(y[(b*rows+p)*c:], x.data[b*n:(b+1)*n])
	}
	return one(y), nil
}
