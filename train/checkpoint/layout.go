package checkpoint

import "path/filepath"

// Folder is the name of the folder with checkpoints inside a run folder.
const Folder = "checkpoints"

// evalFolder is the name of the folder inside a run folder with the results of
// evaluations, a folder for each checkpoint.
const evalFolder = "eval"

// At is the checkpoint of an update in a run folder.
func At(run string, update int64) string { return filepath.Join(run, Folder, stepName(update)) }

// RunOf is the run folder of a checkpoint: RUN of RUN/checkpoints/step-N. For a
// checkpoint that was copied elsewhere it is the folder around it.
func RunOf(path string) string {
	parent := filepath.Dir(filepath.Clean(path))
	if filepath.Base(parent) == Folder {
		return filepath.Dir(parent)
	}
	return parent
}

// Evaluated is the folder for what an evaluation of a checkpoint writes:
// RUN/eval/step-N.
func Evaluated(path string) string {
	return filepath.Join(RunOf(path), evalFolder, filepath.Base(filepath.Clean(path)))
}
