// Package token turns text into token ids and back.
//
// It promises four things.
//
//   - A tokenizer.json gives the ids, offsets and decoded text that Hugging Face's own
//     library gives for it. A part that is not supported is an error that names the
//     part and its JSON path; nothing is approximated. (One limit: in a split pattern
//     that is not one of the published ones, categories other than letters and numbers
//     are those of the Go release's Unicode.)
//   - TrainBPE is deterministic: the same documents give the same tokenizer whatever
//     the number of workers.
//   - A byte-level tokenizer loses nothing: DecodeBytes(EncodeBytes(x)) == x for any
//     bytes x, valid UTF-8 or not.
//   - No input file and no text makes it panic, and memory stays proportional to the input.
//
// # Parts
//
// A Tokenizer is a pipeline, named as in tokenizer.json:
//
//	text -> added tokens -> normalizer -> pre-tokenizer -> model -> post-processor
//	ids  -> decoder -> text
//
// Every Tokenizer is made from such a file, even one that was trained here or read from an
// older layout (vocab.json with merges.txt, vocab.txt); so what Save writes is what was
// used. PhoBERT's vocab.txt with bpe.codes is the one exception: its pieces cannot be
// expressed in a tokenizer.json, and Save writes the two files again.
//
// A Tokenizer is immutable and safe for use by many goroutines at once.
package token
