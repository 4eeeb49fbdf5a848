// Package shard keeps a tokenized corpus in memory-mapped files.
//
// Prepare tokenizes a source once, on all cores, into a folder: shards of the
// training and the held-out split, a report and a manifest. Open maps one
// split as a data.Corpus. The package promises:
//
//   - The files are a function of the source, the tokenizer and the options.
//     The number of workers changes nothing.
//   - A folder is complete or absent: it is built next to its place, synced and
//     renamed. Preparing again with nothing changed reads the manifest and
//     does no work.
//   - Documents of one group are in one split, by a seeded hash of the group's
//     name, so adding documents moves none of the old ones.
//   - Every file is checked before use: sizes against the file's own size
//     before anything is allocated, checksums, document borders, and each id
//     against the vocabulary on its way out.
//
// # Format
//
// A shard is a header of 128 bytes, the ids (2 bytes each if the vocabulary has at most
// 65536, otherwise 4), zeros up to a multiple of 8, and for each document the 8-byte
// position after its EOS. All numbers are little-endian, checksums are CRC-32C.
//
//	 0  magic "SNUGTOK\x00"     48  documents  u64     80  checksum of ids    u32
//	 8  version      u32       56  ids        u64     84  checksum of index  u32
//	12  bytes per id u32       64  text bytes u64     88  zeros
//	16  tokenizer    16 bytes  72  index at   u64     124 checksum of 0..124 u32
//	32  vocabulary   u32
//	36  EOS          u32
//	40  shard number u32
//	44  split        u32
package shard
