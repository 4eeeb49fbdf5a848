// Package config turns defaults, a preset, a file and flags into one typed configuration.
//
// It promises: every value knows where it came from; a key that nothing knows, a value
// of the wrong type or out of range is an error that names the place, the key, what was
// expected and the nearest valid key, and all such errors are reported at once; the
// spellings of other training guides are recognized and answered with ours; the
// effective configuration dumps as YAML that loads back to the same values; the
// reference text, the JSON schema and the checks come from one place, the tags of the
// section structs.
//
// A section is a struct with tagged fields:
//
//	type Model struct {
//		DModel  int     `key:"d_model" min:"1" help:"width of the residual stream"`
//		Dropout float64 `key:"dropout" min:"0" below:"1" help:"share of activations dropped"`
//	}
//
// Tags: key (the name in YAML, required), help, enum ("a,b"), min, max (inclusive),
// above, below (exclusive); the ranges hold for each element of a list. Fields may be
// bool, integers, floats, strings, time.Duration, types with UnmarshalText and
// MarshalText (Bytes), lists of these, lists of structs, and structs, which nest.
//
// Training, Data, Hardware, Checkpoint and Run are common. A System brings its model
// section and may add keys to the common sections or sections of its own; Of gives them
// back typed.
package config
