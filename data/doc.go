// Package data turns files into the arrays that a training step reads.
//
// It promises:
//
//   - Nothing is lost or repaired silently. Bytes that are not UTF-8, a
//     missing field, a glob without a match, a torn quote: each is an error
//     that names file and line, or a count in the report when the caller
//     asked for repair.
//   - Memory is bounded. Sources stream; a claimed size is never allocated
//     before its bytes have arrived; one record is at most MaxRecord bytes.
//   - Order is a function of the files, the options and the seed. It does not
//     depend on worker counts, timing or map order.
//   - A position in the training stream is a small Position, restored in O(1).
//
// The path from files to batches:
//
//	Source (Files, GoTree)  documents: text, JSONL, JSON, CSV, Parquet, NPZ
//	shard.Prepare           tokenizes them once into memory-mapped shards
//	Windows                 packs a Corpus into windows of T tokens
//	Loader                  prefetches whole updates of shuffled windows
//
// Tasks with one example per row (classification, pairs) take another path: Records, then
// Table, then Buckets and an ExampleLoader.
package data
