package simd

// MatVec computes y[r] = row r of w . x, for a w of len(y) rows of len(x) elements, one
// after the other. Each sum is computed like Dot's.
func MatVec(y, w, x []float32) {
	same(len(y)*len(x), len(w), len(w))
	if len(x)%lanes == 0 && len(x) > 0 && len(y) > 0 {
		matVec(y, w, x)
		return
	}
	matVecGo(y, w, x)
}

// MatVecBF16 is MatVec for w stored as bfloat16.
func MatVecBF16(y []float32, w []uint16, x []float32) {
	same(len(y)*len(x), len(w), len(w))
	if len(x)%lanes == 0 && len(x) > 0 && len(y) > 0 {
		matVecBF16(y, w, x)
		return
	}
	matVecBF16Go(y, w, x)
}

func matVecGo(y, w, x []float32) {
	for r := range y {
		y[r] = dot(w[r*len(x):(r+1)*len(x)], x)
	}
}

func matVecBF16Go(y []float32, w []uint16, x []float32) {
	var part [lanes]float32
	for r := range y {
		var acc [lanes]float32
		row := w[r*len(x) : (r+1)*len(x)]
		for len(row) > 0 {
			n := min(lanes, len(row))
			at := len(x) - len(row)
			bf16ToF32(part[:n], row[:n])
			for i, v := range part[:n] {
				acc[i] += float32(v * x[at+i])
			}
			row = row[n:]
		}
		y[r] = tree(&acc)
	}
}
