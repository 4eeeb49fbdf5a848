// Package config turns defaults, a preset, a file and flags into one typed configuration.
//
// Every value knows where it came from. An unknown key, or a value that has the wrong type or is out of
// range, is an error that names the place, the key, what was expected and the nearest valid key; all errors
// are reported at once. Spellings of other training guides are recognized and answered with ours. The
// effective configuration can be dumped as YAML that loads back to the same values. The reference text, the
// JSON schema and the checks have one source: the tags of the section structs.
//
// A section is a struct with tagged fields:
//
//	type Model struct {
//		DModel  int     `key:"d_model" min:"1" help:"width of the residual stream"`
//		Dropout float64 `key:"dropout" min:"0" below:"1" help:"share of activations dropped"`
//	}
//
// The tags are key (the name in YAML, required), help, enum ("a,b"), min, max (inclusive), above and below
// (exclusive). Ranges apply to each element of a list. Fields may be bool, integers, floats, strings,
// time.Duration, types with UnmarshalText and MarshalText (Bytes), lists of these, lists of structs, and
// nested structs.
//
// Training, Data, Hardware, Checkpoint and Run are common to all systems. A System has its own model section,
// and may add keys to the common sections or further sections; Of returns them typed.
package config
