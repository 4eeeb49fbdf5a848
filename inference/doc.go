// Package inference uses trained models. A system supplies a graph and a codec, a
// [Language] or a [Predictor]; what they have in common is here: loading a checkpoint
// forward only, the key-value cache, sampling, beam search, and computing requests
// together.
//
// It promises:
//
//   - A text depends only on its request, to the bit: neither on the texts next to it
//     nor on the rows of the server, and it equals the output of `snug generate`
//     ([Engine]).
//   - The memory of a server is planned before any of it is allocated ([NewEngine]).
package inference
