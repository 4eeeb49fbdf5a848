package agiformer

import "github.com/snug-ml/snug/engine/graph"

// Vision is what encodes pictures.
type Vision struct{}

// fuse adds what text takes from the tokens seen.
func (p *forward) fuse(x, _ *graph.Value) *graph.Value { return x }
