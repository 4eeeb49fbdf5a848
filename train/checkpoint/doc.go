// Package checkpoint keeps the state of a run on disk so that nothing is lost
// and nothing is guessed.
//
// It promises:
//
//   - After a crash at any moment (kill -9 and power loss included) Latest returns the
//     newest checkpoint that is intact, checked by SHA-256; a save that was reported as
//     done is intact.
//   - There is no second copy of the tensors: one goroutine writes them as they were at
//     the moment of the save while training goes on. What is about to change before it
//     was read is staged, in a buffer of known size; where that is full the change waits
//     (Live, Store.Held).
//   - Errors never stop training: they are retried a bounded number of times with growing
//     pauses and shown by Status. Whatever has changed meanwhile is saved as it is then.
//   - No checkpoint appears before the log of the run that led to it is durable
//     (Options.SyncLog), or a warning says that it could not be.
//   - Damage is named: file and, for weights and optimizer state, tensor.
//   - Order is that of the update number. Clocks are recorded, never compared.
//   - A checkpoint is good when its tensors are finite and its evaluation, if it has
//     one, is a number. The manifest records it, a bad one is never loaded, and never
//     replaces a good one.
//   - Retention keeps the last ones and the best ones, counts only intact and good
//     ones, never removes the last of them nor one that is being read (Pin).
//   - One process owns a run folder; a second gets an error that names the first.
//
// A run folder RUN holds RUN/checkpoints/step-00000042/, and in it
//
//	model.safetensors      weights, names and layout as the model's family has them
//	optimizer.safetensors  moments, master weights, gradient accumulators
//	state.json             the rest of an exact resume (State)
//	metadata.json          what people and tools need (Metadata)
//	config.yaml, ...       files passed through, such as the tokenizer's
//	manifest.json          size and SHA-256 of each file, CRC-32C of each tensor
//
// A checkpoint is made in step-N.tmp: each file is written and synced, the
// manifest last, then the folder is synced, renamed to step-N, and its parent
// synced. step-N.old is the former holder of the number while it is replaced,
// step-N.del is being deleted.
package checkpoint

// Names of the files of a checkpoint.
const (
	WeightsFile   = "model.safetensors"
	OptimizerFile = "optimizer.safetensors"
	StateFile     = "state.json"
	MetadataFile  = "metadata.json"
	ConfigFile    = "config.yaml"
	ManifestFile  = "manifest.json"
)
