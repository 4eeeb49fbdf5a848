package size

// Float returns the product of sizes if an estimate is enough and an int64 may not hold
// it.
func Float(ns ...int) float64 {
	p := 1.0
	for _, n := range ns {
		p *= float64(n)
	}
	return p
}
