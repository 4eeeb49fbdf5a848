package simd

// Relu writes x, or 0 where x < 0. NaN and -0 pass.
func Relu(dst, x []float32) {
	same(len(dst), len(x), len(x))
	relu(dst, x)
}

// ReluGrad writes dy, or 0 where x <= 0.
func ReluGrad(dst, x, dy []float32) {
	same(len(dst), len(x), len(dy))
	reluGrad(dst, x, dy)
}

// LeakyRelu writes x where x > 0 and slope * x elsewhere.
func LeakyRelu(dst, x []float32, slope float32) {
	same(len(dst), len(x), len(x))
	leakyRelu(dst, x, slope)
}

// LeakyReluGrad writes dy where x > 0 and slope * dy elsewhere.
func LeakyReluGrad(dst, x, dy []float32, slope float32) {
	same(len(dst), len(x), len(dy))
	leakyReluGrad(dst, x, dy, slope)
}

// RouteMax adds grad to dst where x is not less than top, and makes grad 0 there:
// the gradient of a maximum goes to the first element that has it.
func RouteMax(dst, grad, top, x []float32) {
	same(len(dst), len(grad), len(top))
	same(len(dst), len(x), len(x))
	routeMax(dst, grad, top, x)
}

func routeMaxGo(dst, grad, top, x []float32) {
	for i, v := range x {
		taken := float32(0)
		if !(v < top[i]) {
			taken, grad[i] = grad[i], 0
		}
		dst[i] += taken
	}
}

func reluGo(dst, x []float32) {
	for i, v := range x {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func reluGradGo(dst, x, dy []float32) {
	for i, v := range x {
		if v <= 0 {
			dst[i] = 0
		} else {
			dst[i] = dy[i]
		}
	}
}

func leakyReluGo(dst, x []float32, slope float32) {
	for i, v := range x {
		if !(v > 0) {
			v *= slope
		}
		dst[i] = v
	}
}

func leakyReluGradGo(dst, x, dy []float32, slope float32) {
	for i, v := range x {
		g := dy[i]
		if !(v > 0) {
			g *= slope
		}
		dst[i] = g
	}
}
