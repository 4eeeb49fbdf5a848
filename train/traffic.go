package train

import "github.com/snug-ml/snug/engine"

// Buckets are the bytes of the program's gradients that so many ranks exchange at a time.
func Buckets(p *engine.Program, world int) (bytes []int64) {
	for _, b := range bucketsOf(p, world) {
		bytes = append(bytes, b.bytes)
	}
	return bytes
}
