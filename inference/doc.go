// Package inference uses trained models. A system supplies a graph and a codec,
// a [Language] or a [Predictor]; what is the same for all of them is here: loading
// a checkpoint forward only, the key-value cache, sampling, beam search, and
// computing requests together.
package inference
